"""The published files of a data set, found by their names and imported as the paper has them."""

from pathlib import Path

from aptool.datasets import trecqa, wikiqa
from aptool.errors import InputError
from aptool.formats.collection import Collection

# What each split is called in Microsoft's folder, and in that of castorini's models.
_FILES = {
    "wikiqa": {"train": "WikiQA-train.tsv", "dev": "WikiQA-dev.tsv", "test": "WikiQA-test.tsv"},
    "trecqa": {"train": "train-all", "dev": "clean-dev", "test": "clean-test"},
}


def import_published(kind: str, folder: Path, out: Path) -> Collection:
    """Imports the splits of a data set that a folder holds, with the questions that the paper keeps.

    Args:
        kind: ``wikiqa`` or ``trecqa``.
        folder: with its files; test may be absent.
        out: the folder of the collection.

    Raises:
        InputError: train or dev is not there, or a file is not what it should be.
    """
    splits = {split: str(folder / name) for split, name in _FILES[kind].items() if (folder / name).exists()}
    for split in ("train", "dev"):
        if split not in splits:
            expected = f"{_FILES[kind][split]}, or a collection that `aptool data import {kind}` made"
            raise InputError(folder, problem=f"no split {split!r}", expected=expected)
    if kind == "wikiqa":
        return wikiqa.build(out, splits, questions="answerable")
    return trecqa.build(out, splits, questions="both-labels")
