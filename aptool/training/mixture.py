"""Several collections in one training: the texts of all."""

import re
from collections.abc import Iterator

import numpy as np

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.options import expected_without
from aptool.training.data import IndexLists, TrainingTexts
from aptool.training.texts import read_texts, split_texts

# Until aptool 0.2.0, FOLDER@SHARE took a share of a collection.
_WITH_SHARE = re.compile(r".+@\d*\.?\d+(?:e-?\d+)?")


def sources(collection: Collection, recipe: Recipe) -> list[Collection]:
    """The collections of a training, the first one first.

    Raises:
        InputError: one of the recipe's is no collection, is named twice, or has a share.
    """
    opened = [collection]
    for number, text in enumerate(recipe.mixture.collections):
        place = f"mixture.collections, item {number}"
        if _WITH_SHARE.fullmatch(text):
            expected = expected_without("a folder without a share")
            raise InputError(recipe.preset, place=place, value=text, expected=expected)
        further = Collection(text)
        if further.path.resolve() in [source.path.resolve() for source in opened]:
            raise InputError(recipe.preset, place=place, value=text, expected="each collection once")
        opened.append(further)
    return opened


def check_sources(collection: Collection, recipe: Recipe, split: str) -> None:
    """Checks that each collection has the training split. Raises like ``sources``."""
    for source in sources(collection, recipe):
        source.qrels(split)


def fingerprints(collection: Collection, recipe: Recipe) -> list[str]:
    """Fingerprints of the recipe's further collections. Raises like ``sources``."""
    return [source.fingerprint for source in sources(collection, recipe)[1:]]


def all_texts(collection: Collection, recipe: Recipe) -> Iterator[str]:
    """Every question and answer of every split of every collection."""
    for source in sources(collection, recipe):
        for split in source.splits:
            yield from split_texts(source, split)


def read_mixture(collection: Collection, recipe: Recipe, split: str) -> TrainingTexts:
    """The training split of every collection as one: equal answers of two collections are one answer.

    Raises:
        InputError: as ``read_texts`` and ``sources``.
    """
    found = sources(collection, recipe)
    if len(found) == 1:
        return read_texts(collection, split)
    parts = [read_texts(source, split) for source in found]
    index: dict[str, int] = {}
    for part in parts:
        for text in part.answers:
            index.setdefault(text, len(index))
    renumbered = [np.array([index[text] for text in part.answers], dtype=np.int64) for part in parts]
    return TrainingTexts(
        questions=[question for part in parts for question in part.questions],
        answers=list(index),
        positives=_joined([part.positives for part in parts], renumbered),
        pools=_joined([part.pools for part in parts], renumbered),
    )


def _joined(parts: list[IndexLists], renumbered: list[np.ndarray]) -> IndexLists:
    """The lists of all parts, one part after the other, with the answers' new numbers."""
    values = np.concatenate([new[part.values] for part, new in zip(parts, renumbered, strict=True)])
    lengths = np.concatenate([part.lengths for part in parts])
    return IndexLists.of(np.repeat(np.arange(len(lengths)), lengths), values, len(lengths))
