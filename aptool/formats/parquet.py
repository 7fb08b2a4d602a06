"""Parquet files: reading, footers, and vectorized checks of columns.

Errors name the file and the row group or row. The footer is parsed here as well: Arrow aborts the process if
it reads damaged metadata of a column. Parsing takes 60 times as long as Arrow's, so footers are cached.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aptool.errors import InputError, first_line
from aptool.formats.inputs import open_native, stat
from aptool.formats.location import PathOrUrl, is_remote
from aptool.formats.schemas import Table, arrow_schema

T = TypeVar("T")

# Types of Thrift's compact protocol, and the maximum nesting.
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12
_DEEPEST = 32

_CANDIDATE_ID = (b"candidates", b"answer_id")  # first and fourth name of the column's path


# Number of candidates per row group; None in other files than pools.
_Counts: TypeAlias = list[int | None]

# LRU cache of footers by path and version, because each unit of work opens the file of its row group again.
_footers: OrderedDict[tuple[str, str | None], tuple[pq.FileMetaData, _Counts]] = OrderedDict()
_MOST_FOOTERS = 8
_footers_lock = Lock()


class ParquetReader:
    """An open Parquet file."""

    def __init__(self, path: PathOrUrl, file: pa.NativeFile, version: str | None = None) -> None:
        """Read the footer, unless it is cached for this ``version``; errors name ``path``."""
        self._path = str(path)
        self._source = file
        self._threads = not isinstance(file, pa.PythonFile)  # see inputs.open_native
        self._version = version
        with _footers_lock:
            cached = _footers.get((self._path, version))
            if cached is not None:
                _footers.move_to_end((self._path, version))
        metadata = None if cached is None else cached[0]
        self._groups = None if cached is None else cached[1]
        self._file = self._checked(
            None, lambda: pq.ParquetFile(file, metadata=metadata, page_checksum_verification=True)
        )
        self.schema: pa.Schema = self._checked(None, lambda: self._file.schema_arrow)
        for field in self.schema:
            self._checked("schema", partial(_names, field))
        self.metadata: pq.FileMetaData = self._file.metadata

    def read(self, columns: list[str]) -> pa.Table:
        """Read columns."""
        return self._checked("file", lambda: self._file.read(columns, use_threads=self._threads))

    def read_row_group(self, group: int, columns: list[str]) -> pa.Table:
        """Read columns of a row group."""
        position = f"row group {group}"
        table = self._checked(
            position, lambda: self._file.read_row_group(group, columns, use_threads=self._threads)
        )
        if table.num_rows != (rows := self.metadata.row_group(group).num_rows):  # Arrow does not compare
            problem = f"{table.num_rows} rows, but {rows} in the footer"
            expected = "a readable Parquet file"
            raise InputError(self._path, position=position, problem=problem, expected=expected)
        return table

    def candidate_counts(self) -> list[int]:
        """The number of candidates in each row group of a pools file."""
        groups = self._checked(None, self._row_groups)
        counts = [count for count in groups if count is not None]
        if len(counts) < len(groups):
            problem = "no column candidates.answer_id in the metadata of a row group"
            raise InputError(self._path, problem=problem, expected="a readable Parquet file")
        return counts

    def rows(self, columns: list[str]) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dictionaries, with one row group in memory."""
        for group in range(self.metadata.num_row_groups):
            table = self.read_row_group(group, columns)
            yield from self._checked(f"row group {group}", table.to_pylist)

    def _row_groups(self) -> _Counts:
        if self._groups is None:
            self._groups = row_groups(read_footer(self._source))
            if self._version is not None:
                with _footers_lock:
                    _footers[self._path, self._version] = self.metadata, self._groups
                    while len(_footers) > _MOST_FOOTERS:
                        _footers.popitem(last=False)
        return self._groups

    def _checked(self, position: str | None, read: Callable[[], T]) -> T:
        try:
            return read()
        except InputError:
            raise
        except Exception as error:  # Arrow raises various types on damaged bytes
            raise InputError(
                self._path, position=position, problem=first_line(error), expected="a readable Parquet file"
            ) from error


