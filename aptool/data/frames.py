"""Conversion of tables in memory to the frames of runs, qrels and pools.

A table is a frame of polars or pandas, another object with the Arrow stream interface, a dict of columns, or
rows (dicts, or records such as those of ir_measures). Errors name the row and the column.
"""

import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import polars as pl

from aptool.data.ids import ANSWER_ID, EXPECTED_ANSWER_ID, EXPECTED_QUESTION_ID, QUESTION_ID
from aptool.errors import InputError, first_line, shortened

if TYPE_CHECKING:
    import pandas as pd


class ArrowStream(Protocol):
    """A table of any library that has the Arrow stream interface, such as polars, pandas and pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table."""


Table: TypeAlias = ArrowStream | pl.LazyFrame | Mapping[str, Any] | Iterable[Any]
TABLE = "a data frame, a dict of columns, a list of dicts"

# Accepted names per column, including those of trec_eval, ir_measures and PyTerrier.
NAMES = {
    "question_id": ("question_id", "query_id", "qid"),
    "answer_id": ("answer_id", "doc_id", "docno", "docid"),
    "question": ("question", "query"),
    "answer": ("answer", "text"),
    "score": ("score",),
    "relevance": ("relevance", "label"),
}
_INT64 = 1 << 63
_EXACT = 1 << 53  # float64 has all integers up to this one


def is_pandas(frame: object) -> "TypeGuard[pd.DataFrame]":
    """Whether a value is a pandas frame; pandas is not imported."""
    kind = type(frame)
    return (kind.__module__.partition(".")[0], kind.__name__) == ("pandas", "DataFrame")


def is_columns(table: object) -> "TypeGuard[Mapping[str, Any]]":
    """Whether a value is a dict of columns: lists whose first values are not dicts."""
    return (
        isinstance(table, Mapping)
        and len(table) > 0
        and not any(
            isinstance(values, str | bytes | Mapping)
            or not isinstance(values, Iterable)
            or hasattr(values, "columns")  # a frame: the dict has the frames of splits
            or any(isinstance(value, Mapping) for value, _ in zip(values, range(2), strict=False))
            for values in table.values()
        )
    )


def is_table(value: object) -> bool:
    """Whether a value is a frame or a dict of columns; rows are not."""
    return isinstance(value, pl.LazyFrame) or hasattr(value, "__arrow_c_stream__") or is_columns(value)


