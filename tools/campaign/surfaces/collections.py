"""Damaged collections and results of experiments."""

import json
import shutil
from pathlib import Path

import readers
from case import Case, content, surface
from mutators import flip, mutate_bytes, mutate_document
from world import matrix_table


@surface(4)
def manifests(case: Case) -> None:
    shutil.copytree(case.world.collection, "c")
    path = Path("c/collection.json")
    path.write_text(mutate_document(case.random, json.loads(path.read_text())), errors="surrogateescape")
    case.run("data", case.random.choice(("check", "check", "stats")), "c")


@surface(2)
def collections(case: Case) -> None:
    shutil.copytree(case.world.collection, "c")
    name = case.random.choice(("test.qrels", "test.pools.parquet", "train.qrels", "dev.pools.parquet"))
    data = content(case.world.collection / name)
    changed = flip(case.random, data)
    Path("c", name).write_bytes(changed)
    out = case.run("data", "check", "c")
    assert out is None or changed == data, "a changed collection is accepted"


@surface(3)
def folds(case: Case) -> None:
    """Folds of a collection: every question of train and dev is in the dev split of one fold."""
    shutil.copytree(case.world.collection, "c")
    number = case.random.choice((2, 3, 7, 1000))
    if case.random.random() < 0.7:
        path = Path("c/collection.json")
        path.write_text(mutate_document(case.random, json.loads(path.read_text())), errors="surrogateescape")
    else:
        name = case.random.choice(("train.qrels", "train.pools.parquet", "dev.pools.parquet"))
        Path("c", name).write_bytes(flip(case.random, Path("c", name).read_bytes()))
    more = case.random.choice(((), ("--split", "train"), ("--split", case.nasty())))
    given = ("data", "folds", "c", "--output", "f", "--folds", number, *more)
    if case.run(*given, outputs=("f",)) is not None and not more:
        dealt = [set(readers.judgements(path.read_bytes())) for path in Path("f").glob("*/dev.qrels")]
        assert len(dealt) == number
        assert sum(map(len, dealt)) == len(set().union(*dealt)) == 28


@surface(3)
def matrices(case: Case) -> None:
    text = matrix_table(case.world.collection)
    lines = text.split("\n")
    at = case.random.randrange(len(lines))
    if "=" in lines[at] and case.random.random() < 0.6:
        lines[at] = lines[at].partition("=")[0] + "= " + case.nasty()
        data = "\n".join(lines).encode("utf-8", "surrogatepass")
    else:
        data = mutate_bytes(case.random, text.encode())
    Path("t.toml").write_bytes(data)
    before = readers.listing(case.world.folder)
    case.run("matrix", "t.toml", "--output", "o.training", outputs=("o.training",))
    assert readers.listing(case.world.folder) == before, "changed the collection"


@surface(3)
def results(case: Case) -> None:
    """The folder of a matrix for `aptool report`, and the training history of a model."""
    from aptool.errors import AptoolError
    from aptool.reporting.charts import read_history
    from aptool.reporting.runs import find_collections, read_runs

    document = {
        "results": [
            {
                "collection": "c",
                "system": "r",
                "seed": 1,
                "run": "c/r/seed1/test.run",
                "split": "test",
                "measures": {"map": 0.5},
                "questions": 8,
                "seconds": {"train": 0.0, "score": 0.1},
            }
        ],
        "collections": {"c": {"path": str(case.world.collection), "name": "tiny"}},
        "command": "aptool matrix",
    }
    history = [{"epoch": n, "loss": 0.5, "dev": {"map": 0.5}, "seconds": {"update": 0.1}} for n in (1, 2)]
    Path("o/c/r/seed1").mkdir(parents=True)
    shutil.copy(case.world.run, "o/c/r/seed1/test.run")
    Path("o/table.json").write_text(mutate_document(case.random, document), errors="surrogateescape")
    Path("m/training").mkdir(parents=True)
    lines = [json.dumps(history[0]), mutate_document(case.random, history[1])]
    Path("m/training/history.jsonl").write_text("\n".join(lines), errors="surrogateescape")
    case.ended = "0"
    for read in (lambda: find_collections(read_runs("o"), {}), lambda: read_history("m")):
        try:
            read()
        except OSError as error:  # the command prints the reason
            assert error.strerror
            case.ended = "1"
        except AptoolError as error:
            case.ended = str(error.exit_code)
            assert "\n" not in str(error)
