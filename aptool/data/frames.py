"""Tables of users as frames of polars with fixed columns and types.

A table in memory is a frame of polars or pandas, another object with the Arrow stream interface, or rows
(dicts, or records such as those of ir_measures). Errors name the row and the user's column.

A rule converts one value, or raises a ``ValueError`` that says what was expected.

An id of a question or an answer has at least one character and no white space, control character or lone
surrogate, in all files: white space separates fields of a run file, control characters break lines in other
tools, and lone surrogates are not valid UTF-8. A question id begins a line, so its first character is neither
``#`` (a comment) nor U+FEFF (a byte order mark).
"""

import numbers
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard

import polars as pl

from aptool.errors import InputError, first_line, shortened


class ArrowStream(Protocol):
    """A table of any library that has the Arrow stream interface, such as polars, pandas and pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table."""


Table: TypeAlias = ArrowStream | pl.LazyFrame | Mapping[Any, Any] | Iterable[Any]
TABLE = "a data frame, a list of dicts"
NO_ROW = {"problem": "no row", "expected": "at least one question with a candidate"}

# Accepted names per column, including those of trec_eval, ir_measures and PyTerrier.
NAMES = {
    "question_id": ("question_id", "query_id", "qid"),
    "answer_id": ("answer_id", "doc_id", "docno", "docid"),
    "question": ("question", "query"),
    "answer": ("answer", "text"),
    "score": ("score",),
    "relevance": ("relevance", "label"),
}
# White space and control characters of Unicode, listed because \s differs between regex engines.
_FORBIDDEN = "\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# The patterns of the JSON Schemas; UTF-8 files cannot contain surrogates.
ANSWER_ID = f"^[^{_FORBIDDEN}]+$"
QUESTION_ID = f"^[^#\ufeff{_FORBIDDEN}][^{_FORBIDDEN}]*$"

EXPECTED_ANSWER_ID = "an id without white space or control characters"
EXPECTED_QUESTION_ID = f"{EXPECTED_ANSWER_ID} that does not begin with '#'"

# Expressions for faults of a column, each with what was expected.
LEGAL_QUESTION_ID = (
    "question_id",
    ~pl.col("question_id").str.contains(QUESTION_ID),
    EXPECTED_QUESTION_ID,
)
LEGAL_ANSWER_ID = ("answer_id", ~pl.col("answer_id").str.contains(ANSWER_ID), EXPECTED_ANSWER_ID)
MOST_NAMES = 20  # of columns in a message

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_ID = re.compile(f"[^{_FORBIDDEN}\ud800-\udfff]+")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_BOOLEANS = {"true": "1", "false": "0"}
_INT64 = 1 << 63
_LARGEST_LABEL = 1_000_000_000  # in text
_EXACT = 1 << 53  # float64 has all integers up to this one


class RawTable(NamedTuple):
    """A table as its source has it."""

    name: str  # the path or the argument, for messages
    columns: Mapping[str, Any]  # name of the user -> series of polars, or list of values
    position: Callable[[int], str] = "row {}".format  # of a row, for messages

    @property
    def height(self) -> int:
        """The number of rows."""
        return max(map(len, self.columns.values()), default=0)

    def column(self, name: str, hint: str = "") -> Any:
        """The values of a column; the error for a missing one names the columns."""
        if name in self.columns:
            return self.columns[name]
        shown = [shortened(str(other)) for other in list(self.columns)[:MOST_NAMES]]
        more = ", …" if len(self.columns) > MOST_NAMES else ""
        problem = f"not found among {', '.join(shown) or 'none'}{more}"
        raise InputError(self.name, column=name, problem=problem, expected=f"this column{hint}")


def is_table(value: object) -> "TypeGuard[ArrowStream | pl.LazyFrame]":
    """Whether a value is a frame; rows are not."""
    return isinstance(value, pl.LazyFrame) or hasattr(value, "__arrow_c_stream__")


