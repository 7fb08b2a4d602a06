"""Parquet files: schemas, reading, footers, and vectorized checks of columns.

Errors name the file and the row group or row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from aptool.errors import InputError, first_line
from aptool.files import ReplacedError, open_input, stat
from aptool.paths import PathOrUrl, file_errors, is_remote

_READABLE = "a readable Parquet file"

# An object of at most this size is read with one request, a larger one with requests for footer and columns.
_SMALL_BYTES = 8 << 20


@cache
def arrow_schema(name: str, *, optional: bool = False) -> pa.Schema:
    """The columns of ``answers``, ``pools``, ``qrels`` or ``scores``, with or without the optional ones."""
    question_id, answer_id, question, text = (
        pa.field(column, pa.string(), nullable=False)
        for column in ("question_id", "answer_id", "question", "text")
    )
    if name == "answers":
        return pa.schema([answer_id, text])
    if name == "qrels":
        return pa.schema([question_id, answer_id, pa.field("relevance", pa.int64(), nullable=False)])
    if name == "scores":
        ranks = [pa.field("rank", pa.int64(), nullable=False)] if optional else []
        return pa.schema([question_id, answer_id, *ranks, pa.field("score", pa.float64(), nullable=False)])
    columns = [answer_id, text.with_nullable(True)]
    if optional:
        columns.append(pa.field("text_id", pa.string()))
    candidate = pa.field("element", pa.struct(columns), nullable=False)
    candidates = pa.field("candidates", pa.list_(candidate), nullable=False)
    return pa.schema([question_id, question, candidates])


class ParquetReader:
    """An open Parquet file."""

    def __init__(self, path: PathOrUrl, file: pa.NativeFile, version: str | None = None) -> None:
        """Read the footer; errors name ``path``, or say that its ``version`` was replaced."""
        self._path, self._version = str(path), version
        options: dict[str, Any] = {"pre_buffer": True, "page_checksum_verification": True}
        with self._errors(None):
            self._file = pq.ParquetFile(file, **options)
            self.schema: pa.Schema = self._file.schema_arrow
            self.metadata: pq.FileMetaData = self._file.metadata
        with self._errors("schema"):  # of names that are not UTF-8
            columns = range(self.metadata.num_columns)
            self._columns = [self._file.schema.column(number).path for number in columns]

    def read(self, columns: list[str]) -> pa.Table:
        """Read columns."""
        with self._errors("file"):
            return self._file.read(columns)

    def read_row_groups(
        self,
        groups: Sequence[int],
        columns: list[str],
        batch: int | None = None,
        rows: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Read columns of row groups, in chunks of ``batch`` rows (default: of all rows).

        A chunk holds at most 2 GiB of a nested column of texts. ``rows`` are begin and end (exclusive) within
        a single row group; the rows before them are decoded and dropped.
        """
        begin, end = rows if rows is not None else (0, sum(map(self.rows_of, groups)))
        position = f"row group {groups[0]}" if len(groups) == 1 else f"row groups {groups[0]} to {groups[-1]}"
        try:
            with self._errors(position):
                batches = self._batches(groups, columns, batch or max(1, end), begin, end)
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

    @contextmanager
    def _errors(self, position: str | None) -> Iterator[None]:
        try:
            yield
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
        content = file
        if is_remote(path) and file.size() <= _SMALL_BYTES:
            with file_errors(path):
                content = pa.BufferReader(file.read_buffer())
        yield ParquetReader(path, content, version)


def write_tables(path: PathOrUrl | IO[bytes], schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write a Parquet file, a row group per table, with page checksums, which detect a flipped bit."""
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for table in tables:
            writer.write_table(table)


def check_columns(path: PathOrUrl, schema: pa.Schema, name: str) -> None:
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


def to_numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Convert numbers or booleans without nulls. ``pyarrow.Array.to_numpy`` would import pandas."""
    return pl.Series(array).to_numpy()


def to_arrow(values: np.ndarray) -> pa.Array:
    """Convert numbers or booleans. ``pyarrow.array`` would import pandas."""
    return pl.Series(values).to_arrow()


def text_column(
    path: PathOrUrl,
    name: str,
    column: pa.ChunkedArray,
    place: Callable[[int], str] = "row {}".format,
    *,
    nullable: bool = False,
) -> pa.Array:
    """The texts of a column; raise for null and for a value that is not UTF-8, which Parquet allows.

    ``place`` is the position of a value in errors.
    """
    column = column.cast(pa.large_string())
    values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    is_bad, expected = pl.Series(values.is_null()), "a value"
    if nullable or not values.null_count:
        try:
            values.validate(full=True)
            return values
        except pa.ArrowInvalid:
            values, expected = values.cast(pa.large_binary()), "text in UTF-8"
            data = (value or b"" for value in values.to_pylist())
            is_bad = pl.Series([each.decode("utf-8", "ignore").encode() != each for each in data])
    row = int(np.argmax(is_bad))
    raise InputError(path, position=place(row), column=name, value=values[row].as_py(), expected=expected)


def check_distinct(
    path: PathOrUrl, column: pl.Series, expected: str, place: Callable[[int], str] = "row {}".format
) -> None:
    """Raise if a value of a column is repeated."""
    is_repeated = ~column.is_first_distinct()
    if is_repeated.any():
        row = int(np.argmax(is_repeated))
        expected = f"{expected}, but it is also in {place(int(np.argmax(column == column[row])))}"
        raise InputError(path, position=place(row), column=column.name, value=column[row], expected=expected)
