"""Conversion of dicts and data frames to the frames of runs, qrels and pools.

Errors name the row and the column. Ids must be texts, as conversions of 7, 7.0 and "007" would be ambiguous.
"""

import numbers
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import polars as pl

from aptool.errors import AptoolError, InputError, first_line, shortened
from aptool.formats.ids import (
    ANSWER_ID,
    EXPECTED_ANSWER_ID,
    EXPECTED_QUESTION_ID,
    QUESTION_ID,
    is_answer_id,
    is_question_id,
)

if TYPE_CHECKING:
    import pandas as pd

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
_EXACT = "an integer that float64 represents exactly"


def collected(name: str, frame: object) -> object:
    """Collect a lazy frame of polars; return another value unchanged."""
    if not isinstance(frame, pl.LazyFrame):
        return frame
    try:
        return frame.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(name, problem=first_line(error), expected="a frame that polars reads") from error


def is_pandas(frame: object) -> "TypeGuard[pd.DataFrame]":
    """Whether a value is a pandas frame; pandas is not imported."""
    kind = type(frame)
    return (kind.__module__.partition(".")[0], kind.__name__) == ("pandas", "DataFrame")


def frame_from_polars(name: str, frame: object, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rename and cast the required columns of a polars frame; drop other columns."""
    frame = collected(name, frame)
    if not isinstance(frame, pl.DataFrame):
        raise InputError(name, value=type(frame).__name__, expected="a polars DataFrame")
    result = {}
    for column, kind in columns.items():
        name_in_frame = next((alias for alias in NAMES[column] if alias in frame.columns), None)
        if name_in_frame is None:
            raise InputError(
                name, value=frame.columns, expected=f"a column {' or '.join(map(repr, NAMES[column]))}"
            )
        result[column] = _typed(name, name_in_frame, frame[name_in_frame], kind)
    return pl.DataFrame(result)


def frame_from_pandas(name: str, frame: object, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Convert a pandas frame, as ``frame_from_polars`` converts a polars frame."""
    if not is_pandas(frame):
        raise InputError(name, value=type(frame).__name__, expected="a pandas DataFrame")
    if not len(frame):
        raise InputError(name, problem="no row", expected="at least one question with a candidate")
    aliases = {alias for column in columns for alias in NAMES[column]}
    series: dict[str, pl.Series] = {}
    for column in frame.columns:
        if column not in aliases:
            continue
        if list(frame.columns).count(column) > 1:
            raise InputError(name, problem=f"two columns {column!r}", expected="one of each name")
        values = frame[column].tolist()
        try:
            series[column] = pl.Series(column, values, strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                first = type(values[0])
                row = next(row for row, value in enumerate(values) if not isinstance(value, first))
                expected = f"a value of type {first.__name__}"
                raise InputError(
                    name, position=f"row {row}", column=column, value=values[row], expected=expected
                ) from None
            plain = [
                _plain(name, f"row {row}", column, value, pl.Float64()) for row, value in enumerate(values)
            ]
            series[column] = pl.Series(column, plain)
    try:
        return frame_from_polars(name, pl.DataFrame(series), columns)
    except pl.exceptions.PolarsError as error:
        raise InputError(name, problem=str(error), expected="columns of one length") from error


def frame_from_dict(name: str, table: object, column: str, kind: pl.DataType) -> pl.DataFrame:
    """Convert ``{question id: {answer id: number}}`` to question_id, answer_id and a column of numbers."""
    form = f"a dict {{question id: {{answer id: {column}}}}}"
    questions: list[str] = []
    answers: list[str] = []
    values: list[float] = []
    for question, inner in _items(name, table, None, form):
        position = f"question {shortened(question)}"
        check_id(name, None, "question_id", question)
        for answer, value in _items(name, inner, position, form):
            check_id(name, position, "answer_id", answer)
            questions.append(question)
            answers.append(answer)
            values.append(_plain(name, f"{position}, answer {shortened(answer)}", column, value, kind))
    return pl.DataFrame(
        {"question_id": questions, "answer_id": answers, column: values},
        schema={"question_id": pl.String, "answer_id": pl.String, column: kind},
    )


def check_id(name: str, position: str | None, column: str, value: object) -> None:
    """Raise unless the value is a legal id; ``column`` is question_id or answer_id."""
    legal, expected = is_answer_id, EXPECTED_ANSWER_ID
    if column == "question_id":
        legal, expected = is_question_id, EXPECTED_QUESTION_ID
    if not legal(value):
        expected = expected if isinstance(value, str) else "text (str)"
        raise InputError(name, position=position, column=column, value=value, expected=expected)


def check_frame(name: str, frame: pl.DataFrame) -> None:
    """Check the rows of ``frame_from_polars``: no nulls, legal ids, finite numbers, distinct candidates."""
    if frame.is_empty():
        raise InputError(name, problem="no row", expected="at least one question with a candidate")
    for column in frame:
        _check(name, frame, column.name, column.is_null(), "a value")
        if column.dtype.is_float():
            _check(name, frame, column.name, ~column.is_finite(), "a finite number")
    ids = (("question_id", QUESTION_ID, EXPECTED_QUESTION_ID), ("answer_id", ANSWER_ID, EXPECTED_ANSWER_ID))
    for column_name, pattern, expected in ids:
        _check(name, frame, column_name, ~frame[column_name].str.contains(pattern), expected)
    pairs = frame.select(pl.struct("question_id", "answer_id").is_first_distinct().not_()).to_series()
    _check(name, frame, "answer_id", pairs, "each answer of a question once")


def to_pandas(frame: pl.DataFrame) -> Any:
    """Convert a polars frame to a pandas frame."""
    try:
        return frame.to_pandas()
    except ModuleNotFoundError as error:
        raise AptoolError("pandas is not installed: `pip install pandas`") from error


def _items(name: str, table: object, position: str | None, form: str) -> Iterator[tuple[Any, Any]]:
    if not isinstance(table, Mapping):
        raise InputError(name, position=position, value=table, expected=form)
    if not table:
        raise InputError(name, position=position, value={}, expected="at least one entry")
    yield from table.items()


def _plain(name: str, position: str, column: str, value: object, kind: pl.DataType) -> Any:
    """Convert a finite number of Python or numpy to a number of Python."""
    if kind == pl.Int64:
        if (
            isinstance(value, numbers.Integral)
            and not isinstance(value, bool)
            and -_INT64 <= int(value) < _INT64
        ):
            return int(value)
        raise InputError(
            name, position=position, column=column, value=value, expected="an integer of 64 bits"
        )
    try:
        number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else None
    except OverflowError:
        number = None
    if number is None or not -float("inf") < number < float("inf"):
        raise InputError(name, position=position, column=column, value=value, expected="a finite number")
    if isinstance(value, numbers.Integral) and int(value) != number:
        raise InputError(name, position=position, column=column, value=int(value), expected=_EXACT)
    return number


def _typed(name: str, column: str, values: pl.Series, kind: pl.DataType) -> pl.Series:
    """Cast a column, if its type can be cast without a change of values."""
    dtype = values.dtype
    if kind == pl.String:
        good, expected = dtype in (pl.String, pl.Categorical, pl.Enum), "text (String)"
    elif kind == pl.Int64:
        good, expected = dtype.is_integer(), "integers"
    else:
        good, expected = dtype.is_numeric(), "numbers"
    if not good:
        raise InputError(name, column=column, value=str(dtype), expected=expected)
    try:
        result = values.cast(kind)
    except pl.exceptions.PolarsError as error:
        raise InputError(name, column=column, problem=str(error), expected=expected) from error
    if kind == pl.Float64 and dtype.is_integer():
        is_rounded = (result.cast(dtype, strict=False) != values).fill_null(values.is_not_null())
        row = is_rounded.arg_max() if is_rounded.any() else None
        if row is not None:
            raise InputError(name, position=f"row {row}", column=column, value=values[row], expected=_EXACT)
    return result


def _check(name: str, frame: pl.DataFrame, column: str, faults: pl.Series, expected: str) -> None:
    """Raise for the first invalid row, given a mask of invalid rows."""
    row = faults.arg_max() if faults.any() else None
    if row is not None:
        value = frame[column][row]
        raise InputError(name, position=f"row {row}", column=column, value=value, expected=expected)
