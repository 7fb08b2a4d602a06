"""What ``aptool`` alone prints: what the current folder has, and the command that leads on from there."""

import shlex
from collections.abc import Iterator
from pathlib import Path

# Only these subfolders are searched, so that it takes no time.
PLACES = (".", "data", "models", "runs")


def next_steps(folder: Path) -> list[str]:
    """Three lines: what ``folder`` has, the next command, and where to read on."""
    collection, model, run = _collection(folder), _model(folder), _run(folder)
    if collection is None:
        here = "no collection here yet"
        command = "aptool data import tsv train=FILE.csv --output data/mine"
    elif model is None:
        here = f"a collection, {collection}, and no model yet"
        command = f"aptool train {_word(collection)} --preset ap-cnn --output models/ap-cnn"
    elif run is None:
        here = f"a collection, {collection}, a model, {model}, and no run yet"
        split = _evaluated_split(folder / collection)
        pools = collection / f"{split}.pools.parquet"
        command = f"aptool score {_word(pools)} --model {_word(model)} --output {split}.run"
    else:
        here = f"a collection, {collection}, a model, {model}, and a run, {run}"
        qrels = collection / f"{_evaluated_split(folder / collection)}.qrels"
        command = f"aptool eval {_word(run)} --qrels {_word(qrels)}"
    return [
        f"In this folder: {here}.",
        f"Next:  {command}",
        "All commands: `aptool --help`. This machine and what is installed: `aptool doctor`.",
    ]


def _word(path: Path) -> str:
    return shlex.quote(str(path))


def _subfolders(folder: Path) -> Iterator[Path]:
    """The folders at the usual places, by name, relative to ``folder``."""
    for place in PLACES:
        if (folder / place).is_dir():
            yield from sorted(
                entry.relative_to(folder) for entry in (folder / place).iterdir() if entry.is_dir()
            )


def _collection(folder: Path) -> Path | None:
    collections = (found for found in _subfolders(folder) if (folder / found / "collection.json").is_file())
    return next(collections, None)


def _model(folder: Path) -> Path | None:
    weights = (found for found in _subfolders(folder) if (folder / found / "model.safetensors").is_file())
    return next((found for found in weights if (folder / found / "config.json").is_file()), None)


def _run(folder: Path) -> Path | None:
    """The first run file of the current folder, of ``runs``, or beside a collection's pools."""
    for place in (Path(), Path("runs"), *_subfolders(folder)):
        found = sorted((folder / place).glob("*.run")) + sorted((folder / place).glob("*.run.gz"))
        if found:
            return found[0].relative_to(folder)
    return None


def _evaluated_split(collection: Path) -> str:
    """Dev if the collection has it, else the first split by name."""
    splits = sorted(path.name.split(".")[0] for path in collection.glob("*.pools.parquet"))
    return "dev" if "dev" in splits or not splits else splits[0]
