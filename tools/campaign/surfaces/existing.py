"""Files at the path of an output that aptool did not write, or that have changed since."""

import json
import shutil
from pathlib import Path
from typing import Any

from case import Case, content, surface
from mutators import NASTY_TEXTS, mutate_bytes, mutate_document, mutate_lines


def _foreign(case: Case) -> bytes:
    """Content of another program, sometimes similar to an output of aptool."""
    world = case.world
    similar = case.random.choice(
        (
            world.run,
            world.collection / "test.qrels",
            world.collection / "collection.json",
            world.model / "config.json",
            world.folder / "v.bin",
            world.folder / "v.txt",
            world.matrix / "table.json",
            Path(f"{world.run}.ir-metadata.yml"),
        )
    )
    kind = case.random.randrange(4)
    if kind == 0:
        return content(similar)
    if kind == 1:
        return mutate_bytes(case.random, content(similar)) or b"x"
    if kind == 2:
        return case.random.choice(NASTY_TEXTS).encode("utf-8", "surrogateescape") or b"x"
    return case.random.randbytes(case.random.choice((1, 40, 5000)))


def _refused(case: Case, path: Path, *command: Any) -> None:
    """Run a command, which must leave a file as it is."""
    before, out = path.read_bytes(), command[-1]
    done = case.run(*command, outputs=(str(out).partition("/")[0],))
    assert done is None, "replaced a file that aptool did not write"
    assert path.read_bytes() == before, "failed and changed a file"


@surface(4)
def foreign_files(case: Case) -> None:
    """A file of another program at an output file: one line, and the file stays."""
    world, name = case.world, case.random.choice(("x.run", "notes.txt", "t.csv", "r.html"))
    pools, qrels = world.collection / "test.pools.parquet", world.collection / "test.qrels"
    commands: dict[str, tuple[Any, ...]] = {
        "x.run": ("score", pools, "--model", case.random.choice(("random", "bm25"))),
        "notes.txt": ("fuse", world.run, world.other_run),
        "t.csv": ("eval", world.run, "--qrels", qrels),
        "r.html": ("report", world.matrix),
    }
    path = Path(name)
    if case.random.random() < 0.2:
        path = Path("target")
        Path(name).symlink_to(path)
    path.write_bytes(_foreign(case))
    option = "--per-question" if name == "t.csv" else "--output"
    _refused(case, path, *commands[name], option, name)


@surface(3)
def foreign_folders(case: Case) -> None:
    """A folder of another program at an output folder: one line, and its files stay."""
    world, kind = case.world, case.random.choice(("train", "import", "folds", "matrix", "encode"))
    names = {
        "train": ("model.safetensors", "config.json", "README.md"),
        "import": ("collection.json", "test.qrels", "test.pools.parquet"),
        "folds": ("fold1/collection.json", "fold2/dev.qrels"),
        "matrix": ("table.md", "c/b/seed1/test.run", "c/r/seed1/test.json"),
        "encode": ("encoded.json", "model.safetensors"),
    }
    commands: dict[str, tuple[Any, ...]] = {
        "train": ("train", world.collection, "--preset", "qa-cnn"),
        "import": ("data", "import", "table", f"test={world.folder / 'x.tsv'}"),
        "folds": ("data", "folds", world.collection, "--folds", 2),
        "matrix": ("matrix", world.folder / "t.toml"),
        "encode": ("encode", world.collection / "test.pools.parquet", "--model", world.model),
    }
    path = Path("o", case.random.choice(names[kind]))
    path.parent.mkdir(parents=True)
    path.write_bytes(_foreign(case))
    _refused(case, path, *commands[kind], "--output", "o")


@surface(2)
def edited_matrices(case: Case) -> None:
    """A file of a matrix that was changed by hand: neither evaluated nor replaced."""
    shutil.copytree(case.world.matrix, "o")
    names = ("c/b/seed1/test.run", "c/r/seed1/test.run", "c/f/seed1/test.json", "table.json", "table.md")
    path = Path("o", case.random.choice(names))
    whole = path.read_bytes()
    if path.suffix == ".json":
        text = mutate_document(case.random, json.loads(whole))
        changed = text.encode("utf-8", "surrogateescape")
    elif path.suffix == ".run":
        changed = mutate_lines(case.random, whole, b" ")
    else:
        changed = mutate_bytes(case.random, whole)
    if changed in (whole, b""):
        return
    path.write_bytes(changed)
    if path.suffix == ".run" and case.random.random() < 0.5:
        done = case.run("report", "o", "--output", "r.html", outputs=("r.html",))
        assert done is None, "a report of a changed run"
        return
    _refused(case, path, "matrix", case.world.folder / "t.toml", "--output", "o")


@surface(2)
def edited_collections(case: Case) -> None:
    """A file of an imported collection that was corrected by hand stays."""
    source = case.world.folder / "x.tsv"
    command = ("data", "import", "table", f"test={source}", "--output", "c")
    assert case.run(*command, outputs=("c",)) is not None
    path = Path("c", case.random.choice(("test.qrels", "collection.json", "test.pools.parquet")))
    changed = mutate_bytes(case.random, path.read_bytes())
    if changed in (path.read_bytes(), b""):
        return
    path.write_bytes(changed)
    _refused(case, path, *command)


@surface(3)
def identifiers(case: Case) -> None:
    """Ids of any characters: refused in one line, or read back as they are."""
    nasty = (*NASTY_TEXTS, "a b", "a\u00a0b", "a\rb", "\ufeffa", "Q0", "x" * 70_000, "\U0001f600")
    ids = [case.random.choice(nasty) if case.random.random() < 0.5 else f"a{n}" for n in range(3)]
    question = case.random.choice(nasty)
    rows = [
        {"question_id": question, "question": "where", "id": name, "answer": f"text {n}", "label": int(not n)}
        for n, name in enumerate(ids)
    ]
    Path("x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ("--question-id", "question_id", "--answer-id", "id")
    given = ("data", "import", "table", "test=x.jsonl", *named, "--output", "c")
    if case.run(*given, outputs=("c",)) is None:
        return
    assert case.run("data", "check", "c") is not None, "imported and refused by check"
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    scored = ("score", "c/test.pools.parquet", "--model", "random", "--output", "x.run")
    assert case.run(*scored, outputs=outputs) is not None, "imported and not scored"
    lines = [line.split(" ") for line in Path("x.run").read_text().split("\n")[:-1]]
    assert {(line[0], line[2]) for line in lines} <= {(question, name) for name in ids}, "other ids"
    assert case.run("eval", "x.run", "--qrels", "c/test.qrels") is not None, "scored and not evaluated"