def _names(field: pa.Field) -> list[str]:
    """The names of a column and its nested columns; raise if a name is not UTF-8."""
    kind = field.type
    return [field.name, *(name for i in range(kind.num_fields) for name in _names(kind.field(i)))]


@contextmanager
def open_parquet(path: PathOrUrl, version: str | None = None) -> Iterator[ParquetReader]:
    """Open a Parquet file; see ``inputs.open_native``."""
    if version is None and not is_remote(path):
        version = stat(path).version  # so that its footer can be cached
    with open_native(path, version) as file:
        yield ParquetReader(path, file, version)


def parquet_writer(path: PathOrUrl | IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of Parquet files with page checksums, which detect a flipped bit."""
    return pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)


class _ThriftReader:
    """Parser of Thrift's compact protocol, in which Parquet footers are written."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def value(self, kind: int, depth: int = 0) -> Any:
        """Parse a value of a type; a struct becomes a dictionary by field number."""
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if kind in (4, 5, 6):
            number = self.varint()
            return (number >> 1) ^ -(number & 1)
        if kind == _BINARY:
            size = self.varint()
            self._at += size
            if self._at > len(self._data):
                raise ValueError("text beyond the end")
            return self._data[self._at - size : self._at]
        if kind in (_LIST, _SET):
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.varint()
            if size > len(self._data):
                raise ValueError("a list beyond the end")
            inner = head & 15
            if inner in (1, 2):
                return [self.byte() == 1 for _ in range(size)]
            return [self.value(inner, depth + 1) for _ in range(size)]
        if kind == _STRUCT:
            return self._struct(depth)
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind == 7:
            self._at += 8
            return None
        raise ValueError(f"a value of the unknown type {kind}")

    def _struct(self, depth: int) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.value(4)
            fields[number] = self.value(head & 15, depth + 1)
        return fields


def read_footer(file: Any) -> bytes:
    """Read the footer of an open Parquet file, without parsing it."""
    size = file.size()
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - 8 - length))
    return bytes(file.read(length))


def row_groups(footer: bytes) -> list[int | None]:
    """Parse the number of candidates per row group; raise ValueError if a footer is damaged or encrypted."""
    try:
        return [
            _candidates([column[3] for column in group[1]])
            for group in _ThriftReader(footer).value(_STRUCT)[4]
        ]
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("damaged or encrypted metadata of a column") from error


def _candidates(columns: list[dict[int, Any]]) -> int | None:
    """The candidates are as many as their ids. The two names in the middle depend on the writer."""
    counts = [int(column[5]) for column in columns if (column[3][0], *column[3][3:]) == _CANDIDATE_ID]
    return counts[0] if counts else None


def check_columns(path: PathOrUrl, schema: pa.Schema, name: Table) -> None:
    """Raise if a column of the JSON Schema ``name`` is missing, is there twice, or has another type."""
    for field in arrow_schema(name):
        check_once(path, schema, field)
        index = schema.get_field_index(field.name)
        if index < 0:
            columns = ", ".join(schema.names) or "no column"
            raise InputError(path, value=columns, expected=f"a column {field.name!r} of type {field.type}")
        kind = schema.field(index).type
        if not is_type(kind, field.type, is_id=field.name.endswith("_id")):
            raise InputError(path, column=field.name, value=str(kind), expected=f"type {field.type}")


def check_once(
    path: PathOrUrl, columns: pa.Schema | pa.StructType, field: pa.Field, inside: str = ""
) -> None:
    """Raise if several columns have the name of a field, or of a field nested in it."""
    found = columns.get_all_field_indices(field.name)
    if len(found) > 1:
        problem = f"{len(found)} columns of this name"
        raise InputError(path, column=f"{inside}{field.name}", problem=problem, expected="one")
    kind, nested = (columns.field(found[0]).type if found else None), field.type
    if pa.types.is_list(nested) and isinstance(kind, pa.ListType | pa.LargeListType):
        kind, nested = kind.value_type, nested.value_type
    if pa.types.is_struct(nested) and isinstance(kind, pa.StructType):
        for child in nested:
            check_once(path, kind, child, f"{inside}{field.name}.")


