"""Training data: the questions of a split, their pools and their positive answers, as token ids.

Answers are identified by their text. Two ids with the same text are one answer here, so the text of a
positive answer is never sampled as a negative under another id.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.config import Recipe, TextOptions
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.options import expected_without
from aptool.scoring.encoded import rows_of
from aptool.text.tokenizer import TextTokenizer, Tokens
from aptool.training.losses import Teacher


@dataclass(frozen=True)
class IndexLists:
    """Concatenated lists of indices: the i-th is ``values[offsets[i] : offsets[i + 1]]``, ascending."""

    values: np.ndarray  # (total,) int64
    offsets: np.ndarray  # (n + 1,) int64

    @classmethod
    def of(cls, owner: np.ndarray, values: np.ndarray, lists: int) -> "IndexLists":
        """Puts ``values[i]`` into list ``owner[i]``, without duplicates."""
        span = int(values.max(initial=0)) + 1
        keys = np.sort(owner.astype(np.int64) * span + values)
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]]
        return cls(keys % span, np.searchsorted(keys, np.arange(lists + 1) * span))

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: the length of each list."""
        return np.diff(self.offsets)

    def contain(self, lists: np.ndarray, values: np.ndarray) -> np.ndarray:
        """(n, k) bool: whether each of (n,) lists contains each of (k,) values."""
        distinct, column = np.unique(values, return_inverse=True)
        lengths = self.lengths[lists]
        owner = np.repeat(np.arange(len(lists)), lengths)
        members = self.values[rows_of(self.offsets[lists], lengths)]
        place = np.searchsorted(distinct, members)
        place[place == len(distinct)] = 0
        there = distinct[place] == members
        found = np.zeros((len(lists), len(distinct)), dtype=bool)
        found[owner[there], place[there]] = True
        return found[:, column]


@dataclass(frozen=True)
class TrainingTexts:
    """A split before tokenization.

    Attributes:
        questions: one a pool.
        answers: the distinct ones.
        positives: the relevant answers of each question's pool.
        pools: all answers of each question's pool.
    """

    questions: list[str]
    answers: list[str]
    positives: IndexLists
    pools: IndexLists

    def all(self) -> list[str]:
        """Questions and distinct answers, from which a vocabulary is learned."""
        return self.questions + self.answers


@dataclass(frozen=True)
class TrainingSet:
    """A split as token ids.

    Attributes:
        questions: one a pool.
        answers: the distinct ones.
        positives: the relevant answers of each question's pool.
        pool_negatives: the other answers of each question's pool.
        teacher: scores to learn beside the labels; None without a teacher.
    """

    questions: Tokens
    answers: Tokens
    positives: IndexLists
    pool_negatives: IndexLists
    teacher: Teacher | None = None

    @property
    def pairs(self) -> np.ndarray:
        """(pairs, 2) int64: each question with each of its positive answers."""
        owner = np.repeat(np.arange(len(self.questions)), self.positives.lengths)
        return np.stack([owner, self.positives.values], axis=1)


def tokenize(
    texts: TrainingTexts, tokenizer: TextTokenizer, options: TextOptions, teacher: Teacher | None = None
) -> TrainingSet:
    """Encodes the texts, truncated at the recipe's limits."""
    return TrainingSet(
        questions=tokenizer.encode(texts.questions, options.max_question_tokens, "question"),
        answers=tokenizer.encode(texts.answers, options.max_answer_tokens),
        positives=texts.positives,
        pool_negatives=_without(texts.pools, texts.positives, len(texts.answers)),
        teacher=teacher,
    )


def _without(lists: IndexLists, excluded: IndexLists, values: int) -> IndexLists:
    """Each list without the members of the corresponding list of ``excluded``."""

    def keys(which: IndexLists) -> np.ndarray:
        return np.repeat(np.arange(len(which.lengths)), which.lengths) * values + which.values

    kept = np.setdiff1d(keys(lists), keys(excluded), assume_unique=True)
    return IndexLists.of(kept // values, kept % values, len(lists.lengths))


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
