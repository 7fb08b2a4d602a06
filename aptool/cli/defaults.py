"""Defaults that depend on the current folder; each is logged when it is used."""

import logging
from pathlib import Path

from aptool.errors import InputError, UsageError
from aptool.formats.urls import is_glob, is_remote

logger = logging.getLogger(__name__)

COLLECTION = Path("data/functions")
MODEL = Path("models/ap-cnn")


def default_collection() -> Path:
    """The built-in collection; it is built first if it does not exist."""
    if COLLECTION.exists():
        logger.info(f"COLLECTION not given: {COLLECTION}")
        return COLLECTION
    logger.info(f"COLLECTION not given: {COLLECTION}, which is built first")
    from aptool.datasets.functions import build

    build(COLLECTION, limit=None)
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
