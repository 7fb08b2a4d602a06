"""Lines of text files, wherever they are, with everything refused that would shift or hide a row.

A line ends in LF or CR LF and nowhere else: Python's ``str.splitlines`` would also end one at U+2028, and
`csv` at a lone CR. A byte order mark is skipped; gzip is recognised by its first bytes.
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
    """The lines of a UTF-8 file, local or remote, plain or gzip, with their numbers from 1.

    Raises:
        InputError: the file cannot be read, or a line is not text: it names the line and the byte.
    """
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
            yield number, _text(path, number, raw)


def read_rows(path: str | Path) -> Iterator[tuple[int, str]]:
    """The same lines without the blank ones at the end of the file.

    Raises:
        InputError: a blank line is followed by one that is not.
    """
    blank = 0
    for number, line in read_lines(path):
        if not line.strip():
            blank = blank or number
        elif blank:
            raise InputError(
                path, place=f"line {blank}", value="", expected="a row; only the end may be blank"
            )
        else:
            yield number, line


@contextmanager
def open_plain(path: str | Path) -> Iterator[IO[bytes]]:
    """A file opened for reading, unpacked if it is gzip. It need not be seekable.

    Raises:
        InputError: it cannot be opened.
    """
    with open_bytes(path) as opened:
        # A file served over HTTP without byte ranges cannot seek; a buffer lets it be looked at first.
        file = io.BufferedReader(cast(io.RawIOBase, opened))
        with readable(path):
            packed = file.peek(2)[:2] == GZIP
        yield cast(IO[bytes], Unpacked(path, file) if packed else file)


@contextmanager
def open_bytes(path: str | Path) -> Iterator[IO[bytes]]:
    """A file opened for reading as it is.

    Raises:
        InputError: it cannot be opened.
    """
    with readable(path):
        opened = storage.open_binary(path)
    with opened:
        yield opened


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turns what can go wrong while a file is opened or read into an `InputError`."""
    try:
        yield
    except AptoolError:
        raise
    except OSError as error:
        raise storage.unreadable(path, error) from error
    except Exception as error:
        # Each of fsspec's file systems has exceptions of its own, such as a server's refusal.
        if is_remote(path):
            raise storage.unreadable(path, error) from error
        raise


def _text(path: str | Path, number: int, raw: bytes) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    for byte, name, wanted in (
        (b"\0", "a NUL byte", "text, not a binary file"),
        (b"\r", "a carriage return", "lines that end in LF or CR LF"),
    ):
        if byte in raw:
            place = f"line {number}, byte {raw.index(byte) + 1}"
            raise InputError(path, place=place, value=name, expected=wanted)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"line {number}, byte {error.start + 1}"
        bad = raw[error.start : error.start + 1]
        raise InputError(path, place=place, value=bad, expected="text in UTF-8") from error
