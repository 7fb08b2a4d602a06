"""Imports a published data set from a folder of its files, with the questions that the paper keeps."""

from aptool.datasets import insuranceqa, trecqa, wikiqa
from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.formats.location import Location

# What ``import_published`` imports.
PUBLISHED = ("wikiqa", "trecqa", "insuranceqa")

# The file of each split: of WikiQA as Microsoft distributes it, of TREC-QA as castorini does.
_FILES = {
    "wikiqa": {"train": "WikiQA-train.tsv", "dev": "WikiQA-dev.tsv", "test": "WikiQA-test.tsv"},
    "trecqa": {"train": "train-all", "dev": "clean-dev", "test": "clean-test"},
}


def import_published(kind: str, folder: Location, out: Location) -> Collection:
    """Imports the splits of a data set that a folder holds, with the questions that the paper keeps.

    Args:
        kind: one of ``PUBLISHED``.
        folder: the folder of its files; test may be missing. Of InsuranceQA, V1 or the folder that it is in.
        out: the folder of the collection.

    Raises:
        InputError: train or dev is missing, or a file cannot be imported.
    """
    if kind == "insuranceqa":
        return insuranceqa.build(out, str(folder / "V1" if (folder / "V1").is_dir() else folder))
    splits = {split: str(folder / name) for split, name in _FILES[kind].items() if (folder / name).exists()}
    for split in ("train", "dev"):
        if split not in splits:
            expected = f"{_FILES[kind][split]}, or a collection built by `aptool data import {kind}`"
            raise InputError(folder, problem=f"no split {split!r}", expected=expected)
    if kind == "wikiqa":
        return wikiqa.build(out, splits, questions="answerable")
    return trecqa.build(out, splits, questions="both-labels")