def read_columns(name: str, table: object, expected: str) -> Mapping[str, Any]:
    """The columns of a table by name: series of polars, or lists. A key that a row lacks is a null."""
    if is_table(table):
        try:
            frame = table.collect() if isinstance(table, pl.LazyFrame) else pl.DataFrame(table)
        except (pl.exceptions.PolarsError, OSError, TypeError, ValueError) as error:
            raise InputError(name, problem=first_line(error), expected="a frame that polars reads") from error
        return frame.to_dict()
    if isinstance(table, str | bytes | Mapping | set | frozenset) or not isinstance(table, Iterable):
        raise InputError(name, value=table, expected=expected)
    rows = [row._asdict() if hasattr(row, "_asdict") else row for row in table]
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(name, position=f"row {number}", value=row, expected="a dict")
    return columns_of(rows)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of rows; a key that a row lacks is a null."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def read_frame(name: str, table: object, columns: tuple[str, ...]) -> pl.DataFrame:
    """Convert a table to a frame with these columns, keys of `NAMES`; drop other columns.

    A dict has the answers of each question: ``{question id: {answer id: number}}``, or of pools
    ``{question id: (question, {answer id: answer})}``.
    """
    form = f"{{answer id: {columns[-1]}}}"
    form = f"a dict {{question id: {f'(question, {form})' if 'question' in columns else form}}}"
    if isinstance(table, Mapping):
        rows = list(_nested_rows(name, table, form, has_texts="question" in columns))
        values = dict(zip(columns, zip(*rows, strict=True), strict=True))
        pairs = list(zip(values["question_id"], values["answer_id"], strict=True))
        raw = RawTable(name, values, lambda row: "question {!r}, answer {!r}".format(*pairs[row]))
    else:
        expected = f"{TABLE}, or {form}; {name.capitalize()}.load reads files"
        raw = RawTable(name, read_columns(name, table, expected))
        if not raw.height:
            raise InputError(name, **NO_ROW)
    names = {}
    for column in columns:
        alias = next((alias for alias in NAMES[column] if alias in raw.columns), None)
        if alias is None:
            required = f"a column {' or '.join(map(repr, NAMES[column]))}"
            raise InputError(name, value=list(raw.columns), expected=required)
        names[column] = alias
    frame = convert(raw, names)
    repeated = pl.struct("question_id", "answer_id").is_first_distinct().not_()
    rules = [LEGAL_QUESTION_ID, LEGAL_ANSWER_ID, ("answer_id", repeated, "each answer of a question once")]
    if "score" in columns:
        rules.insert(0, ("score", ~pl.col("score").is_finite(), "a finite number"))
    if "question" in columns:
        differs = pl.col("question") != pl.col("question").first().over("question_id")
        rules.append(("question", differs, "the text of the question in earlier rows"))
    check(name, frame, rules, raw.position, names)
    return frame


def check(
    name: object,
    frame: pl.DataFrame,
    rules: Iterable[tuple[str, pl.Expr, str]],
    position: Callable[[int], str],
    names: Mapping[str, str] | None = None,
) -> None:
    """Raise for the first row of a frame that breaks a rule.

    A rule is a column, an expression that is true for its faults, and what was expected, where ``{NAME}`` is
    a value of the row. ``names`` are the user's names of columns.
    """
    for column, is_fault, expected in rules:
        faults = frame.select(is_fault).to_series()
        row = faults.arg_max() if faults.any() else None
        if row is not None:
            values = frame.row(row, named=True)
            raise InputError(
                name,
                position=position(row),
                column=(names or {}).get(column, column),
                value=values[column],
                expected=expected.format(**values),
            )


def _nested_rows(
    name: str, table: Mapping[Any, Any], form: str, *, has_texts: bool
) -> Iterator[tuple[object, ...]]:
    """The rows of a dict of questions; with ``has_texts``, a question's value begins with its text."""

    def items(level: object, position: str | None = None) -> Iterable[tuple[Any, Any]]:
        if not isinstance(level, Mapping):
            raise InputError(name, position=position, value=level, expected=form)
        if not level:
            raise InputError(name, position=position, value={}, expected="at least one entry")
        return level.items()

    for question, value in items(table):
        position = f"question {shortened(question)}"
        text: tuple[object, ...] = ()
        if has_texts:
            if not isinstance(value, tuple | list) or len(value) != 2:
                raise InputError(name, position=position, value=value, expected=form)
            text, value = (value[0],), value[1]
        for answer, last in items(value, position):
            yield (question, *text, answer, last)


