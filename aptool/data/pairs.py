"""Pairs of a question and a candidate, and the pools that they form.

An importer reads its format into `Pair`s. `pools_of` groups the pairs by question and checks what a
collection requires, so that an error names the position in the file.
"""

import json
import math
import numbers
import re
import unicodedata
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from aptool.data.collection import LabelledPool
from aptool.data.ids import check_answer_id, check_question_id
from aptool.errors import InputError
from aptool.paths import PathOrUrl

EMPTY_DROPPED = "empty_candidates_dropped"
SPELLINGS_JOINED = "other_spellings_of_a_question_joined"  # see `comparable`

# A label with grades, and its description in errors.
INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
GRADE = "a whole number: 0 not relevant, 1 or more relevant"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_BOOLEANS = {"true": "1", "false": "0"}


class Pair(NamedTuple):
    """One question with one candidate."""

    position: str  # position in the file, such as ``line 3``, for messages
    question_id: str  # the same for all pairs of a question
    question: str  # the question's text, the same for all pairs of a question
    answer_id: str | None  # id of the candidate; None: made from its position in the pool
    answer: str  # the candidate's text
    relevance: int  # the label; 0 is not relevant


class Columns(NamedTuple):
    """The names of a pair's parts in a file, for messages."""

    question_id: str = "question_id"
    question: str = "question"
    answer_id: str = "answer_id"
    answer: str = "answer"
    label: str = "label"


class _Pool:
    """A pool under construction."""

    def __init__(self, pair: Pair) -> None:
        self.position = pair.position
        self.question = pair.question
        self.answer_ids: list[str] = []
        self.texts: list[str] = []
        self.positions: list[str] = []
        self.rows: dict[str, int] = {}  # answer id -> its first index in the lists
        self.relevance: dict[str, int] = {}
        self.empty_dropped = 0


def pools_of(
    path: PathOrUrl,
    pairs: Iterable[Pair],
    columns: Columns,
    *,
    drop_empty: bool = False,
) -> Iterator[LabelledPool]:
    """Group pairs into pools, in the order in which questions first appear.

    The pairs of a question need not be adjacent, so memory holds the text of the whole file.
    Candidates without text are kept, or dropped and counted.
    """
    pools: dict[str, _Pool] = {}
    for pair in pairs:
        position = pair.position
        pool = pools.get(pair.question_id)
        if pool is None:
            check_question_id(path, position, pair.question_id, columns.question_id)
            check_text(path, position, columns.question, pair.question)
            pool = pools[pair.question_id] = _Pool(pair)
        elif pool.question != pair.question:
            expected = f"the text that question {pair.question_id!r} has in {pool.position}"
            raise InputError(
                path, position=position, column=columns.question, value=pair.question, expected=expected
            )
        if drop_empty and not pair.answer.strip():
            pool.empty_dropped += 1
            continue
        check_text(path, position, columns.answer, pair.answer, empty=True)
        _add_candidate(path, pool, pair, columns)
    if not pools:
        raise InputError(path, problem="no row", expected="at least one question with a candidate")
    for question_id in list(pools):
        pool = pools.pop(question_id)
        yield LabelledPool(
            question_id, pool.question, pool.answer_ids, pool.texts, pool.relevance, pool.empty_dropped
        )


def _add_candidate(path: PathOrUrl, pool: _Pool, pair: Pair, columns: Columns) -> None:
    if pair.answer_id is None:
        answer_id = f"{pair.question_id}-{len(pool.answer_ids)}"
    else:
        answer_id = pair.answer_id
        check_answer_id(path, pair.position, answer_id, columns.answer_id)
    first = pool.rows.setdefault(answer_id, len(pool.answer_ids))
    if first < len(pool.answer_ids):
        earlier = f"that candidate {answer_id!r} of this question has in {pool.positions[first]}"
        if pool.texts[first] != pair.answer:
            expected = f"the text {earlier}"
            raise InputError(
                path, position=pair.position, column=columns.answer, value=pair.answer, expected=expected
            )
        if (before := pool.relevance[answer_id]) != pair.relevance:
            expected = f"the label {before} {earlier}"
            raise InputError(
                path, position=pair.position, column=columns.label, value=pair.relevance, expected=expected
            )
    pool.answer_ids.append(answer_id)
    pool.texts.append(pair.answer)
    pool.positions.append(pair.position)
    pool.relevance[answer_id] = pair.relevance


def check_text(path: PathOrUrl, position: str, column: str, value: str, *, empty: bool = False) -> None:
    """Check that a text has no NUL character or lone surrogate, and is not blank unless ``empty``."""
    if not empty and not value.strip():
        raise InputError(path, position=position, column=column, value=value, expected="a text")
    if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        expected = "a text without NUL characters and lone surrogates"
        raise InputError(path, position=position, column=column, value=value, expected=expected)


def label_text(value: Any) -> str:
    """A label as text, equal for all sources: ``1`` for 1, 1.0, "1.0", b"1" and true; ``null`` for none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    elif hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if not isinstance(value, str):
        value = str(value) if isinstance(value, Decimal) else json.dumps(value, default=repr)
    text = value.strip()
    if _NUMBER.fullmatch(text) and math.isfinite(number := float(text)) and number.is_integer():
        whole = str(int(number))
        return whole if INTEGER.fullmatch(whole) else text
    return _BOOLEANS.get(text.casefold(), text)


def comparable(text: str) -> str:
    """A text such that texts that look the same are equal: NFC, single blanks, no invisible characters."""
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFC", text))
    return " ".join(text.split())


def id_text(path: PathOrUrl, position: str, column: str, value: object) -> str:
    """An id as text; other values than texts and whole numbers are refused."""
    if isinstance(value, str | numbers.Integral) and not isinstance(value, bool):
        return str(value)
    expected = "a text or a whole number"
    if isinstance(value, float | Decimal) and value == value // 1:
        expected += f"; convert the column to integers or texts, such as {int(value)}"
    raise InputError(path, position=position, column=column, value=value, expected=expected)


def parse_label(path: PathOrUrl, position: str, column: str, value: object, *, graded: bool = False) -> int:
    """Parse a relevance label: 0 or 1, or if ``graded`` a whole number of at most nine digits."""
    text = label_text(value)
    if text in ("0", "1") or (graded and INTEGER.fullmatch(text)):
        return int(text)
    expected = GRADE if graded else "0 or 1"
    raise InputError(path, position=position, column=column, value=value, expected=expected)
