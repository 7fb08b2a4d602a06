"""Texts and relevant answers of one or more collections, read from files."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.options import expected_without
from aptool.training.data import IndexLists, TrainingTexts


def split_texts(collection: CollectionFiles, split: str) -> Iterator[str]:
    """Every question and answer of a split, judged or not; an answer appears once per row group."""
    shared = read_answers(collection.answers) if collection.answers else None
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, shared)
        yield from pools.questions.to_pylist()
        yield from pools.answers.to_pylist()


class NumberedPairs(NamedTuple):
    """The pairs of a split's pools, by number.

    Attributes:
        questions: texts, one a pool.
        answers: the distinct texts.
        frame: question_id, answer_id, question and answer: the rows of the two in the lists above.
    """

    questions: list[str]
    answers: list[str]
    frame: pl.DataFrame


def numbered_pairs(collection: CollectionFiles, split: str) -> NumberedPairs:
    """Reads a split's pools; answers are numbered by their text."""
    shared = read_answers(collection.answers) if collection.answers else None
    questions: list[str] = []
    answers: dict[str, int] = {}
    frames = []
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, shared)
        index = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        frames.append(
            pl.DataFrame(
                {
                    "question_id": pl.Series(pools.question_ids.take(pa.array(pools.pair_question))),
                    "answer_id": pl.Series(pools.answer_ids),
                    "question": pools.pair_question + len(questions),
                    "answer": index[pools.pair_answer],
                }
            )
        )
        questions += pools.questions.to_pylist()
    return NumberedPairs(questions, list(answers), pl.concat(frames))


def read_texts(collection: CollectionFiles, split: str) -> TrainingTexts:
    """Reads a split's pools and qrels.

    Relevant answers that are in no pool of the split are ignored: their text is unknown.
    """
    questions, answers, pairs = numbered_pairs(collection, split)
    relevant = read_qrels(collection.qrels(split)).filter(pl.col("relevance") > 0)
    positive = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
    positives = IndexLists.of(positive["question"].to_numpy(), positive["answer"].to_numpy(), len(questions))
    if not len(positives.values):
        wanted = "at least one relevant answer in a pool"
        raise InputError(
            collection.qrels(split), problem=f"none for {collection.pools(split).name}", expected=wanted
        )
    whole_pools = IndexLists.of(pairs["question"].to_numpy(), pairs["answer"].to_numpy(), len(questions))
    return TrainingTexts(questions, answers, positives, whole_pools)


# Until aptool 0.2.0, FOLDER@SHARE took a share of a collection.
_WITH_SHARE = re.compile(r".+@\d*\.?\d+(?:e-?\d+)?")


def sources(collection: CollectionFiles, recipe: Recipe) -> list[CollectionFiles]:
    """The collections of a training, the first one first."""
    opened = [collection]
    for number, text in enumerate(recipe.mixture.collections):
        place = f"mixture.collections, item {number}"
        if _WITH_SHARE.fullmatch(text):
            expected = expected_without("a folder without a share")
            raise InputError(recipe.preset, place=place, value=text, expected=expected)
        further = CollectionFiles(text)
        if further.path.resolve() in [source.path.resolve() for source in opened]:
            raise InputError(recipe.preset, place=place, value=text, expected="each collection once")
        opened.append(further)
    return opened


def check_sources(collection: CollectionFiles, recipe: Recipe, split: str) -> None:
    """Checks that each collection has the training split. Raises like ``sources``."""
    for source in sources(collection, recipe):
        source.qrels(split)


def fingerprints(collection: CollectionFiles, recipe: Recipe) -> list[str]:
    """Fingerprints of the recipe's further collections. Raises like ``sources``."""
    return [source.fingerprint for source in sources(collection, recipe)[1:]]


def all_texts(collection: CollectionFiles, recipe: Recipe) -> Iterator[str]:
    """Every question and answer of every split of every collection."""
    for source in sources(collection, recipe):
        for split in source.splits:
            yield from split_texts(source, split)


def read_mixture(collection: CollectionFiles, recipe: Recipe, split: str) -> TrainingTexts:
    """The training split of every collection as one: equal answers of two collections are one answer."""
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
