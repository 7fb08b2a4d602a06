"""Several collections in one training: the texts of all, and the share of each that an epoch takes."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.training.data import IndexLists, Shares, TrainingTexts
from aptool.training.texts import read_texts, split_texts

_WITH_SHARE = re.compile(r"(?P<folder>.+)@(?P<share>\d*\.?\d+(?:e-?\d+)?)")


class Source(NamedTuple):
    """A collection to train on, and the share of its pairs that an epoch takes."""

    collection: Collection
    share: float


def sources(collection: Collection, recipe: Recipe) -> list[Source]:
    """The collections of a training, the first one first.

    Raises:
        InputError: one of the recipe's is no collection, is named twice, or has no such share.
    """
    found = [Source(collection, 1.0)]
    for number, text in enumerate(recipe.mixture.collections):
        place = f"mixture.collections, item {number}"
        match = _WITH_SHARE.fullmatch(text)
        folder, share = (match["folder"], float(match["share"])) if match else (text, 1.0)
        if not 0 < share <= 1:
            raise InputError(recipe.preset, place=place, value=text, expected="a share above 0, at most 1")
        opened = Collection(folder)
        if opened.path.resolve() in [source.collection.path.resolve() for source in found]:
            raise InputError(recipe.preset, place=place, value=text, expected="each collection once")
        found.append(Source(opened, share))
    return found


def check_sources(collection: Collection, recipe: Recipe, split: str) -> None:
    """Checks that each collection has the training split. Raises like ``sources``."""
    for source in sources(collection, recipe):
        source.collection.qrels(split)


def fingerprints(collection: Collection, recipe: Recipe) -> list[str]:
    """Fingerprints of the recipe's further collections. Raises like ``sources``."""
    return [source.collection.fingerprint for source in sources(collection, recipe)[1:]]


def all_texts(collection: Collection, recipe: Recipe) -> Iterator[str]:
    """Every question and answer of every split of every collection."""
    for source in sources(collection, recipe):
        for split in source.collection.splits:
            yield from split_texts(source.collection, split)


def read_mixture(collection: Collection, recipe: Recipe, split: str) -> TrainingTexts:
    """The training split of every collection as one: equal answers of two collections are one answer.

    Raises:
        InputError: as ``read_texts`` and ``sources``.
    """
    found = sources(collection, recipe)
    if len(found) == 1:
        return read_texts(collection, split)
    parts = [read_texts(source.collection, split) for source in found]
    index: dict[str, int] = {}
    for part in parts:
        for text in part.answers:
            index.setdefault(text, len(index))
    renumbered = [np.array([index[text] for text in part.answers], dtype=np.int64) for part in parts]
    sizes = [len(part.questions) for part in parts]
    return TrainingTexts(
        questions=[question for part in parts for question in part.questions],
        answers=list(index),
        positives=_joined([part.positives for part in parts], renumbered),
        pools=_joined([part.pools for part in parts], renumbered),
        shares=Shares(np.repeat(np.arange(len(parts)), sizes), np.array([source.share for source in found])),
    )


def _joined(parts: list[IndexLists], renumbered: list[np.ndarray]) -> IndexLists:
    """The lists of all parts, one part after the other, with the answers' new numbers."""
    values = np.concatenate([new[part.values] for part, new in zip(parts, renumbered, strict=True)])
    lengths = np.concatenate([part.lengths for part in parts])
    return IndexLists.of(np.repeat(np.arange(len(lengths)), lengths), values, len(lengths))
