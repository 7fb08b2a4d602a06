"""Leaks between splits: questions and relevant answers that an earlier split has nearly word for word.

A test question that a system has seen in training does not test the system. Texts are near copies if the
Jaccard similarity of their words is at least ``THRESHOLD``. Near copies are found by an exact join with
prefix filtering: two sets can only be that similar if they share one of their rarest elements.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from aptool.data.collection import CollectionFiles, LabelledPool
from aptool.data.trec import read_qrels, to_dicts
from aptool.text.words import unicode_words as words

THRESHOLD = 0.8


class Leak(NamedTuple):
    """The texts of a split that an earlier split has too."""

    split: str  # the split
    earlier: str  # the earlier split, such as train
    questions: int  # number of questions of ``split``
    same_questions: int  # number of these with exactly the words of a question of ``earlier``
    near_questions: int  # number of these that are near copies of one, or equal to one
    answers: int  # number of distinct relevant answers of ``split``
    same_answers: int  # number of these with exactly the words of a relevant answer of ``earlier``
    near_answers: int  # number of these that are near copies of one, or equal to one
    # Up to five pairs of near copies: question id of ``split``, question id of ``earlier``.
    examples: tuple[tuple[str, str], ...]


def find_leaks(collection: CollectionFiles) -> list[Leak]:
    """Compare each split with each earlier split."""
    texts = {split: _texts(collection, split) for split in collection.splits}
    return [
        _leak(split, texts[split], earlier, texts[earlier])
        for number, split in enumerate(collection.splits)
        for earlier in collection.splits[:number]
    ]


class _Texts(NamedTuple):
    """The texts of a split that are compared, as words."""

    ids: list[str]  # question ids
    questions: list[list[str]]  # the words of each question
    answers: list[tuple[str, ...]]  # the words of each distinct answer that is relevant to a question


def _texts(collection: CollectionFiles, split: str) -> _Texts:
    ids, questions = [], []
    answers: dict[tuple[str, ...], None] = {}
    qrels = read_qrels(collection.qrels(split)) if collection.is_labelled(split) else None
    for pool in pools_with(collection, split, qrels):
        ids.append(pool.question_id)
        questions.append(words(pool.question))
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            if pool.relevance.get(answer_id, 0) > 0:
                answers[tuple(words(text))] = None
    return _Texts(ids, questions, list(answers))


def labelled_pools(collection: CollectionFiles, split: str) -> Iterator[LabelledPool]:
    """Read the pools of a split with their texts and judgements, in the order of the file."""
    yield from pools_with(collection, split, read_qrels(collection.qrels(split)))


def pools_with(collection: CollectionFiles, split: str, qrels: pl.DataFrame | None) -> Iterator[LabelledPool]:
    """Read the pools of a split with their texts, in the order of the file; without qrels, none is judged."""
    relevance = to_dicts(qrels, "relevance") if qrels is not None else {}
    for batch in collection.batches(split):
        for pool in batch.records():
            yield LabelledPool(*pool, relevance.get(pool.question_id, {}))


def _leak(name: str, split: _Texts, earlier_name: str, earlier: _Texts) -> Leak:
    same_questions, near_questions = _copies(split.questions, earlier.questions)
    same_answers, near_answers = _copies(split.answers, earlier.answers)
    first: dict[int, int] = {}
    for i, j in near_questions:
        first.setdefault(i, j)
    return Leak(
        split=name,
        earlier=earlier_name,
        questions=len(split.questions),
        same_questions=same_questions,
        near_questions=len(first),
        answers=len(split.answers),
        same_answers=same_answers,
        near_answers=len({i for i, _ in near_answers}),
        examples=tuple((split.ids[i], earlier.ids[j]) for i, j in list(first.items())[:5]),
    )


def _copies(
    texts: Sequence[Sequence[str]], earlier: Sequence[Sequence[str]]
) -> tuple[int, list[tuple[int, int]]]:
    """Count the texts that are among the earlier texts, and list all pairs of near copies."""
    earlier_texts = {tuple(text) for text in earlier}
    same = sum(tuple(text) in earlier_texts for text in texts)
    sets = encode([*texts, *earlier], 1)
    return same, near_pairs(sets[: len(texts)], sets[len(texts) :], THRESHOLD)


def encode(texts: Sequence[Sequence[str]], width: int) -> list[np.ndarray]:
    """Encode each text as the sorted set of its runs of ``width`` words; rarer runs have lower numbers.

    A text shorter than ``width`` is one run. Numbers are comparable within one call only.
    """
    vocabulary: dict[str, int] = {"": 0}
    token_ids = []
    for text in texts:
        ids = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in text], dtype=np.int64)
        if 0 < len(ids) < width:
            ids = np.pad(ids, (0, width - len(ids)))
        token_ids.append(ids)
    if len(vocabulary) ** width >= 2**63:
        raise ValueError(f"{len(vocabulary)} distinct words in runs of {width} do not fit 64 bits")
    sets = []
    for ids in token_ids:
        count = max(len(ids) - width + 1, 0)
        codes = np.zeros(count, dtype=np.int64)
        for offset in range(width):
            codes = codes * len(vocabulary) + ids[offset : offset + count]
        sets.append(np.unique(codes))
    codes, frequency = np.unique(np.concatenate([np.empty(0, np.int64), *sets]), return_counts=True)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(len(codes))
    return [np.sort(rank[np.searchsorted(codes, members)]) for members in sets]


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """The Jaccard similarity of two encoded texts; 0 if both are empty."""
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / max(len(a) + len(b) - shared, 1)


def near_pairs(
    left: Sequence[np.ndarray], right: Sequence[np.ndarray], threshold: float
) -> list[tuple[int, int]]:
    """All (i, j) with ``jaccard(left[i], right[j]) >= threshold``, sorted; both sides from one `encode`."""
    shared = _prefixes(left, threshold).join(_prefixes(right, threshold), on="element", suffix="_right")
    size, size_right = pl.col("size"), pl.col("size_right")
    similar_size = (size >= threshold * size_right) & (size_right >= threshold * size)
    candidates = shared.filter(similar_size).select("text", "text_right").unique().sort("text", "text_right")
    members = [set(ids.tolist()) for ids in right]
    pairs = []
    last, current = -1, set[int]()
    for i, j in candidates.iter_rows():
        if i != last:
            last, current = i, set(left[i].tolist())
        common = len(current & members[j])
        if common >= threshold * (len(current) + len(members[j]) - common):
            pairs.append((i, j))
    return pairs


def _prefixes(sets: Sequence[np.ndarray], threshold: float) -> pl.DataFrame:
    """The rarest elements of each set, of which two similar sets share at least one."""
    sizes = np.array([len(members) for members in sets], dtype=np.int64)
    # The small subtrahend keeps a product such as 0.7 * 10 from being rounded up past its true value.
    lengths = [size - math.ceil(threshold * size - 1e-9) + 1 if size else 0 for size in sizes.tolist()]
    prefixes = [members[:length] for members, length in zip(sets, lengths, strict=True)]
    return pl.DataFrame(
        {
            "element": np.concatenate([np.empty(0, np.int64), *prefixes]),
            "text": np.repeat(np.arange(len(sets)), lengths),
            "size": np.repeat(sizes, lengths),
        }
    )
