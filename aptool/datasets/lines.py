"""Lines of text files, local or remote, plain or gzip.

A line ends in LF or CR LF and nowhere else: Python's ``str.splitlines`` would also end one at U+2028, and
`csv` at a lone CR. A byte order mark is skipped; gzip is detected by its first bytes.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from aptool.errors import AptoolError, InputError
from aptool.formats import storage
from aptool.formats.unpacking import GZIP, Unpacked
from aptool.formats.urls import is_remote

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a UTF-8 file, with their numbers from 1; refuse NUL bytes and lone CR."""
    with open_plain(path) as file:
        number = 0
        while True:
            with readable(path):
                raw = file.readline()
            if not raw:
                return
            number += 1
            if number == 1:
                raw = raw.removeprefix(_BYTE_ORDER_MARK)
            yield number, _decode(path, number, raw)


def read_rows(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read lines as `read_lines` does; blank lines are skipped at the end and refused elsewhere."""
    blank = 0
    for number, line in read_lines(path):
        if not line.strip():
            blank = blank or number
        elif blank:
            expected = "a row; only the end may be blank"
            raise InputError(path, place=f"line {blank}", value="", expected=expected)
        else:
            yield number, line


@contextmanager
def open_plain(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, unpacked if it is gzip. It need not be seekable."""
    with readable(path):
        opened = storage.open_binary(path)
    with opened:
        # A file served over HTTP without byte ranges cannot seek; a buffer allows a look at its first bytes.
        file = io.BufferedReader(cast(io.RawIOBase, opened))
        with readable(path):
            is_packed = file.peek(2)[:2] == GZIP
        yield cast(IO[bytes], Unpacked(path, file) if is_packed else file)


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Raise failures to open or read a file as `InputError`."""
    try:
        yield
    except AptoolError:
        raise
    except OSError as error:
        raise storage.unreadable(path, error) from error
    except Exception as error:
        # fsspec's file systems raise exceptions of their own, such as a server's refusal.
        if is_remote(path):
            raise storage.unreadable(path, error) from error
        raise


def _decode(path: str | Path, number: int, raw: bytes) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    for byte, name, expected in (
        (b"\0", "a NUL byte", "text, not a binary file"),
        (b"\r", "a carriage return", "lines that end in LF or CR LF"),
    ):
        if byte in raw:
            place = f"line {number}, byte {raw.index(byte) + 1}"
            raise InputError(path, place=place, value=name, expected=expected)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"line {number}, byte {error.start + 1}"
        bad = raw[error.start : error.start + 1]
        raise InputError(path, place=place, value=bad, expected="text in UTF-8") from error
