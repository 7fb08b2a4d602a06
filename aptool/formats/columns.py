"""Checks of whole columns of Parquet files, vectorized; an error names the row."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aptool.errors import InputError
from aptool.formats import ids
from aptool.formats.location import PathOrUrl
from aptool.formats.schemas import arrow_schema


def check_columns(path: PathOrUrl, found: pa.Schema, name: str) -> None:
    """Check that a file has the columns of a schema; it may have others."""
    for field in arrow_schema(name):
        index = found.get_field_index(field.name)
        if index < 0:
            have = ", ".join(found.names) or "no column"
            raise InputError(path, value=have, expected=f"a column {field.name!r} of type {field.type}")
        kind = found.field(index).type
        if not is_type(kind, field.type):
            raise InputError(path, column=field.name, value=str(kind), expected=f"type {field.type}")


def is_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether ``found`` can be read as ``wanted``; large and dictionary-encoded variants can."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_string(wanted):
        return pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and is_type(found.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(found):
            return False
        indices = [(field, found.get_field_index(field.name)) for field in wanted]
        return all(index >= 0 and is_type(found.field(index).type, field.type) for field, index in indices)
    return bool(found == wanted)


def strings(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array of strings with 64-bit offsets, whichever string type the file has."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunk, or too large for one array
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.cast(pa.large_string())


def check_nulls(
    path: PathOrUrl, array: pa.Array, column: str, row: str = "row", rows: np.ndarray | None = None
) -> None:
    """Check that no value is null.

    Args:
        path: the file, for the message.
        array: the column.
        column: its name.
        row: what a row is called in the message.
        rows: (values,) the row of each value, where values are parts of rows.
    """
    if array.null_count:
        index = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise fault(path, array, index, column, row, rows, "a value")


def check_text(
    path: PathOrUrl, array: pa.Array, column: str, row: str = "row", rows: np.ndarray | None = None
) -> None:
    """Check that every value is valid UTF-8, which Parquet does not guarantee; see ``check_nulls``."""
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


def check_answer_ids(
    path: PathOrUrl, array: pa.Array, column: str, row: str = "row", rows: np.ndarray | None = None
) -> None:
    """Check that every answer id is legal; see ``check_nulls``."""
    _check_ids(path, array, column, ids.ANSWER_ID, ids.EXPECTED_ANSWER_ID, row, rows)


def check_question_ids(path: PathOrUrl, array: pa.Array, column: str, row: str = "row") -> None:
    """Check that every question id is legal; see ``check_nulls``."""
    _check_ids(path, array, column, ids.QUESTION_ID, ids.EXPECTED_QUESTION_ID, row, None)


def _check_ids(
    path: PathOrUrl,
    array: pa.Array,
    column: str,
    pattern: str,
    expected: str,
    row: str,
    rows: np.ndarray | None,
) -> None:
    legal = pc.match_substring_regex(array, pattern).to_numpy(zero_copy_only=False)
    if not legal.all():
        raise fault(path, array, int(np.argmin(legal)), column, row, rows, expected)


def check_distinct(
    path: PathOrUrl, answer_ids: pa.Array, pools: np.ndarray, question_ids: pa.Array, row: str
) -> None:
    """Check that no question is repeated, and no answer within a pool."""
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
    """Index of the first value that repeats an earlier one; None if all are distinct."""
    codes = array.dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    if len(first) == len(codes):
        return None
    later = np.ones(len(codes), dtype=bool)
    later[first] = False
    return int(np.argmax(later))


def fault(
    path: PathOrUrl,
    array: pa.Array,
    index: int,
    column: str,
    row: str,
    rows: np.ndarray | None,
    expected: str,
) -> InputError:
    """The error for the value at ``index`` of a column; ``rows`` is the row of each value."""
    place = f"{row} {index if rows is None else int(rows[index])}"
    return InputError(path, place=place, column=column, value=array[index].as_py(), expected=expected)
