"""Packed input files, which are decompressed while they are read: gzip, bzip2 and xz."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, cast

from typing_extensions import override

from aptool.errors import InputError
from aptool.files import ReplacedError, open_binary, stat
from aptool.paths import PathOrUrl, file_errors

_PACKED = re.compile(rb"(?P<gzip>\x1f\x8b)|(?P<bzip2>BZh[1-9]1AY&SY)|(?P<xz>\xfd7zXZ\0)", re.DOTALL)
_LONGEST_MAGIC = 10
_SAVE_SHEET = "text, such as the sheet saved as CSV in UTF-8"
# First bytes of files that are not text, with the name of the format and what to pass instead.
_BINARY_FORMATS = {
    b"PK\x03\x04": ("an Excel workbook or a ZIP archive", _SAVE_SHEET),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", _SAVE_SHEET),
    b"PAR1": ("a Parquet file", "text"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("text in UTF-16", "text in UTF-8")),
    **{bytes([0x80, protocol]): ("a Python pickle", "text") for protocol in range(2, 6)},
    b"\x28\xb5\x2f\xfd": ("zstd data", "text, or gzip, bzip2 or xz data"),
}

_BLOCK_BYTES = 1 << 17


class Input(NamedTuple):
    """An input file and its expected version; with None, any version is valid."""

    path: str
    version: str | None


def check_unchanged(inputs: Iterable[Input]) -> None:
    """Raise if a file has been replaced."""
    for path, version in inputs:
        if version is not None and stat(path).version != version:
            raise ReplacedError(path)


@contextmanager
def open_unpacked(path: PathOrUrl) -> Iterator[io.BufferedReader[Any]]:
    """Open a local file or a URL for reading, unpacked if it is gzip, bzip2 or xz; it may not be seekable."""
    with open_binary(path) as opened:
        # A file served over HTTP without byte ranges cannot seek; a buffer allows a look at its first bytes.
        file = io.BufferedReader(cast(io.RawIOBase, opened))
        with file_errors(path):
            packed = _PACKED.match(file.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC])
        yield Unpacked(path, file, str(packed.lastgroup)) if packed is not None else file


def check_is_text(path: PathOrUrl, data: bytes) -> None:
    """Raise if the content of a file is of another known format."""
    for magic, (name, expected) in _BINARY_FORMATS.items():
        if data.startswith(magic):
            raise InputError(path, problem=name, expected=expected)
    if is_pickle(data):
        raise InputError(path, problem="a Python pickle", expected="text")


def is_pickle(data: bytes) -> bool:
    """Whether data are a whole Python pickle of any protocol; its opcodes are read, not executed."""
    if not data.endswith(b"."):  # the last opcode
        return False
    import pickletools

    try:
        positions = [position for *_, position in pickletools.genops(data)]
        return 0 < (positions[-1] or 0) == len(data) - 1
    except Exception:
        return False


def unpacked_name(path: PathOrUrl) -> str:
    """A path without the suffix of a compressed file."""
    return re.sub(r"\.(gz|bz2|xz)$", "", str(path), flags=re.IGNORECASE)


class Unpacked(io.BufferedReader):
    """The decompressed content of a stream."""

    def __init__(self, path: object, file: IO[bytes], kind: str) -> None:
        """Decompress ``file``, of kind gzip, bzip2 or xz; errors name ``path``."""
        super().__init__(_Decompressor(path, file, kind), _BLOCK_BYTES)


_OPENERS: dict[str, Callable[[IO[bytes]], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


class _Decompressor(io.RawIOBase):
    def __init__(self, path: object, file: IO[bytes], kind: str) -> None:
        self._path, self._kind = path, kind
        self._unpacked = _OPENERS[kind](file)

    @override
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._unpacked.read1(len(buffer))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            expected = f"a complete {self._kind} file"
            raise InputError(str(self._path), problem=str(error), expected=expected) from error
        buffer[: len(data)] = data
        return len(data)

    @override
    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_BLOCK_BYTES) or b"", b""))
