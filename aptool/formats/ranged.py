"""A file of a store as a Python file: each read fetches the bytes asked for and no others."""

import io
from typing import Any

from aptool.formats.store import Stat, Store


class RangedFile(io.RawIOBase):
    """A file of one version; reading ends with an error if another takes its place."""

    def __init__(self, store: Store, key: str, stat: Stat) -> None:
        """Opens it, without a request."""
        self._store, self._key, self._stat = store, key, stat
        self._at = 0

    @property
    def version(self) -> str:
        """The version that is read."""
        return self._stat.version

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to another place; fetches nothing."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stat.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer, less at the end of the file."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """At most ``size`` bytes, all that are left if it is negative."""
        end = self._stat.size if size is None or size < 0 else min(self._at + size, self._stat.size)
        if end <= self._at:
            return b""
        data = self._store.read(self._key, self._at, end, self._stat.version)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """All bytes that are left, in one request."""
        return self.read()
