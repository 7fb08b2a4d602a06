"""Parquet files, local or at a URL, and their footers; an error names the file and the row group."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from aptool.errors import InputError, first_line
from aptool.formats import storage
from aptool.formats.location import PathOrUrl
from aptool.formats.unpacking import MOST_TIMES

T = TypeVar("T")

# A row group that unpacks to more than this, and to more than MOST_TIMES its size, is refused.
MOST_BYTES = 256 << 20

# Types of Thrift's compact protocol, and the deepest nesting that is read.
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12
_DEEPEST = 32


class RowGroup(NamedTuple):
    """The metadata of a row group."""

    values: dict[tuple[str, ...], int]  # number of values of each column, by its path
    packed: int  # bytes of all columns in the file
    unpacked: int  # bytes of all columns in memory; the footer may count a repeated text once


class _Footer(NamedTuple):
    metadata: pq.FileMetaData
    groups: list[RowGroup]


# LRU cache of footers: each row group is a unit of work, which opens its file again.
_footers: OrderedDict[tuple[str, str], _Footer] = OrderedDict()
_MOST_FOOTERS = 8


class ParquetReader:
    """An open Parquet file."""

    def __init__(self, path: PathOrUrl, file: pa.NativeFile, version: str | None = None) -> None:
        """Read the footer, unless it is cached for this ``version``; ``path`` is for messages."""
        self._path = str(path)
        self._source = file
        self._threads = not isinstance(file, pa.PythonFile)  # see storage.open_native
        self._cache_key = None if version is None else (self._path, version)
        footer = None if self._cache_key is None else _footers.get(self._cache_key)
        metadata = None if footer is None else footer.metadata
        self._groups = None if footer is None else footer.groups
        self._file = self._checked(
            None, lambda: pq.ParquetFile(file, metadata=metadata, page_checksum_verification=True)
        )
        self.schema: pa.Schema = self._checked(None, lambda: self._file.schema_arrow)
        for field in self.schema:
            self._checked("schema", partial(_names, field))
        self.metadata: pq.FileMetaData = self._file.metadata

    def read(self, columns: list[str]) -> pa.Table:
        """Some columns of all rows; raises if they unpack to far more than text does."""
        for group in range(self.metadata.num_row_groups):
            self._check_size(group)
        return self._checked("file", lambda: self._file.read(columns, use_threads=self._threads))

    def read_row_group(self, group: int, columns: list[str]) -> pa.Table:
        """Some columns of a row group; raises if they unpack to far more than text does."""
        self._check_size(group)
        place = f"row group {group}"
        return self._checked(
            place, lambda: self._file.read_row_group(group, columns, use_threads=self._threads)
        )

    def candidate_counts(self) -> list[int]:
        """The number of candidates in each row group of a pools file."""
        return self._checked(None, lambda: candidate_counts(self._row_groups()))

    def rows(self, columns: list[str]) -> Iterator[dict[str, Any]]:
        """Some columns of all rows as plain values, one row group in memory at a time."""
        for group in range(self.metadata.num_row_groups):
            table = self.read_row_group(group, columns)
            yield from self._checked(f"row group {group}", table.to_pylist)

    def _check_size(self, group: int) -> None:
        """Raise if, by the footer, a row group unpacks to far more than text does."""
        size = self._checked(None, lambda: self._row_groups()[group])
        if size.unpacked > MOST_BYTES and size.unpacked > MOST_TIMES * size.packed:
            problem = f"unpacks to {size.unpacked:,} bytes, more than {MOST_TIMES} times its size"
            expected = f"texts, or row groups of at most {MOST_BYTES >> 20} MiB unpacked"
            raise InputError(self._path, place=f"row group {group}", problem=problem, expected=expected)

    def _row_groups(self) -> list[RowGroup]:
        if self._groups is None:
            self._groups = row_groups(read_footer(self._source))
            if self._cache_key is not None:
                _footers[self._cache_key] = _Footer(self.metadata, self._groups)
                while len(_footers) > _MOST_FOOTERS:
                    _footers.popitem(last=False)
        return self._groups

    def _checked(self, place: str | None, read: Callable[[], T]) -> T:
        try:
            return read()
        except InputError:  # the file was replaced, or a store refuses it
            raise
        except Exception as error:  # whatever Arrow can raise on damaged bytes
            expected = "a readable Parquet file"
            raise InputError(self._path, place=place, problem=first_line(error), expected=expected) from error


def _names(field: pa.Field) -> list[str]:
    """The names of a column and its nested columns; raises for a name that is not UTF-8."""
    kind = field.type
    return [field.name, *(name for i in range(kind.num_fields) for name in _names(kind.field(i)))]


@contextmanager
def open_parquet(path: PathOrUrl, version: str | None = None) -> Iterator[ParquetReader]:
    """Open a Parquet file, at an expected version; see ``storage.open_native``."""
    with storage.open_native(path, version) as file:
        yield ParquetReader(path, file, version)


def parquet_writer(path: PathOrUrl, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of Parquet files with page checksums, by which readers find a changed bit."""
    return pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)


class _ThriftReader:
    """Reads values of Thrift's compact protocol."""

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
        """A value: a struct is a dictionary by field number."""
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
    """The footer of an open Parquet file."""
    size = file.size()
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - 8 - length))
    return bytes(file.read(length))


def row_groups(footer: bytes) -> list[RowGroup]:
    """The row groups of a footer; raises ValueError for other bytes and encrypted metadata."""
    try:
        return [
            _row_group([column[3] for column in group[1]])
            for group in _ThriftReader(footer).value(_STRUCT)[4]
        ]
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("damaged or encrypted metadata of a column") from error


def _row_group(columns: list[dict[int, Any]]) -> RowGroup:
    values = {tuple(part.decode("utf-8") for part in column[3]): int(column[5]) for column in columns}
    decoded = [column.get(16, {}).get(1, 0) for column in columns]  # bytes of text, if the writer counts them
    unpacked = sum(max(column[6], text) for column, text in zip(columns, decoded, strict=True))
    return RowGroup(values, sum(column[7] for column in columns), unpacked)


def candidate_counts(groups: list[RowGroup]) -> list[int]:
    """The number of candidates in each row group of a pools file.

    No pool is empty, so the column of candidate ids has a value per candidate.
    """
    return [_candidates(group.values) for group in groups]


def _candidates(columns: dict[tuple[str, ...], int]) -> int:
    # The two names in the middle depend on the writer.
    for path, count in columns.items():
        if len(path) == 4 and path[0] == "candidates" and path[-1] == "answer_id":
            return count
    raise ValueError("no column candidates.answer_id in the metadata of a row group")
