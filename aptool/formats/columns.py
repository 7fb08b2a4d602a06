"""Columns of Parquet files and their checks, vectorized; an error names the row."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aptool.errors import InputError
from aptool.formats.location import PathOrUrl
from aptool.formats.schemas import arrow_schema


def check_columns(path: PathOrUrl, schema: pa.Schema, name: str) -> None:
    """Raise if a file lacks a column of the schema ``name``, or has it with another type."""
    for field in arrow_schema(name):
        index = schema.get_field_index(field.name)
        if index < 0:
            columns = ", ".join(schema.names) or "no column"
            raise InputError(path, value=columns, expected=f"a column {field.name!r} of type {field.type}")
        kind = schema.field(index).type
        if not is_type(kind, field.type):
            raise InputError(path, column=field.name, value=str(kind), expected=f"type {field.type}")


def is_type(kind: pa.DataType, expected: pa.DataType) -> bool:
    """Whether ``kind`` can be read as ``expected``; large and dictionary-encoded variants can."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(expected):
        return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if pa.types.is_list(expected):
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return is_list and is_type(kind.value_type, expected.value_type)
    if pa.types.is_struct(expected):
        if not pa.types.is_struct(kind):
            return False
        indices = [(field, kind.get_field_index(field.name)) for field in expected]
        return all(index >= 0 and is_type(kind.field(index).type, field.type) for field, index in indices)
    return bool(kind == expected)


def strings(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """An array of strings with 64-bit offsets, from any string type."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunk, or too large for one array
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.cast(pa.large_string())


class Column(NamedTuple):
    """A column of strings with what errors say of it."""

    path: PathOrUrl
    name: str
    values: pa.Array
    row: str = "row"  # what errors call a row
    rows: np.ndarray | None = None  # (values,) the row of each value, if a row has several

    def check(self) -> None:
        """Raise if a value is null or not UTF-8."""
        self.check_nulls()
        self.check_text()

    def check_nulls(self) -> None:
        """Raise if a value is null."""
        if self.values.null_count:
            index = int(np.argmax(self.values.is_null().to_numpy(zero_copy_only=False)))
            raise self.fault(index, "a value")

    def check_text(self) -> None:
        """Raise if a value is not UTF-8, which Parquet does not guarantee."""
        try:
            self.values.validate(full=True)
        except pa.ArrowInvalid as error:
            binary = self.values.cast(pa.large_binary())
            for index, value in enumerate(binary):
                try:
                    (value.as_py() or b"").decode("utf-8")
                except UnicodeDecodeError:
                    raise self._replace(values=binary).fault(index, "text in UTF-8") from error
            raise

    def check_ids(self, pattern: str, expected: str) -> None:
        """Raise if an id does not match a pattern of ``formats.ids``."""
        legal = pc.match_substring_regex(self.values, pattern).to_numpy(zero_copy_only=False)
        if not legal.all():
            raise self.fault(int(np.argmin(legal)), expected)

    def check_distinct(self, expected: str) -> None:
        """Raise if a value is repeated."""
        index = _first_repeated(self.values)
        if index is not None:
            raise self.fault(index, expected)

    def check_distinct_in_rows(self, expected: str) -> None:
        """Raise if a value is repeated in its row."""
        assert self.rows is not None
        codes = self.values.dictionary_encode().indices.to_numpy().astype(np.int64)
        keys = self.rows * (int(codes.max(initial=0)) + 1) + codes
        order = np.argsort(keys, kind="stable")
        same = np.flatnonzero(keys[order][1:] == keys[order][:-1])
        if len(same):
            raise self.fault(int(order[same + 1].min()), expected)

    def fault(self, index: int, expected: str) -> InputError:
        """The error for a value."""
        place = f"{self.row} {index if self.rows is None else int(self.rows[index])}"
        value = self.values[index].as_py()
        return InputError(self.path, place=place, column=self.name, value=value, expected=expected)


def _first_repeated(array: pa.Array) -> int | None:
    """Index of the first value that repeats an earlier one; None if all are distinct."""
    codes = array.dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    if len(first) == len(codes):
        return None
    later = np.ones(len(codes), dtype=bool)
    later[first] = False
    return int(np.argmax(later))
