"""Leaks between splits: questions and relevant answers of one that stand, nearly word for word, in another.

A system that has seen a test question in training is not tested by it. Near copies have a Jaccard similarity
of their words of at least ``THRESHOLD``; the join is exact (see `datasets.near_copies`).
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from aptool.formats.collection import CollectionFiles, LabelledPool
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.text.bm25 import words


def encode(texts: Sequence[Sequence[str]], width: int) -> list[np.ndarray]:
    """Each text as the sorted set of its runs of ``width`` words, as numbers; the rarest run is the least.

    A text shorter than ``width`` is one run. Numbers compare within one call only.
    """
    vocabulary: dict[str, int] = {"": 0}
    runs = []
    for text in texts:
        ids = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in text], dtype=np.int64)
        if 0 < len(ids) < width:
            ids = np.pad(ids, (0, width - len(ids)))
        runs.append(ids)
    if len(vocabulary) ** width >= 2**63:
        raise ValueError(f"{len(vocabulary)} distinct words in runs of {width} do not fit 64 bits")
    sets = []
    for ids in runs:
        count = max(len(ids) - width + 1, 0)
        codes = np.zeros(count, dtype=np.int64)
        for place in range(width):
            codes = codes * len(vocabulary) + ids[place : place + count]
        sets.append(np.unique(codes))
    codes, frequency = np.unique(np.concatenate([np.empty(0, np.int64), *sets]), return_counts=True)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(len(codes))
    return [np.sort(rank[np.searchsorted(codes, one)]) for one in sets]


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Size of the intersection over size of the union of two encoded sets; 0 if both are empty."""
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / max(len(a) + len(b) - shared, 1)


def near_pairs(
    left: Sequence[np.ndarray], right: Sequence[np.ndarray], threshold: float
) -> list[tuple[int, int]]:
    """All (i, j) with ``jaccard(left[i], right[j]) >= threshold``, sorted; both sides from one ``encode``."""
    shared = _prefixes(left, threshold).join(_prefixes(right, threshold), on="element", suffix="_right")
    within = (pl.col("size") >= threshold * pl.col("size_right")) & (
        pl.col("size_right") >= threshold * pl.col("size")
    )
    candidates = shared.filter(within).select("text", "text_right").unique().sort("text", "text_right")
    members = [set(one.tolist()) for one in right]
    found = []
    last, current = -1, set[int]()
    for i, j in candidates.iter_rows():
        if i != last:
            last, current = i, set(left[i].tolist())
        both = len(current & members[j])
        if both >= threshold * (len(current) + len(members[j]) - both):
            found.append((i, j))
    return found


def _prefixes(sets: Sequence[np.ndarray], threshold: float) -> pl.DataFrame:
    sizes = np.array([len(one) for one in sets], dtype=np.int64)
    # The small subtrahend keeps a product such as 0.7 * 10 from being rounded up past its true value.
    lengths = [size - math.ceil(threshold * size - 1e-9) + 1 if size else 0 for size in sizes.tolist()]
    parts = [one[:length] for one, length in zip(sets, lengths, strict=True)]
    return pl.DataFrame(
        {
            "element": np.concatenate([np.empty(0, np.int64), *parts]),
            "text": np.repeat(np.arange(len(sets)), lengths),
            "size": np.repeat(sizes, lengths),
        }
    )


THRESHOLD = 0.8


class Leak(NamedTuple):
    """What of a split stands in an earlier one.

    Attributes:
        split: the split that is looked at.
        earlier: the split that comes before it, such as train.
        questions: questions of ``split``.
        same_questions: of these, how many stand there with the same words.
        near_questions: how many have a near copy there, the same ones included.
        answers: distinct relevant answers of ``split``.
        same_answers: of these, how many are relevant answers there with the same words.
        near_answers: how many have a near copy among them, the same ones included.
        examples: up to five pairs of question ids, (of ``split``, of ``earlier``), near copies of each other.
    """

    split: str
    earlier: str
    questions: int
    same_questions: int
    near_questions: int
    answers: int
    same_answers: int
    near_answers: int
    examples: tuple[tuple[str, str], ...]


