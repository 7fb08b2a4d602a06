"""Gzip streams: decompressed while reading; refuses data that expands far more than text does."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Protocol, cast

from typing_extensions import override

from aptool.errors import InputError

GZIP = b"\x1f\x8b"

# Text compresses by a factor of 20, repeated lines by 100; gzip bombs by 1,000.
MOST_TIMES = 200
ALWAYS_BYTES = 64 << 20


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; empty at the end."""


class _Counted:
    """A stream that counts what is read of it."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.bytes = 0

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self.bytes += len(data)
        return data


class Unpacked(gzip.GzipFile):
    """The content of a gzip stream; reading raises InputError with the file's name if it is damaged."""

    def __init__(self, path: object, file: Readable) -> None:
        """Decompress ``file``; ``path`` is its name in messages."""
        self._path = path
        self._packed = _Counted(file)
        self._unpacked = 0
        super().__init__(fileobj=cast(IO[bytes], self._packed), mode="rb")

    @override
    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        with sound_gzip(self._path):
            return self._checked(super().read(size))

    @override
    def read1(self, size: int = -1) -> bytes:
        with sound_gzip(self._path):
            return self._checked(super().read1(size))

    @override
    def readline(self, size: int | None = -1) -> bytes:
        pieces = []
        with sound_gzip(self._path):
            while True:
                piece = self._checked(super().readline(1 << 20))
                pieces.append(piece)
                if not piece or piece.endswith(b"\n"):
                    return b"".join(pieces)

    def _checked(self, data: bytes) -> bytes:
        self._unpacked += len(data)
        if self._unpacked > ALWAYS_BYTES and self._unpacked > MOST_TIMES * self._packed.bytes:
            problem = f"unpacks to more than {MOST_TIMES} times its size"
            raise InputError(str(self._path), problem=problem, expected="packed text, or the file unpacked")
        return data


@contextmanager
def sound_gzip(path: object) -> Iterator[None]:
    """Raise damage of a gzip stream as an InputError with the file's name."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(str(path), problem=str(error), expected="a complete gzip file") from error
