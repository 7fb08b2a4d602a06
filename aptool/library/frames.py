"""Conversion of dicts and data frames to the frames of runs, qrels and pools; errors name row and column.

Ids must be texts: the conversion of 7, 7.0 and "007" to an id would be ambiguous.
"""

import numbers
from collections.abc import Iterator, Mapping
from typing import Any

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

# Column -> accepted names, including those of trec_eval, ir_measures and PyTerrier.
NAMES = {
    "question_id": ("question_id", "query_id", "qid"),
    "answer_id": ("answer_id", "doc_id", "docno", "docid"),
    "question": ("question", "query"),
    "answer": ("answer", "text"),
    "score": ("score",),
    "relevance": ("relevance", "label"),
}
_INT64 = 1 << 63


def frame_from_polars(name: str, frame: object, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rename and cast the required columns of a polars frame; drop other columns.

    Args:
        name: name of the frame in errors.
        frame: the frame.
        columns: name and type of the required columns: String, Float64 or Int64.

    Raises:
        InputError: the value is not a frame, or a column is missing or has another type.
    """
    if isinstance(frame, pl.LazyFrame):
        try:
            frame = frame.collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(name, problem=first_line(error), expected="a frame that polars reads") from error
    if not isinstance(frame, pl.DataFrame):
        raise InputError(name, value=type(frame).__name__, expected="a polars DataFrame")
    result = {}
    for column, kind in columns.items():
        given = next((alias for alias in NAMES[column] if alias in frame.columns), None)
        if given is None:
            raise InputError(
                name, value=frame.columns, expected=f"a column {' or '.join(map(repr, NAMES[column]))}"
            )
        result[column] = _typed(name, given, frame[given], kind)
    return pl.DataFrame(result)


def frame_from_pandas(name: str, frame: object, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Like ``frame_from_polars``, from a pandas frame."""
    kind = type(frame)
    if kind.__module__.partition(".")[0] != "pandas" or kind.__name__ != "DataFrame":
        raise InputError(name, value=kind.__name__, expected="a pandas DataFrame")
    if not len(frame):  # type: ignore[arg-type]
        raise InputError(name, problem="no row", expected="at least one question with a candidate")
    aliases = {alias for column in columns for alias in NAMES[column]}
    series: dict[str, pl.Series] = {}
    for column in frame.columns:  # type: ignore[attr-defined]
        if column not in aliases:
            continue
        if list(frame.columns).count(column) > 1:  # type: ignore[attr-defined]
            raise InputError(name, problem=f"two columns {column!r}", expected="one of each name")
        values = frame[column].tolist()  # type: ignore[index]
        try:
            series[column] = pl.Series(column, values, strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                first = type(values[0])
                row = next(row for row, value in enumerate(values) if not isinstance(value, first))
                expected = f"a value of type {first.__name__}"
                raise InputError(
                    name, place=f"row {row}", column=column, value=values[row], expected=expected
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
        place = f"question {shortened(question)}"
        check_id(name, None, "question_id", question)
        for answer, value in _items(name, inner, place, form):
            check_id(name, place, "answer_id", answer)
            questions.append(question)
            answers.append(answer)
            values.append(_plain(name, f"{place}, answer {shortened(answer)}", column, value, kind))
    return pl.DataFrame(
        {"question_id": questions, "answer_id": answers, column: values},
        schema={"question_id": pl.String, "answer_id": pl.String, column: kind},
    )


def check_id(name: str, place: str | None, column: str, value: object) -> None:
    """Raise unless the value is a legal id; ``column`` is question_id or answer_id."""
    legal, expected = is_answer_id, EXPECTED_ANSWER_ID
    if column == "question_id":
        legal, expected = is_question_id, EXPECTED_QUESTION_ID
    if not legal(value):
        expected = expected if isinstance(value, str) else "text (str)"
        raise InputError(name, place=place, column=column, value=value, expected=expected)


def check_frame(name: str, frame: pl.DataFrame) -> None:
    """Check the rows of ``frame_from_polars``: no nulls, legal ids, finite numbers, distinct candidates.

    Raises:
        InputError: a row is invalid; the message names the first invalid row, from 0.
    """
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
    """A polars frame as a pandas frame."""
    try:
        return frame.to_pandas()
    except ModuleNotFoundError as error:
        raise AptoolError("pandas is not installed: `pip install pandas`") from error


def nested(frame: pl.DataFrame, column: str) -> dict[str, dict[str, Any]]:
    """{question id: {answer id: value}}, in the order of the frame."""
    result: dict[str, dict[str, Any]] = {}
    for question, answer, value in frame.select("question_id", "answer_id", column).iter_rows():
        result.setdefault(question, {})[answer] = value
    return result


def _items(name: str, table: object, place: str | None, form: str) -> Iterator[tuple[Any, Any]]:
    if not isinstance(table, Mapping):
        raise InputError(name, place=place, value=table, expected=form)
    if not table:
        raise InputError(name, place=place, value={}, expected="at least one entry")
    yield from table.items()


def _plain(name: str, place: str, column: str, value: object, kind: pl.DataType) -> Any:
    """A finite number of Python or numpy as a number of Python."""
    if kind == pl.Int64:
        if (
            isinstance(value, numbers.Integral)
            and not isinstance(value, bool)
            and -_INT64 <= int(value) < _INT64
        ):
            return int(value)
        raise InputError(name, place=place, column=column, value=value, expected="an integer of 64 bits")
    try:
        number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else None
    except OverflowError:
        number = None
    if number is None or not -float("inf") < number < float("inf"):
        raise InputError(name, place=place, column=column, value=value, expected="a finite number")
    return number


def _typed(name: str, column: str, values: pl.Series, kind: pl.DataType) -> pl.Series:
    """Cast a column if its type permits that without a change of values."""
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
        return values.cast(kind)
    except pl.exceptions.PolarsError as error:
        raise InputError(name, column=column, problem=str(error), expected=expected) from error


def _check(name: str, frame: pl.DataFrame, column: str, faults: pl.Series, expected: str) -> None:
    """Raise for the first row of a mask of invalid rows."""
    row = faults.arg_max() if faults.any() else None
    if row is not None:
        value = frame[column][row]
        raise InputError(name, place=f"row {row}", column=column, value=value, expected=expected)
