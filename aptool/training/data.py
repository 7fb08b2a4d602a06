"""What training reads: the questions of a split, their pools and their positive answers, as token ids.

Answers are told apart by their text. Two ids with one text are one answer here, so the text of a positive
answer can never come up as a negative under another id.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.config import TextOptions
from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.text.tokenizer import TextTokenizer, Tokens


@dataclass(frozen=True)
class Lists:
    """Lists of indices, end to end: the i-th is ``values[offsets[i] : offsets[i + 1]]``, ascending."""

    values: np.ndarray  # (total,) int64
    offsets: np.ndarray  # (n + 1,) int64

    @classmethod
    def of(cls, owner: np.ndarray, values: np.ndarray, lists: int) -> "Lists":
        """Gathers ``values[i]`` into list ``owner[i]``; what comes twice is kept once."""
        span = int(values.max(initial=0)) + 1
        keys = np.sort(owner.astype(np.int64) * span + values)
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]]
        return cls(keys % span, np.searchsorted(keys, np.arange(lists + 1) * span))

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: the size of each list."""
        return np.diff(self.offsets)

    def contain(self, lists: np.ndarray, values: np.ndarray) -> np.ndarray:
        """(n, k) bool: whether each of (n,) lists has each of (k,) values."""
        found = np.zeros((len(lists), len(values)), dtype=bool)
        for row, number in enumerate(lists):
            found[row] = np.isin(values, self.values[self.offsets[number] : self.offsets[number + 1]])
        return found


@dataclass(frozen=True)
class Texts:
    """A split as texts: distinct questions and answers, before tokenisation."""

    questions: list[str]
    answers: list[str]
    positives: Lists  # per question, into answers: those that the qrels call relevant
    pools: Lists  # per question, into answers: the whole pool

    def all(self) -> list[str]:
        """Every text once: what a vocabulary is learned from."""
        return self.questions + self.answers


@dataclass(frozen=True)
class TrainingSet:
    """A split as token ids, with what negatives may be drawn from."""

    questions: Tokens
    answers: Tokens
    positives: Lists
    pool_negatives: Lists

    @property
    def pairs(self) -> np.ndarray:
        """(pairs, 2) int64: every question with each of its positive answers."""
        owner = np.repeat(np.arange(len(self.questions)), self.positives.lengths)
        return np.stack([owner, self.positives.values], axis=1)


def split_texts(collection: Collection, split: str) -> Iterator[str]:
    """Every question and answer of a split, judged or not; an answer comes once in each row group.

    Raises:
        InputError: a file is not what it should be.
    """
    shared = read_answers(collection.answers) if collection.answers else None
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, shared)
        yield from pools.questions.to_pylist()
        yield from pools.answers.to_pylist()


def read_texts(collection: Collection, split: str) -> Texts:
    """Reads a split's pools and qrels.

    Relevant answers that stand in no pool of the split are left out: their text is not at hand.

    Raises:
        InputError: a file is not what it should be, or no question has a relevant answer in a pool.
    """
    shared = read_answers(collection.answers) if collection.answers else None
    questions: list[str] = []
    answers: dict[str, int] = {}
    frames = []
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, shared)
        known = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        frames.append(
            pl.DataFrame(
                {
                    "question_id": pl.Series(pools.question_ids.take(pa.array(pools.pair_question))),
                    "answer_id": pl.Series(pools.answer_ids),
                    "question": pools.pair_question + len(questions),
                    "answer": known[pools.pair_answer],
                }
            )
        )
        questions += pools.questions.to_pylist()
    pairs = pl.concat(frames)
    relevant = read_qrels(collection.qrels(split)).filter(pl.col("relevance") > 0)
    gold = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
    positives = Lists.of(gold["question"].to_numpy(), gold["answer"].to_numpy(), len(questions))
    if not len(positives.values):
        wanted = "at least one relevant answer in a pool"
        raise InputError(
            collection.qrels(split), problem=f"none for {collection.pools(split).name}", expected=wanted
        )
    every = Lists.of(pairs["question"].to_numpy(), pairs["answer"].to_numpy(), len(questions))
    return Texts(questions, list(answers), positives, every)


def tokenized(texts: Texts, tokenizer: TextTokenizer, options: TextOptions) -> TrainingSet:
    """The split as the model will see it."""
    return TrainingSet(
        questions=tokenizer.encode(texts.questions, options.max_question_tokens),
        answers=tokenizer.encode(texts.answers, options.max_answer_tokens),
        positives=texts.positives,
        pool_negatives=_without(texts.pools, texts.positives, len(texts.answers)),
    )


def _without(lists: Lists, taken: Lists, values: int) -> Lists:
    """Each list without the members of the list of the same number in ``taken``."""

    def keys(which: Lists) -> np.ndarray:
        return np.repeat(np.arange(len(which.lengths)), which.lengths) * values + which.values

    left = np.setdiff1d(keys(lists), keys(taken), assume_unique=True)
    return Lists.of(left // values, left % values, len(lists.lengths))