def find_leaks(collection: CollectionFiles, split: str | None = None) -> list[Leak]:
    """Compares every split, or one, with each one that comes before it.

    Raises:
        InputError: a file of the collection cannot be read, or it has no such split.
    """
    wanted = [split] if split is not None else collection.splits
    texts: dict[str, _Texts] = {}
    found = []
    for name in wanted:
        collection.pools(name)  # the error that lists the splits
        before = collection.splits[: collection.splits.index(name)]
        for one in (*before, name):
            texts[one] = texts[one] if one in texts else _texts(collection, one)
        found += [_leak(name, texts[name], earlier, texts[earlier]) for earlier in before]
    return found


def labelled_pools(collection: CollectionFiles, split: str) -> Iterator[LabelledPool]:
    """The pools of a split with their texts and judgements, in the order of the file.

    Raises:
        InputError: a file cannot be read, or the split has no labels.
    """
    yield from _read_pools(collection, split, read_qrels(collection.qrels(split)))


def _read_pools(
    collection: CollectionFiles, split: str, judgements: pl.DataFrame | None
) -> Iterator[LabelledPool]:
    shared = read_answers(collection.answers) if collection.answers else None
    qrels = judgements.partition_by("question_id", as_dict=True) if judgements is not None else {}
    nothing: dict[str, int] = {}
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, shared)
        texts, answer_ids = pools.answers.to_pylist(), pools.answer_ids.to_pylist()
        for number, question in enumerate(pools.question_ids.to_pylist()):
            begin, end = int(pools.offsets[number]), int(pools.offsets[number + 1])
            judged = qrels.get((question,))
            yield LabelledPool(
                question,
                pools.questions[number].as_py(),
                answer_ids[begin:end],
                [texts[row] for row in pools.pair_answer[begin:end].tolist()],
                _relevance(judged) if judged is not None else nothing,
            )


def _relevance(judged: pl.DataFrame) -> dict[str, int]:
    return dict(zip(judged["answer_id"].to_list(), judged["relevance"].to_list(), strict=True))


class _Texts(NamedTuple):
    """What of a split is compared, as words.

    Attributes:
        ids: of the questions.
        questions: their texts.
        answers: the distinct texts that are relevant to a question.
    """

    ids: list[str]
    questions: list[list[str]]
    answers: list[tuple[str, ...]]


def _texts(collection: CollectionFiles, split: str) -> _Texts:
    ids, questions = [], []
    answers: dict[tuple[str, ...], None] = {}
    judgements = read_qrels(collection.qrels(split)) if collection.is_labelled(split) else None
    for pool in _read_pools(collection, split, judgements):
        ids.append(pool.question_id)
        questions.append(words(pool.question))
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            if pool.relevance.get(answer_id, 0) > 0:
                answers[tuple(words(text))] = None
    return _Texts(ids, questions, list(answers))


def _leak(name: str, own: _Texts, earlier: str, before: _Texts) -> Leak:
    same_questions, near_questions = _copies(own.questions, before.questions)
    same_answers, near_answers = _copies(own.answers, before.answers)
    first: dict[int, int] = {}
    for i, j in near_questions:
        first.setdefault(i, j)
    return Leak(
        split=name,
        earlier=earlier,
        questions=len(own.questions),
        same_questions=same_questions,
        near_questions=len(first),
        answers=len(own.answers),
        same_answers=same_answers,
        near_answers=len({i for i, _ in near_answers}),
        examples=tuple((own.ids[i], before.ids[j]) for i, j in list(first.items())[:5]),
    )


def _copies(
    texts: Sequence[Sequence[str]], known: Sequence[Sequence[str]]
) -> tuple[int, list[tuple[int, int]]]:
    """How many texts stand among the known ones with the same words, and all pairs of near copies."""
    there = {tuple(text) for text in known}
    same = sum(tuple(text) in there for text in texts)
    sets = encode([*texts, *known], 1)
    return same, near_pairs(sets[: len(texts)], sets[len(texts) :], THRESHOLD)