def is_type(kind: pa.DataType, expected: pa.DataType, *, is_id: bool = False) -> bool:
    """Whether ``kind`` is ``expected``, a large or dictionary-encoded variant, or a number of another size.

    Ids, which are texts, may be whole numbers.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(expected):
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        return is_text or (is_id and pa.types.is_integer(kind))
    if pa.types.is_floating(expected):
        return pa.types.is_floating(kind)
    if pa.types.is_integer(expected):
        return pa.types.is_integer(kind)
    if pa.types.is_list(expected):
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return is_list and is_type(kind.value_type, expected.value_type)
    if pa.types.is_struct(expected):
        if not pa.types.is_struct(kind):
            return False
        indices = [(field, kind.get_field_index(field.name)) for field in expected]
        return all(
            index >= 0 and is_type(kind.field(index).type, field.type, is_id=field.name.endswith("_id"))
            for field, index in indices
        )
    return bool(kind == expected)


def strings(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert strings of any type to one array with 64-bit offsets."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # no chunk, or too large for one array
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    return array.cast(pa.large_string())


def to_numpy(array: pa.Array) -> np.ndarray:
    """Convert numbers or booleans without nulls. ``pyarrow.Array.to_numpy`` would import pandas."""
    import polars as pl

    return pl.Series(array).to_numpy()


def to_arrow(values: np.ndarray) -> pa.Array:
    """Convert numbers or booleans. ``pyarrow.array`` would import pandas."""
    import polars as pl

    return pl.Series(values).to_arrow()


class Column(NamedTuple):
    """A column of strings, and its location for errors."""

    path: PathOrUrl
    name: str
    values: pa.Array
    row: str = "row"  # description of a row in errors
    rows: np.ndarray | None = None  # (values,) the row of each value; None is its index

    def check(self) -> None:
        """Raise if a value is null or not UTF-8."""
        self.check_nulls()
        self.check_text()

    def check_nulls(self) -> None:
        """Raise if a value is null."""
        if self.values.null_count:
            raise self.error(to_numpy(self.values.is_null()), "a value")

    def check_text(self) -> None:
        """Raise if a value is not UTF-8, which Parquet does not guarantee."""
        try:
            self.values.validate(full=True)
        except pa.ArrowInvalid as error:
            binary = self.values.cast(pa.large_binary())
            is_bad = np.array([not _is_utf8(value.as_py() or b"") for value in binary])
            if not is_bad.any():
                raise
            raise self._replace(values=binary).error(is_bad, "text in UTF-8") from error

    def check_ids(self, pattern: str, expected: str) -> None:
        """Raise if an id does not match a pattern of ``formats.ids``."""
        is_legal = to_numpy(pc.match_substring_regex(self.values, pattern))
        if not is_legal.all():
            raise self.error(~is_legal, expected)

    def check_distinct(self, expected: str, *, in_row: bool = False) -> None:
        """Raise if a value is repeated, or with ``in_row`` repeated in its row."""
        keys = to_numpy(self.values.dictionary_encode().indices).astype(np.int64)
        if in_row and self.rows is not None:
            keys += self.rows * (int(keys.max(initial=0)) + 1)
        order = np.argsort(keys, kind="stable")
        is_repeated = np.zeros(len(keys), dtype=bool)
        is_repeated[order[1:]] = keys[order][1:] == keys[order][:-1]
        if is_repeated.any():
            raise self.error(is_repeated, expected)

    def error(self, is_bad: np.ndarray, expected: str) -> InputError:
        """The error for the first bad value."""
        index = int(np.argmax(is_bad))
        return InputError(
            self.path,
            position=f"{self.row} {index if self.rows is None else self.rows[index]}",
            column=self.name,
            value=self.values[index].as_py(),
            expected=expected,
        )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
