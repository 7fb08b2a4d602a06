"""Training data: the questions of a split, their pools and their positive answers, as token ids.

Answers are identified by their text. Two ids with the same text are one answer here, so the text of a
positive answer is never sampled as a negative under another id.
"""

from dataclasses import dataclass

import numpy as np

from aptool.config import TextOptions
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
