"""Commands with several inputs, one of which is damaged."""

import json
import shutil
from pathlib import Path

import readers
from case import Case, content, surface
from mutators import flip, mutate_bytes, mutate_document, mutate_lines
from world import small_options


@surface(2)
def breakdowns(case: Case) -> None:
    """Measures by group of questions; the measures of the run do not change."""
    qrels, pools = case.world.collection / "test.qrels", Path("test.pools.parquet")
    pools.write_bytes(_damaged(case, content(case.world.collection / pools.name)))
    shutil.copy(case.world.collection / "answers.parquet", ".")
    given = ("eval", case.world.run, "--qrels", qrels, "--pools", pools, "--json")
    kind = case.random.choice(("question-length", "answer-length", "type"))
    out = case.run(*given, "--by", kind)
    if out is not None:
        measures = json.loads(out)["runs"][0]["measures"]
        expected = readers.measures(
            readers.judgements(content(qrels)), readers.scores(content(case.world.run))
        )
        assert all(abs(measures[name] - value) < 1e-6 for name, value in expected.items())


@surface(1)
def started_trainings(case: Case) -> None:
    """A training with a start model, a teacher's run, a further collection or vectors."""
    shutil.copytree(case.world.collection, "d")
    shutil.copytree(case.world.model, "start")
    source = case.random.choice(("start", "teacher", "mixture", "vectors"))
    more: tuple[object, ...] = ()
    if source == "start":
        path = case.random.choice([Path("start", name) for name in ("config.json", "tokenizer.json")])
        path.write_text(mutate_document(case.random, json.loads(path.read_text())), errors="surrogateescape")
        options = ["--start", "start", "--set", "training.epochs=1"]
    else:
        options = small_options()
    if source == "teacher":
        lines = mutate_lines(case.random, content(case.world.train_run), b" ")
        Path("t.run").write_bytes(lines)
        more = ("--teacher", "t.run")
    elif source == "mixture":
        name = case.random.choice(("train.qrels", "train.pools.parquet", "collection.json"))
        Path("d", name).write_bytes(mutate_bytes(case.random, Path("d", name).read_bytes()))
        more = (f"d{case.random.choice(('', '@0.5', '@' + case.nasty()))}",)
    elif source == "vectors":
        Path("v.txt").write_bytes(mutate_lines(case.random, content(case.world.folder / "v.txt"), b" "))
        more = ("--vectors", "v.txt")
    arguments = ("train", case.world.collection, *more, "--output", "m", *options)
    case.run(*arguments, outputs=("m", "m.training"))


@surface(1)
def reports(case: Case) -> None:
    """A report of a folder of runs with a damaged file."""
    run = mutate_lines(case.random, content(case.world.run), b" ")
    shutil.copytree(case.world.matrix, "o")
    if case.random.random() < 0.5:
        next(Path("o").glob("c/*/seed1/test.run")).write_bytes(run)
    else:
        table = Path("o/table.json")
        document = json.loads(table.read_text())
        table.write_text(mutate_document(case.random, document), errors="surrogateescape")
    case.run("report", "o", "--output", "r.html", outputs=("r.html",))
    assert not Path("r.html").exists() or b"Content-Security-Policy" in Path("r.html").read_bytes()


@surface(2)
def descriptions(case: Case) -> None:
    """Commands that describe a collection or a pair."""
    shutil.copytree(case.world.collection, "c")
    name = case.random.choice(("test.pools.parquet", "test.qrels", "collection.json"))
    Path("c", name).write_bytes(_damaged(case, Path("c", name).read_bytes()))
    pair = ("--question-id", case.random.choice(("test0", case.nasty())), "--answer-id", case.nasty())
    explain = ("explain", "--model", case.world.model, "--collection", "c", *pair)
    case.run(*case.random.choice((explain, ("data", "stats", "c"))))


def _damaged(case: Case, data: bytes) -> bytes:
    """Damaged data, or sometimes the unchanged data."""
    kind = case.random.random()
    return data if kind < 0.3 else flip(case.random, data) if kind < 0.7 else mutate_bytes(case.random, data)
