"""Numbers of values in a Parquet footer, read without Arrow's metadata of columns.

Arrow aborts the process where a footer's metadata of a column are damaged or encrypted, and Python cannot
catch that. The footer is Thrift in its compact protocol; fields that are not needed are skipped.
"""

from typing import Any, NamedTuple

_STRUCT, _LIST, _SET, _BINARY, _MAP = 12, 9, 10, 8, 11
_DEEPEST = 32


class _Reader:
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


class RowGroup(NamedTuple):
    """What a footer says of a row group.

    Attributes:
        values: the number of values of each column, by its path.
        packed: bytes of all columns in the file.
        unpacked: bytes of all columns when they are read; repeated texts count each time, where the footer
            says so.
    """

    values: dict[tuple[str, ...], int]
    packed: int
    unpacked: int


def row_groups(footer: bytes) -> list[RowGroup]:
    """The row groups of a footer.

    Raises:
        ValueError: it is not a footer, or the metadata of a column are encrypted.
    """
    try:
        return [_row_group([column[3] for column in group[1]]) for group in _Reader(footer).value(_STRUCT)[4]]
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("damaged or encrypted metadata of a column") from error


def _row_group(columns: list[dict[int, Any]]) -> RowGroup:
    values = {tuple(part.decode("utf-8") for part in column[3]): int(column[5]) for column in columns}
    decoded = [
        column.get(16, {}).get(1, 0) for column in columns
    ]  # bytes of text, where a writer counts them
    unpacked = sum(max(column[6], text) for column, text in zip(columns, decoded, strict=True))
    return RowGroup(values, sum(column[7] for column in columns), unpacked)


def candidate_counts(groups: list[RowGroup]) -> list[int]:
    """The number of candidates in each row group of a pools file.

    No pool is empty, so every value of the column of their ids is a candidate.

    Raises:
        ValueError: a row group has no such column.
    """
    return [_candidates(group.values) for group in groups]


def _candidates(columns: dict[tuple[str, ...], int]) -> int:
    # Between the two come the names that a writer gives a list and its elements.
    for path, count in columns.items():
        if len(path) == 4 and path[0] == "candidates" and path[-1] == "answer_id":
            return count
    raise ValueError("no column candidates.answer_id in the metadata of a row group")
