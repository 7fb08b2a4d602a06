"""Pairs of a question and a candidate, as rows of a file have them, and the pools that they form.

An importer reads its format into `Pair`s. `pools_of` groups them by question and checks what a collection
requires, so that an error names the line.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aptool.datasets.policies import CONFLICTS_HINT, EMPTY_DROPPED, EMPTY_HINT, Conflicts, Empty
from aptool.errors import InputError
from aptool.formats.collection import LabelledPool
from aptool.formats.ids import check_answer_id, check_question_id
from aptool.formats.location import PathOrUrl

_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")


class Pair(NamedTuple):
    """One question with one candidate, as a row of a file has it.

    Attributes:
        place: number of the row or line, for messages.
        question_id: the same for all pairs of a question.
        question: its text, the same in all of them.
        answer_id: id of the candidate; None: made from its position in the pool.
        answer: its text; None: the question has no candidate.
        relevance: its judgement.
        candidate: number of the candidate in an object that holds a whole pool, for messages.
    """

    place: int
    question_id: str
    question: str
    answer_id: str | None
    answer: str | None
    relevance: int
    candidate: int | None = None

    def where(self, unit: str) -> str:
        """The pair's place in its file, for messages."""
        place = f"{unit} {self.place}"
        return place if self.candidate is None else f"{place}, candidate {self.candidate}"


class Columns(NamedTuple):
    """The names of the parts of a pair in a format, for messages."""

    question_id: str = "question_id"
    question: str = "question"
    answer_id: str = "answer_id"
    answer: str = "answer"
    label: str = "label"


class _Pool:
    """A pool under construction."""

    def __init__(self, pair: Pair) -> None:
        self.place = pair.place
        self.question = pair.question
        self.answer_ids: list[str] = []
        self.texts: list[str] = []
        self.places: list[int] = []
        self.rows: dict[str, int] = {}  # answer id -> where in the lists it came first
        self.relevance: dict[str, int] = {}


def pools_of(
    path: PathOrUrl,
    pairs: Iterable[Pair],
    columns: Columns,
    *,
    unit: str = "line",
    empty: Empty = "refuse",
    conflicts: Conflicts | None = None,
    counts: Counter[str] | None = None,
) -> Iterator[LabelledPool]:
    """Groups pairs by question id, in the order in which the questions first appear.

    Memory holds the file's text: the pairs of a question need not be adjacent.

    Args:
        path: where the pairs come from, for messages.
        pairs: the rows.
        columns: the names of their parts, for messages.
        unit: what a place counts: ``line`` or ``row``.
        empty: what becomes of a candidate without text.
        conflicts: what becomes of a pair with different labels; None refuses it, and the importer has no
            option for it.
        counts: receives the number of rows that a policy touched; None: the importer has no option ``empty``.

    Raises:
        InputError: there is no pair, an id or a text is not valid, or two rows contradict each other.
    """
    pools: dict[str, _Pool] = {}
    for pair in pairs:
        place = pair.where(unit)
        pool = pools.get(pair.question_id)
        if pool is None:
            check_question_id(path, place, pair.question_id, columns.question_id)
            check_text(path, place, columns.question, pair.question)
            pool = pools[pair.question_id] = _Pool(pair)
        elif pool.question != pair.question:
            expected = f"the text that question {pair.question_id!r} has in {unit} {pool.place}"
            raise InputError(
                path, place=place, column=columns.question, value=pair.question, expected=expected
            )
        if pair.answer is None:
            continue
        if not pair.answer.strip() and empty != "keep":
            if empty == "refuse":
                expected = "a text" if counts is None else f"a text ({EMPTY_HINT})"
                raise InputError(
                    path, place=place, column=columns.answer, value=pair.answer, expected=expected
                )
            if counts is not None:
                counts[EMPTY_DROPPED] += 1
            continue
        _check_characters(path, place, columns.answer, pair.answer)
        _add(path, unit, place, pool, pair, pair.answer, columns, conflicts)
    if not pools:
        raise InputError(path, problem=f"no {unit}", expected="at least one question with a candidate")
    for question_id in list(pools):
        pool = pools.pop(question_id)
        yield LabelledPool(question_id, pool.question, pool.answer_ids, pool.texts, pool.relevance)


def _add(
    path: PathOrUrl,
    unit: str,
    place: str,
    pool: _Pool,
    pair: Pair,
    answer: str,
    columns: Columns,
    conflicts: Conflicts | None,
) -> None:
    if pair.answer_id is None:
        answer_id = f"{pair.question_id}-{len(pool.answer_ids)}"
    else:
        answer_id = pair.answer_id
        check_answer_id(path, place, answer_id, columns.answer_id)
    relevance = pair.relevance
    first = pool.rows.setdefault(answer_id, len(pool.answer_ids))
    if first < len(pool.answer_ids):
        earlier = f"that candidate {answer_id!r} of this question has in {unit} {pool.places[first]}"
        if pool.texts[first] != answer:
            expected = f"the text {earlier}"
            raise InputError(path, place=place, column=columns.answer, value=answer, expected=expected)
        before = pool.relevance[answer_id]
        if before != relevance:
            if conflicts is None or conflicts.resolution == "error":
                expected = f"the label {before} {earlier}"
                expected += f" ({CONFLICTS_HINT})" if conflicts is not None else ""
                raise InputError(path, place=place, column=columns.label, value=relevance, expected=expected)
            relevance = conflicts.resolve(pair.question_id, answer_id, before, relevance)
    pool.answer_ids.append(answer_id)
    pool.texts.append(answer)
    pool.places.append(pair.place)
    pool.relevance[answer_id] = relevance


def check_text(path: PathOrUrl, place: str, column: str, value: str, *, empty: bool = False) -> None:
    """Checks a text.

    Raises:
        InputError: it is blank and ``empty`` is False, or it has a NUL character or a lone surrogate.
    """
    if not empty and not value.strip():
        raise InputError(path, place=place, column=column, value=value, expected="a text")
    _check_characters(path, place, column, value)


def _check_characters(path: PathOrUrl, place: str, column: str, value: str) -> None:
    if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        expected = "a text without NUL characters and lone surrogates"
        raise InputError(path, place=place, column=column, value=value, expected=expected)


def parse_label(path: PathOrUrl, place: str, column: str, value: str, *, graded: bool = False) -> int:
    """A relevance label: 0 or 1, or where ``graded`` any whole number of at most nine digits.

    Raises:
        InputError: it is not.
    """
    if value in ("0", "1") or (graded and _INTEGER.fullmatch(value)):
        return int(value)
    expected = "a whole number: 0 not relevant, 1 or more relevant" if graded else "0 or 1"
    raise InputError(path, place=place, column=column, value=value, expected=expected)
