"""Parquet files: reading, footers, and vectorized checks of columns.

Errors name the file and the row group or row.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aptool.data.schemas import Table, arrow_schema
from aptool.errors import InputError, first_line
from aptool.files import ReplacedError, open_input, stat
from aptool.paths import PathOrUrl

T = TypeVar("T")

_READABLE = "a readable Parquet file"


class ParquetReader:
    """An open Parquet file."""

    def __init__(self, path: PathOrUrl, file: pa.NativeFile, version: str | None = None) -> None:
        """Read the footer; errors name ``path``, or say that its ``version`` was replaced."""
        self._path, self._version = str(path), version
        options: dict[str, Any] = {"pre_buffer": True, "page_checksum_verification": True}
        self._file = self._checked(None, lambda: pq.ParquetFile(file, **options))
        self.schema: pa.Schema = self._checked(None, lambda: self._file.schema_arrow)
        self.metadata: pq.FileMetaData = self._file.metadata
        columns = range(self.metadata.num_columns)
        # Raises if a name is not UTF-8.
        self._columns = self._checked("schema", lambda: [self._file.schema.column(i).path for i in columns])

    def read(self, columns: list[str]) -> pa.Table:
        """Read columns."""
        return self._checked("file", lambda: self._file.read(columns))

    def read_row_group(self, group: int, columns: list[str]) -> pa.Table:
        """Read columns of a row group."""
        return self.read_row_groups([group], columns, self.rows_of(group) or 1)

    def read_row_groups(
        self, groups: Sequence[int], columns: list[str], batch: int, rows: tuple[int, int] | None = None
    ) -> pa.Table:
        """Read columns of row groups, in chunks of ``batch`` rows.

        A chunk holds at most 2 GiB of a nested column of texts. ``rows`` are begin and end (exclusive) within
        a single row group; the rows before them are decoded and dropped.
        """
        begin, end = rows if rows is not None else (0, sum(map(self.rows_of, groups)))
        position = f"row group {groups[0]}" if len(groups) == 1 else f"row groups {groups[0]} to {groups[-1]}"
        try:
            batches = self._checked(position, lambda: self._batches(groups, columns, batch, begin, end))
            found = sum(each.num_rows for each in batches)
            if found != end - begin:  # Arrow does not compare
                problem = f"{found} rows, but {end - begin} in the footer"
                raise InputError(self._path, position=position, problem=problem, expected=_READABLE)
        except InputError:
            if len(groups) == 1:
                raise
            # One by one, to name the one at fault; and Arrow joins no nested columns of other dictionaries.
            return pa.concat_tables([self.read_row_groups([group], columns, batch) for group in groups])
        schema = None if batches else pa.schema([self.schema.field(name) for name in columns])
        return pa.Table.from_batches(batches, schema)

    def _batches(
        self, groups: Sequence[int], columns: list[str], batch: int, begin: int, end: int
    ) -> list[pa.RecordBatch]:
        batches, at = [], 0
        for read in self._file.iter_batches(batch, list(groups), columns):
            first, at = at, at + read.num_rows
            if at > begin:
                batches.append(read.slice(max(0, begin - first), end - max(begin, first)))
            if at >= end:
                break
        return batches

    def rows_of(self, group: int) -> int:
        """The number of rows of a row group."""
        return int(self.metadata.row_group(group).num_rows)

    def candidate_counts(self) -> list[int]:
        """The number of candidates in each row group of a pools file."""
        # The two names in the middle of the path depend on the writer.
        paths = [path.split(".")[::3] for path in self._columns]
        column = paths.index(["candidates", "answer_id"]) if ["candidates", "answer_id"] in paths else None
        if column is None:
            problem = "no column candidates.answer_id in the metadata"
            raise InputError(self._path, problem=problem, expected=_READABLE)
        groups = range(self.metadata.num_row_groups)
        return [self.metadata.row_group(group).column(column).num_values for group in groups]

    def rows(self, columns: list[str]) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dictionaries, with one row group in memory."""
        for group in range(self.metadata.num_row_groups):
            table = self.read_row_group(group, columns)
            yield from self._checked(f"row group {group}", table.to_pylist)

    def _checked(self, position: str | None, read: Callable[[], T]) -> T:
        try:
            return read()
        except InputError:
            raise
        except Exception as error:  # Arrow raises various types on damaged bytes
            if self._version is not None and stat(self._path).version != self._version:
                raise ReplacedError(self._path) from error
            raise InputError(
                self._path, position=position, problem=first_line(error), expected=_READABLE
            ) from error


@contextmanager
def open_parquet(path: PathOrUrl, version: str | None = None) -> Iterator[ParquetReader]:
    """Open a Parquet file; see ``files.open_input``."""
    with open_input(path, version) as file:
        yield ParquetReader(path, file, version)


def parquet_writer(path: PathOrUrl | IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of Parquet files with page checksums, which detect a flipped bit."""
    return pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)


def check_columns(path: PathOrUrl, schema: pa.Schema, name: Table) -> None:
    """Raise if a column of the JSON Schema ``name`` is missing, is there twice, or has another type."""
    for field in arrow_schema(name):
        check_once(path, schema.names, field.name)
        index = schema.get_field_index(field.name)
        if index < 0:
            columns = ", ".join(schema.names) or "no column"
            raise InputError(path, value=columns, expected=f"a column {field.name!r} of type {field.type}")
        kind = schema.field(index).type
        if not is_type(kind, field.type, is_id=field.name.endswith("_id")):
            raise InputError(path, column=field.name, value=str(kind), expected=f"type {field.type}")


def check_once(path: PathOrUrl, names: Sequence[str], column: str) -> None:
    """Raise if several columns have a name."""
    if names.count(column) > 1:
        problem = f"{names.count(column)} columns of this name"
        raise InputError(path, column=column, problem=problem, expected="one")


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
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    arrays = [chunk.cast(pa.large_string()) for chunk in chunks]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays([pa.nulls(0, pa.large_string()), *arrays])


def to_numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Convert numbers or booleans without nulls. ``pyarrow.Array.to_numpy`` would import pandas."""
    import polars as pl

    return pl.Series(array).to_numpy()


def to_arrow(values: np.ndarray) -> pa.Array:
    """Convert numbers or booleans. ``pyarrow.array`` would import pandas."""
    import polars as pl

    return pl.Series(values).to_arrow()


def _place(row: int) -> str:
    return f"row {row}"


class Column(NamedTuple):
    """A column of strings, and its location for errors."""

    path: PathOrUrl
    name: str
    values: pa.Array | pa.ChunkedArray
    place: Callable[[int], str] = _place  # the position of a row in errors
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
        """Raise if an id does not match a pattern of ``data.ids``."""
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
        if not is_repeated.any():
            return
        if not in_row:
            first = int(np.argmax(keys == keys[np.argmax(is_repeated)]))
            expected = f"{expected}, but it is also in {self._position(first)}"
        raise self.error(is_repeated, expected)

    def error(self, is_bad: np.ndarray, expected: str) -> InputError:
        """The error for the first bad value."""
        index = int(np.argmax(is_bad))
        return InputError(
            self.path,
            position=self._position(index),
            column=self.name,
            value=self.values[index].as_py(),
            expected=expected,
        )

    def _position(self, index: int) -> str:
        return self.place(index if self.rows is None else int(self.rows[index]))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
