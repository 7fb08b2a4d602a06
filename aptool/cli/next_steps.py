"""What ``aptool`` alone prints: what the current folder has, and the command that leads on from there."""

import json
import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from aptool.errors import InputError, UsageError
from aptool.formats.urls import is_glob, is_remote

logger = logging.getLogger(__name__)

# The names that `formats` writes; its libraries would take longer to import than all that is done here.
MANIFEST, POOLS, QRELS, METADATA = "collection.json", ".pools.parquet", ".qrels", ".ir-metadata.yml"
# Only these subfolders are searched, and the first fold of folds in them, so that it takes no time.
PLACES = (".", "data", "models", "runs")
_TOPICS = re.compile(rf"^ +topics: (.+){re.escape(POOLS)}$", re.MULTILINE)


def next_steps(folder: Path) -> list[str]:
    """Three lines: what ``folder`` has, the next command, and where to read on."""
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
    """The folders at the usual places, by name, relative to ``folder``."""
    for place in PLACES:
        if (folder / place).is_dir():
            yield from sorted(
                entry.relative_to(folder) for entry in (folder / place).iterdir() if entry.is_dir()
            )


def _collection(folder: Path) -> Path | None:
    """The first collection to train on, or else the first one."""
    places = [place for found in _subfolders(folder) for place in (found, found / "fold1")]
    found = [place for place in places if (folder / place / MANIFEST).is_file()]
    whole = [place for place in found if {"train", "dev"} <= {*_splits(folder / place)}]
    return next(iter([*whole, *found]), None)


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


def _qrels(folder: Path, run: Path) -> Path | None:
    """The qrels of the pools that a run scores, as far as its metadata says which they were."""
    metadata = folder / f"{run}{METADATA}"
    pools = _TOPICS.search(metadata.read_text(encoding="utf-8")) if metadata.is_file() else None
    found = Path(f"{pools[1]}{QRELS}") if pools else None
    return found if found and (folder / found).is_file() else None


def _splits(collection: Path) -> list[str]:
    return sorted(path.name.removesuffix(POOLS) for path in collection.glob(f"*{POOLS}"))


def _questions(collection: Path, split: str) -> int:
    """Questions of a split by the collection's manifest; 0 if that does not say."""
    try:
        manifest = json.loads((collection / MANIFEST).read_text(encoding="utf-8"))
        return int(manifest["splits"][split]["questions"])
    except (ValueError, KeyError, TypeError):
        return 0


def _evaluated(splits: list[str]) -> str:
    """Dev if there is one, else the first split by name."""
    return "dev" if "dev" in splits or not splits else splits[0]


COLLECTION = Path("data/functions")
MODEL = Path("models/ap-cnn")


def default_collection() -> Path:
    """The built-in collection; it is built first if it does not exist."""
    if COLLECTION.exists():
        logger.info(f"COLLECTION not given: {COLLECTION}")
        return COLLECTION
    logger.info(f"COLLECTION not given: {COLLECTION}, which is built first")
    from aptool.datasets.functions import import_functions

    import_functions(COLLECTION, limit=None)
    return COLLECTION


def default_model() -> Path:
    """The model folder that ``aptool train`` without arguments writes."""
    logger.info(f"--model not given: {MODEL}")
    return MODEL


def default_run(pools: tuple[str, ...]) -> Path:
    """The run file beside a single local pools file.

    Raises:
        InputError: the file does not exist.
        UsageError: there are several inputs, or the input is not a local file.
    """
    if len(pools) == 1 and not (is_remote(pools[0]) or is_glob(pools[0]) or Path(pools[0]).exists()):
        raise InputError(pools[0], problem="file not found", expected="a pools file")
    if len(pools) != 1 or is_remote(pools[0]) or not Path(pools[0]).is_file():
        raise UsageError("--output RUN is required unless POOLS is one local file")
    name = pools[0]
    for suffix in (".parquet", ".pools"):
        name = name.removesuffix(suffix)
    logger.info(f"--output not given: {name}.run")
    return Path(f"{name}.run")
