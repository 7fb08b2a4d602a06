"""Leaks between splits: questions and relevant answers that an earlier split has nearly word for word.

A test question that a system has seen in training does not test the system.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aptool.data.collection import Collection
from aptool.data.near_copies import THRESHOLD, encode, near_pairs
from aptool.data.trec import read_qrels, to_dicts
from aptool.data.writing import LabelledPool
from aptool.text.words import unicode_words as words


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


def find_leaks(collection: Collection) -> list[Leak]:
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


def _texts(collection: Collection, split: str) -> _Texts:
    ids, questions = [], []
    answers: dict[tuple[str, ...], None] = {}
    for pool in labelled_pools(collection, split):
        ids.append(pool.question_id)
        questions.append(words(pool.question))
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            if pool.relevance.get(answer_id, 0) > 0:
                answers[tuple(words(text))] = None
    return _Texts(ids, questions, list(answers))


def labelled_pools(collection: Collection, split: str) -> Iterator[LabelledPool]:
    """Read the pools of a split with their texts and judgements, in the order of the file."""
    relevance = to_dicts(read_qrels(collection.qrels_file(split)), "relevance")
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