def convert(raw: RawTable, names: Mapping[str, str], nullable: Iterable[str] = ()) -> pl.DataFrame:
    """Convert columns of a table to their types; raise for the first value that has no equal one.

    Args:
        raw: the table.
        names: column, a key of `NAMES` -> its name in the table.
        nullable: columns that may lack values: null, NaN or an empty text.
    """
    return pl.DataFrame([_converted(raw, column, names[column], column in nullable) for column in names])


def _converted(raw: RawTable, column: str, name: str, nullable: bool) -> pl.Series:
    values = raw.column(name)
    rule, kind = _RULES[column]
    if isinstance(values, pl.Series):
        if _can_cast(column, values.dtype, kind) and (nullable or not values.has_nulls()):
            cast = values.cast(kind).alias(column)
            if kind != pl.String or not cast.str.contains("\0", literal=True).any():
                return cast
        values = values.to_list()
    converted: list[Any] = []
    for row, value in enumerate(values):
        if nullable and _is_missing(value):
            converted.append(None)
            continue
        try:
            converted.append(rule(value))
        except ValueError as error:
            raise InputError(
                raw.name, position=raw.position(row), column=name, value=value, expected=str(error)
            ) from None
    return pl.Series(column, converted, dtype=kind)


def _can_cast(column: str, dtype: Any, kind: Any) -> bool:
    """Whether each value of a type has an equal one of another type."""
    if kind == pl.String:
        is_text = dtype in (pl.String, pl.Categorical, pl.Enum)
        return bool(is_text or (column.endswith("_id") and dtype.is_integer()))
    if kind == pl.Int64:
        return bool((dtype.is_integer() and dtype != pl.UInt64) or dtype == pl.Boolean)
    small = (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)
    return bool(dtype.is_float() or dtype in small)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float | str) and (value == "" or value != value))


def text_of(value: object) -> str:
    """A text that UTF-8 can encode, without NUL characters."""
    if not isinstance(value, str):
        raise ValueError("a text")
    if "\0" in value:
        raise ValueError("a text without NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("text that UTF-8 can encode") from None
    return value


def id_of(value: object) -> str:
    """An id as text; other values than texts and whole numbers are refused."""
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return str(value)
    expected = "a text or a whole number"
    if isinstance(value, float | Decimal) and value == value // 1:
        expected += f"; convert the column to integers or texts, such as {int(value)}"
    raise ValueError(expected)


def label_of(value: object) -> int:
    """A label, equal for all sources: 1 for 1, 1.0, "1.0" and true."""
    if isinstance(value, numbers.Integral) and -_INT64 <= int(value) < _INT64:
        return int(value)
    text = str(value).strip()
    text = _BOOLEANS.get(text.casefold(), text)
    number = Decimal(text) if _NUMBER.fullmatch(text) else Decimal("NaN")
    if number != number.to_integral_value() or abs(number) >= _LARGEST_LABEL:
        raise ValueError("a whole number")
    return int(number)


def score_of(value: object) -> float:
    """A number, or NaN or infinity; no boolean."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        raise ValueError("a finite number")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("a finite number") from None
    if isinstance(value, numbers.Integral) and abs(int(value)) > _EXACT and int(value) != number:
        raise ValueError("an integer that float64 represents exactly")
    return number


_RULES: dict[str, tuple[Callable[[object], Any], Any]] = {
    "question_id": (id_of, pl.String),
    "answer_id": (id_of, pl.String),
    "question": (text_of, pl.String),
    "answer": (text_of, pl.String),
    "score": (score_of, pl.Float64),
    "relevance": (label_of, pl.Int64),
}


def comparable(text: str) -> str:
    """A text such that texts that look the same are equal: NFC, single blanks, no invisible characters."""
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFC", text))
    return " ".join(text.split())


def is_answer_id(value: object) -> bool:
    """Whether ``value`` is a legal answer id."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def is_question_id(value: object) -> bool:
    """Whether ``value`` is a legal question id."""
    return is_answer_id(value) and str(value)[0] not in "#\ufeff"


def check_id(path: object, position: str, column: str, value: object, *, of_question: bool = False) -> None:
    """Raise if the id of an answer, or of a question, is not legal."""
    is_legal = is_question_id(value) if of_question else is_answer_id(value)
    if not is_legal:
        expected = EXPECTED_QUESTION_ID if of_question else EXPECTED_ANSWER_ID
        raise InputError(str(path), position=position, column=column, value=value, expected=expected)
