"""Text files, local or remote, plain or packed: lines, and JSON Lines.

A line ends in LF or CR LF and nowhere else: Python's ``str.splitlines`` would also end one at U+2028, and
`csv` at a lone CR. A byte order mark is skipped.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from aptool.documents import parse_json
from aptool.errors import InputError
from aptool.files import check_is_text, open_unpacked

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Row = TypeVar("Row")


def read_lines(path: str | Path, encoding: str | None = None, hint: str = "") -> Iterator[tuple[int, str]]:
    """Read the lines of a text file, with their numbers from 1; refuse NUL bytes and lone CR.

    An ``encoding`` of None is UTF-8. The error for another encoding has the ``hint``.
    """
    with open_unpacked(path) as file:
        lines: Iterable[bytes] = file
        if encoding is None:
            check_is_text(path, file.peek())
        else:
            text = io.TextIOWrapper(file, encoding, newline="\n")
            lines = (line.encode() for line in text)
        for number, raw in enumerate(lines, 1):
            line = raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw
            yield number, _decode(path, number, line, hint)


def read_rows(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read lines as `read_lines` does; blank lines are skipped at the end and refused elsewhere."""
    return without_blank_end(path, read_lines(path), str.strip)


def without_blank_end(
    path: str | Path, rows: Iterable[tuple[int, Row]], content: Callable[[Row], object]
) -> Iterator[tuple[int, Row]]:
    """Yield numbered rows; rows without content are skipped at the end and refused elsewhere."""
    blank = 0
    for number, row in rows:
        if not content(row):
            blank = blank or number
        elif blank:
            expected = "a row; only the end may be blank"
            raise InputError(path, position=f"line {blank}", value="", expected=expected)
        else:
            yield number, row


def _decode(path: str | Path, number: int, raw: bytes, hint: str) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        position = f"line {number}, byte {error.start + 1}"
        bad = raw[error.start : error.start + 1]
        raise InputError(path, position=position, value=bad, expected=f"text in UTF-8{hint}") from error
    for byte, name, expected in (
        (b"\0", "a NUL byte", "text, not a binary file"),
        (b"\r", "a carriage return", "lines that end in LF or CR LF"),
    ):
        if byte in raw:
            position = f"line {number}, byte {raw.index(byte) + 1}"
            raise InputError(path, position=position, value=name, expected=expected)
    return line


def read_json_lines(
    path: str | Path, encoding: str | None = None, hint: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the object of each line, with its position; blank lines are skipped."""
    for number, line in read_lines(path, encoding, hint):
        if line.strip():
            position, expected = f"line {number}", "one JSON object per line"
            value = parse_json(line, path, position=position, expected=expected, strict=True)
            if not isinstance(value, dict):
                raise InputError(path, position=position, value=value, expected=expected)
            yield position, value