def read_columns(name: str, table: object, expected: str) -> Mapping[str, Any]:
    """The columns of a table by name: series of polars, or lists."""
    if isinstance(table, pl.LazyFrame):
        try:
            table = table.collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(name, problem=first_line(error), expected="a frame that polars reads") from error
    if is_pandas(table):
        columns = list(map(str, table.columns))
        if len(set(columns)) < len(columns):
            twice = next(column for column in columns if columns.count(column) > 1)
            raise InputError(name, problem=f"two columns {twice!r}", expected="one of each name")
        return {str(column): table[column].tolist() for column in table.columns}
    if not isinstance(table, pl.DataFrame) and hasattr(table, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pl.DataFrame(pl.from_arrow(pa.table(table)))
    if isinstance(table, pl.DataFrame):
        return table.to_dict()
    if is_columns(table):
        return table
    rows = list(read_rows(name, table, expected))
    return {column: [row.get(column) for row in rows] for column in (rows[0] if rows else ())}


def read_rows(name: str, table: object, expected: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a table as dicts."""
    if is_table(table):
        columns = read_columns(name, table, expected)
        if len({len(values) for values in columns.values()}) > 1:
            raise InputError(name, problem="columns of different lengths", expected="columns of one length")
        lists = [values.to_list() if isinstance(values, pl.Series) else values for values in columns.values()]
        yield from (dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True))
        return
    if isinstance(table, str | bytes | Mapping | set | frozenset) or not isinstance(table, Iterable):
        raise InputError(name, value=table, expected=expected)
    for number, row in enumerate(table):
        record = row._asdict() if hasattr(row, "_asdict") else row
        if not isinstance(record, Mapping):
            raise InputError(name, position=f"row {number}", value=row, expected="a dict")
        yield record


def read_frame(
    name: str,
    table: object,
    columns: tuple[str, ...],
    expected: str,
    nested: Callable[[Mapping[Any, Any]], Iterator[tuple[Any, ...]]] | None = None,
) -> pl.DataFrame:
    """Convert a table to a frame with these columns, keys of `NAMES`; drop other columns.

    ``nested`` yields the rows of a dict ``{question id: ...}``, by default of ``{question id: {answer id:
    number}}``. ``expected`` describes all valid tables.
    """
    position: Callable[[int], str] = "row {}".format
    if isinstance(table, Mapping) and not is_columns(table):
        rows = list(_nested_numbers(name, columns[-1], table) if nested is None else nested(table))
        values: dict[str, Any] = dict(zip(columns, zip(*rows, strict=True), strict=True))

        def pair(row: int) -> str:
            question, answer = (shortened(values[column][row]) for column in ("question_id", "answer_id"))
            return f"question {question}, answer {answer}"

        position = pair
    else:
        source = read_columns(name, table, expected)
        if not source or not all(map(len, source.values())):
            raise InputError(name, problem="no row", expected="at least one question with a candidate")
        values = {}
        for column in columns:
            alias = next((alias for alias in NAMES[column] if alias in source), None)
            if alias is None:
                required = f"a column {' or '.join(map(repr, NAMES[column]))}"
                raise InputError(name, value=list(source), expected=required)
            values[column] = source[alias]
        if len({len(column) for column in values.values()}) > 1:
            raise InputError(name, problem="columns of different lengths", expected="columns of one length")
    frame = pl.DataFrame([_converted(name, column, values[column], position) for column in columns])
    _check(name, frame, position)
    return frame


def nested_items(name: str, table: object, position: str | None, expected: str) -> Iterator[tuple[Any, Any]]:
    """The items of a level of a nested dict."""
    if not isinstance(table, Mapping):
        raise InputError(name, position=position, value=table, expected=expected)
    if not table:
        raise InputError(name, position=position, value={}, expected="at least one entry")
    yield from table.items()


def _nested_numbers(
    name: str, column: str, table: Mapping[Any, Any]
) -> Iterator[tuple[object, object, object]]:
    """The rows of a dict ``{question id: {answer id: number}}``."""
    form = f"a dict {{question id: {{answer id: {column}}}}}"
    for question, answers in nested_items(name, table, None, form):
        for answer, value in nested_items(name, answers, f"question {shortened(question)}", form):
            yield question, answer, value


def _converted(name: str, column: str, values: Any, position: Callable[[int], str]) -> pl.Series:
    """Convert a column to its type; raise for the first value that has no equal one."""
    convert, kind = _RULES[column]
    if isinstance(values, pl.Series):
        series = _cast(column, values, kind)
        if series is not None:
            return series
        values = values.to_list()
    converted = []
    for row, value in enumerate(values):
        try:
            converted.append(convert(value))
        except (ValueError, OverflowError, InputError) as error:
            expected = str(error).rpartition("expected ")[2]
            raise InputError(
                name, position=position(row), column=column, value=value, expected=expected
            ) from None
    return pl.Series(column, converted, dtype=kind)


def _cast(column: str, values: pl.Series, kind: Any) -> pl.Series | None:
    """Cast a column in one step; None if its values need a check."""
    dtype = values.dtype
    is_text = dtype in (pl.String, pl.Categorical, pl.Enum)
    is_id = column in ("question_id", "answer_id")
    if kind == pl.String:
        can = is_text or (is_id and dtype.is_integer())
    elif kind == pl.Int64:
        can = (dtype.is_integer() and dtype != pl.UInt64) or dtype == pl.Boolean
    else:
        can = dtype.is_float() or dtype in (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)
    return values.cast(kind).alias(column) if can and not values.has_nulls() else None


def _id(value: object) -> str:
    from aptool.data.pairs import id_text

    return _text(id_text("", "", "", value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text (str)")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("expected text that UTF-8 can encode") from None
    return value


def _relevance(value: object) -> int:
    from aptool.data.pairs import INTEGER, label_text

    if isinstance(value, numbers.Integral) and -_INT64 <= int(value) < _INT64:
        return int(value)
    text = "" if value is None else label_text(value)
    if not INTEGER.fullmatch(text):
        raise ValueError("expected a whole number")
    return int(text)


def _score(value: object) -> float:
    is_boolean = isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if is_boolean or not isinstance(value, numbers.Real | Decimal):
        raise ValueError("expected a finite number")
    number = float(value)
    if isinstance(value, numbers.Integral) and abs(int(value)) > _EXACT and int(value) != number:
        raise ValueError("expected an integer that float64 represents exactly")
    return number


_RULES: dict[str, tuple[Callable[[object], Any], Any]] = {
    "question_id": (_id, pl.String),
    "answer_id": (_id, pl.String),
    "question": (_text, pl.String),
    "answer": (_text, pl.String),
    "score": (_score, pl.Float64),
    "relevance": (_relevance, pl.Int64),
}


def _check(name: str, frame: pl.DataFrame, position: Callable[[int], str]) -> None:
    """Check converted rows: legal ids, finite numbers, distinct candidates, one text per question."""
    if frame.is_empty():
        raise InputError(name, problem="no row", expected="at least one question with a candidate")
    question, answer = frame["question_id"], frame["answer_id"]
    pairs = frame.select(pl.struct("question_id", "answer_id").is_first_distinct().not_()).to_series()
    checks = [
        ("question_id", ~question.str.contains(QUESTION_ID), EXPECTED_QUESTION_ID),
        ("answer_id", ~answer.str.contains(ANSWER_ID), EXPECTED_ANSWER_ID),
        ("answer_id", pairs, "each answer of a question once"),
    ]
    if "score" in frame.columns:
        checks.insert(0, ("score", ~frame["score"].is_finite(), "a finite number"))
    if "question" in frame.columns:
        differing = pl.col("question") != pl.col("question").first().over("question_id")
        expected = "the text of the question in earlier rows"
        checks.append(("question", frame.select(differing).to_series(), expected))
    for column, faults, expected in checks:
        row = faults.arg_max() if faults.any() else None
        if row is not None:
            value = frame[column][row]
            raise InputError(name, position=position(row), column=column, value=value, expected=expected)
