"""The next command for the current folder, which ``aptool`` alone prints, and defaults of paths."""

import json
import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from aptool.errors import InputError, UsageError
from aptool.formats.location import is_glob, is_remote

logger = logging.getLogger(__name__)

# Also defined in `formats`, which is slow to import.
MANIFEST, POOLS, QRELS, METADATA = "collection.json", ".pools.parquet", ".qrels", ".ir-metadata.yml"
FOLDERS = (".", "data", "models", "runs")  # whose subfolders are searched
COLLECTION = Path("data/functions")
MODEL = Path("models/ap-cnn")
_TOPICS = re.compile(rf"^ +topics: (.+){re.escape(POOLS)}$", re.MULTILINE)


def next_steps(folder: Path) -> list[str]:
    """Return three lines: the contents of ``folder``, the next command, and further commands."""
    run, model = _run(folder), _model(folder)
    judged = _qrels(folder, run) if run else None
    collection = judged.parent if judged else _collection(folder)
    splits = _splits(folder / collection) if collection else []
    if collection is None:
        here = "no collection here yet"
        command = "aptool data import csv train=FILE.csv --output data/mine"
    elif model is None and splits == ["train"]:
        here = f"a collection, {collection}, without a dev split, and no model yet"
        folds = collection.with_name(f"{collection.name}-folds")
        few = max(2, min(5, _questions(folder / collection, "train")))
        command = f"aptool data folds {_word(collection)} --folds {few} --output {_word(folds)}"
    elif model is None:
        here = f"a collection, {collection}, and no model yet"
        command = f"aptool train {_word(collection)} --preset ap-cnn --output models/ap-cnn"
    elif run is None:
        here = f"a collection, {collection}, a model, {model}, and no run yet"
        split = _evaluated(splits)
        pools = collection / f"{split}{POOLS}"
        command = f"aptool score {_word(pools)} --model {_word(model)} --output {split}.run"
    else:
        here = f"a collection, {collection}, a model, {model}, and a run, {run}"
        qrels = judged or collection / f"{_evaluated(splits)}{QRELS}"
        command = f"aptool eval {_word(run)} --qrels {_word(qrels)}"
    return [
        f"In this folder: {here}.",
        f"Next:  {command}",
        "All commands: `aptool --help`. This machine and what is installed: `aptool doctor`.",
    ]


def _word(path: Path) -> str:
    return shlex.quote(str(path))


def _subfolders(folder: Path) -> Iterator[Path]:
    """Yield the subfolders of ``FOLDERS``, relative to ``folder``."""
    for parent in FOLDERS:
        yield from sorted(path.relative_to(folder) for path in (folder / parent).glob("*/") if path.is_dir())


def _collection(folder: Path) -> Path | None:
    """Return the first collection with train and dev splits, else the first collection."""
    paths = [path for subfolder in _subfolders(folder) for path in (subfolder, subfolder / "fold1")]
    collections = [path for path in paths if (folder / path / MANIFEST).is_file()]
    complete = [path for path in collections if {"train", "dev"} <= {*_splits(folder / path)}]
    return next(iter(complete + collections), None)


def _model(folder: Path) -> Path | None:
    for path in _subfolders(folder):
        if (folder / path / "model.safetensors").is_file() and (folder / path / "config.json").is_file():
            return path
    return None


def _run(folder: Path) -> Path | None:
    """Return the first run file of ``folder``, of ``runs``, or of a subfolder."""
    for path in (Path(), Path("runs"), *_subfolders(folder)):
        for pattern in ("*.run", "*.run.gz"):
            for run in sorted((folder / path).glob(pattern)):
                return run.relative_to(folder)
    return None


def _qrels(folder: Path, run: Path) -> Path | None:
    """Return the qrels of the pools in a run's metadata."""
    metadata = folder / f"{run}{METADATA}"
    pools = _TOPICS.search(metadata.read_text(encoding="utf-8")) if metadata.is_file() else None
    qrels = Path(f"{pools[1]}{QRELS}") if pools else None
    return qrels if qrels and (folder / qrels).is_file() else None


def _splits(collection: Path) -> list[str]:
    return sorted(path.name.removesuffix(POOLS) for path in collection.glob(f"*{POOLS}"))


def _questions(collection: Path, split: str) -> int:
    """Return the number of questions in the manifest; 0 if it is missing there."""
    try:
        manifest = json.loads((collection / MANIFEST).read_text(encoding="utf-8"))
        return int(manifest["splits"][split]["questions"])
    except (ValueError, KeyError, TypeError):
        return 0


def _evaluated(splits: list[str]) -> str:
    """Return dev if it exists, else the first split."""
    return "dev" if "dev" in splits or not splits else splits[0]


def default_collection() -> Path:
    """Return the code-search collection; build it if it does not exist."""
    if COLLECTION.exists():
        logger.info(f"COLLECTION not given: {COLLECTION}")
        return COLLECTION
    logger.info(f"COLLECTION not given: {COLLECTION}, which is built first")
    from aptool.datasets.functions import import_functions

    import_functions(COLLECTION, limit=None)
    return COLLECTION


def default_model() -> Path:
    """Return the model folder that ``aptool train`` writes without arguments."""
    logger.info(f"--model not given: {MODEL}")
    return MODEL


def default_run(pools: tuple[str, ...]) -> Path:
    """Return the run file in the folder of a single local pools file."""
    path = pools[0]
    if len(pools) == 1 and not (is_remote(path) or is_glob(path) or Path(path).exists()):
        raise InputError(path, problem="file not found", expected="a pools file")
    if len(pools) != 1 or is_remote(path) or not Path(path).is_file():
        raise UsageError("--output RUN is required unless POOLS is one local file")
    name = path.removesuffix(".parquet").removesuffix(".pools")
    logger.info(f"--output not given: {name}.run")
    return Path(f"{name}.run")
