"""Columns of Parquet files, checked whole: a fault is told with its row, and nothing loops over rows."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aptool.errors import InputError, first_line
from aptool.formats.schemas import arrow_schema

T = TypeVar("T")


def parquet(path: str | Path, file: object) -> pq.ParquetFile:
    """An open Parquet file.

    Raises:
        InputError: it is none.
    """
    return readable(path, None, lambda: pq.ParquetFile(file))


def readable(path: str | Path, place: str | None, read: Callable[[], T]) -> T:
    """What ``read`` gives.

    Raises:
        InputError: that part of the file is not what a Parquet file has there.
    """
    try:
        return read()
    except (pa.ArrowException, OSError) as error:
        reason = first_line(error)
        raise InputError(path, place=place, problem=reason, expected="a readable Parquet file") from error


def check_columns(path: str | Path, found: pa.Schema, name: str) -> None:
    """Holds the columns of a file against the schema of that name; there may be others.

    Raises:
        InputError: one is not there, or of another type.
    """
    for field in arrow_schema(name):
        index = found.get_field_index(field.name)
        if index < 0:
            have = ", ".join(found.names) or "no column"
            raise InputError(path, value=have, expected=f"a column {field.name!r} of type {field.type}")
        kind = found.field(index).type
        if not _same_type(kind, field.type):
            raise InputError(path, column=field.name, value=str(kind), expected=f"type {field.type}")


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether ``found`` can be read as ``wanted``; large and dictionary-encoded forms of a type can."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_string(wanted):
        return pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and _same_type(found.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(found):
            return False
        indices = [(field, found.get_field_index(field.name)) for field in wanted]
        return all(index >= 0 and _same_type(found.field(index).type, field.type) for field, index in indices)
    return bool(found == wanted)


def strings(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One plain array of strings with 64-bit offsets, whichever string type the file used."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of no chunk, or of more than one array can hold
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.cast(pa.large_string())


def check_nulls(
    path: str | Path, array: pa.Array, column: str, row: str = "row", rows: np.ndarray | None = None
) -> None:
    """Every value is there.

    Raises:
        InputError: one is not; ``row`` names its row, the ``rows``-th where values are parts of rows.
    """
    if array.null_count:
        index = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise fault(path, array, index, column, row, rows, "a value")


def check_text(
    path: str | Path, array: pa.Array, column: str, row: str = "row", rows: np.ndarray | None = None
) -> None:
    """Every value is text in UTF-8; Parquet itself holds nobody to that.

    Raises:
        InputError: one is not.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        for index, value in enumerate(array.cast(pa.large_binary())):
            try:
                (value.as_py() or b"").decode("utf-8")
            except UnicodeDecodeError:
                place = f"{row} {index if rows is None else int(rows[index])}"
                wanted = "text in UTF-8"
                raise InputError(
                    path, place=place, column=column, value=value.as_py(), expected=wanted
                ) from error
        raise


def check_pattern(
    path: str | Path, array: pa.Array, column: str, pattern: str, row: str, rows: np.ndarray | None = None
) -> None:
    """Every id is one word.

    Raises:
        InputError: one is not.
    """
    good = pc.match_substring_regex(array, pattern).to_numpy(zero_copy_only=False)
    if not good.all():
        index = int(np.argmin(good))
        wanted = "an id without white space" + (" that does not begin with '#'" if "#" in pattern else "")
        raise fault(path, array, index, column, row, rows, wanted)


def check_distinct(
    path: str | Path, answer_ids: pa.Array, pools: np.ndarray, question_ids: pa.Array, row: str
) -> None:
    """No question comes twice, nor an answer in one pool.

    Raises:
        InputError: one does.
    """
    repeated_question = first_repeated(question_ids)
    if repeated_question is not None:
        value = question_ids[repeated_question].as_py()
        place = f"{row} {repeated_question}"
        raise InputError(path, place=place, column="question_id", value=value, expected="each question once")
    codes = answer_ids.dictionary_encode().indices.to_numpy().astype(np.int64)
    keys = pools * (int(codes.max(initial=0)) + 1) + codes
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if len(same):
        index = int(order[same + 1].min())
        wanted = "each answer once in a pool"
        raise fault(path, answer_ids, index, "candidates.answer_id", row, pools, wanted)


def first_repeated(array: pa.Array) -> int | None:
    """Where a value stands that has stood before; None if all differ."""
    codes = array.dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    if len(first) == len(codes):
        return None
    later = np.ones(len(codes), dtype=bool)
    later[first] = False
    return int(np.argmax(later))


def fault(
    path: str | Path,
    array: pa.Array,
    index: int,
    column: str,
    row: str,
    rows: np.ndarray | None,
    expected: str,
) -> InputError:
    """What is wrong with the ``index``-th value of a column; ``rows`` says which row each value is of."""
    place = f"{row} {index if rows is None else int(rows[index])}"
    return InputError(path, place=place, column=column, value=array[index].as_py(), expected=expected)
