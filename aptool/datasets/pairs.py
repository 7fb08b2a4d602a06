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
from html.parser import HTMLParser
from typing import Any, Literal, NamedTuple, TypeAlias

from typing_extensions import override

from aptool.errors import InputError
from aptool.formats.collection import LabelledPool
from aptool.formats.ids import check_answer_id, check_question_id
from aptool.formats.location import PathOrUrl

Resolution: TypeAlias = Literal["error", "max", "min"]
Empty: TypeAlias = Literal["drop", "keep", "refuse"]

CONFLICTS_HINT = "--conflicts max or --conflicts min keeps one label"
EMPTY_HINT = "--empty drop leaves such candidates out, --empty keep imports them"
EMPTY_DROPPED = "empty_candidates_dropped"
SPELLINGS_JOINED = "other_spellings_of_a_question_joined"  # see `comparable`

# A label with grades, and its description in errors.
INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
GRADE = "a whole number: 0 not relevant, 1 or more relevant"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_BOOLEANS = {"true": "1", "false": "0"}

# Elements of HTML whose text is hidden, and elements that separate no words.
_HIDDEN = frozenset({"head", "script", "style", "template"})
_INLINE = frozenset(
    {"a", "b", "cite", "code", "em", "font", "i", "mark", "q", "s", "small", "span", "strong", "u"}
)


class Pair(NamedTuple):
    """One question with one candidate."""

    position: str  # position in the file, such as ``line 3``, for messages
    question_id: str  # the same for all pairs of a question
    question: str  # the question's text, the same for all pairs of a question
    answer_id: str | None  # id of the candidate; None: made from its position in the pool
    answer: str | None  # the candidate's text; None: the question has no candidate
    relevance: int  # the label; 0 is not relevant


class Columns(NamedTuple):
    """The names of a pair's parts in a file, for messages."""

    question_id: str = "question_id"
    question: str = "question"
    answer_id: str = "answer_id"
    answer: str = "answer"
    label: str = "label"


class Conflicts:
    """Resolves and counts pairs that have different labels in different rows."""

    def __init__(self, resolution: Resolution = "error") -> None:
        self.resolution = resolution
        self._pairs: set[tuple[str, str]] = set()

    @property
    def count(self) -> int:
        """Number of resolved pairs."""
        return len(self._pairs)

    def resolve(self, question_id: str, answer_id: str, first: int, second: int) -> int:
        """Choose one of two labels of a pair."""
        self._pairs.add((question_id, answer_id))
        return max(first, second) if self.resolution == "max" else min(first, second)


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
    empty: Empty = "refuse",
    conflicts: Conflicts | None = None,
) -> Iterator[LabelledPool]:
    """Group pairs into pools, in the order in which questions first appear.

    The pairs of a question need not be adjacent, so memory holds the text of the whole file. Without
    ``conflicts``, pairs with different labels are refused, and errors name no option.
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
        answer = pair.answer
        if answer is None:
            continue
        if not answer.strip() and empty != "keep":
            if empty == "refuse":
                expected = "a text" if conflicts is None else f"a text ({EMPTY_HINT})"
                raise InputError(
                    path, position=position, column=columns.answer, value=answer, expected=expected
                )
            pool.empty_dropped += 1
            continue
        check_text(path, position, columns.answer, answer, empty=True)
        _add_candidate(path, pool, pair, answer, columns, conflicts)
    if not pools:
        raise InputError(path, problem="no row", expected="at least one question with a candidate")
    for question_id in list(pools):
        pool = pools.pop(question_id)
        yield LabelledPool(
            question_id, pool.question, pool.answer_ids, pool.texts, pool.relevance, pool.empty_dropped
        )


def _add_candidate(
    path: PathOrUrl, pool: _Pool, pair: Pair, answer: str, columns: Columns, conflicts: Conflicts | None
) -> None:
    if pair.answer_id is None:
        answer_id = f"{pair.question_id}-{len(pool.answer_ids)}"
    else:
        answer_id = pair.answer_id
        check_answer_id(path, pair.position, answer_id, columns.answer_id)
    relevance = pair.relevance
    first = pool.rows.setdefault(answer_id, len(pool.answer_ids))
    if first < len(pool.answer_ids):
        earlier = f"that candidate {answer_id!r} of this question has in {pool.positions[first]}"
        if pool.texts[first] != answer:
            expected = f"the text {earlier}"
            raise InputError(
                path, position=pair.position, column=columns.answer, value=answer, expected=expected
            )
        before = pool.relevance[answer_id]
        if before != relevance:
            if conflicts is None or conflicts.resolution == "error":
                expected = f"the label {before} {earlier}"
                expected += f" ({CONFLICTS_HINT})" if conflicts is not None else ""
                raise InputError(
                    path, position=pair.position, column=columns.label, value=relevance, expected=expected
                )
            relevance = conflicts.resolve(pair.question_id, answer_id, before, relevance)
    pool.answer_ids.append(answer_id)
    pool.texts.append(answer)
    pool.positions.append(pair.position)
    pool.relevance[answer_id] = relevance


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


def strip_html(text: str) -> str:
    """Remove tags and comments, decode character references, and replace white space by single blanks."""
    parser = _TextParser()
    parser.feed(text)
    parser.close()
    return " ".join("".join(parser.parts).split())


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden: str | None = None  # the element whose text is left out

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden is None and tag in _HIDDEN:
            self._hidden = tag
        self._separate(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = None
        self._separate(tag)

    @override
    def handle_data(self, data: str) -> None:
        if self._hidden is None:
            self.parts.append(data)

    def _separate(self, tag: str) -> None:
        """Separate the words before and after a tag of a block or a line break."""
        if tag not in _INLINE:
            self.parts.append(" ")
