"""Storage by name: the interface of disks and object stores.

A disk replaces names atomically by a rename. An object store has neither renames nor folders, but a PUT is
atomic and may be conditional: only if nothing exists (create) or only over a known version (swap). The
methods below are what both can do.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, NamedTuple

from aptool.errors import InputError


class Stat(NamedTuple):
    """Size in bytes, and a version that changes with the file: an ETag, or on a disk size and time."""

    size: int
    version: str


class ReplacedError(InputError):
    """A file was replaced while a command was reading it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            path, problem="replaced while it was read", expected="the same file until the command has ended"
        )


class Store(ABC):
    """Files by key: the absolute path on a disk, the name of an object in its bucket.

    Methods raise ``FileNotFoundError`` for a missing file, and ``InputError`` or ``OSError`` if the store
    cannot be used.
    """

    @abstractmethod
    def stat(self, key: str) -> Stat:
        """Size and version."""

    @abstractmethod
    def read(self, key: str, start: int = 0, end: int | None = None, version: str | None = None) -> bytes:
        """The bytes from ``start`` to ``end``.

        Raises:
            ReplacedError: the file no longer has this ``version``.
        """

    @abstractmethod
    def read_into(self, key: str, ranges: Sequence[tuple[int, Sequence[memoryview]]]) -> bool:
        """Fill the buffers of each range, from its first byte on; return whether the file has all bytes."""

    @abstractmethod
    def read_versioned(self, key: str) -> tuple[bytes, str]:
        """All bytes, and their version for ``swap``."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Write a file atomically if none exists; False if another exists.

        A file with the same bytes may be that of a retried request, and counts as written.
        """

    @abstractmethod
    def swap(self, key: str, data: bytes, version: str) -> bool:
        """Replace a file that still has this version; False otherwise."""

    @abstractmethod
    def writer(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """A stream into a file that appears, complete, when the block succeeds."""

    @abstractmethod
    def scratch(self, key: str) -> AbstractContextManager[Path]:
        """A temporary local file, whose content appears under the key when the block succeeds."""

    @abstractmethod
    def upload(self, key: str, file: Path) -> None:
        """Copy a local file; it appears complete."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The relative keys of all files below a folder, sorted; empty without such a folder."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove files; missing files are no error."""

    @abstractmethod
    def check_writable(self, key: str) -> None:
        """Raise, before any work, if a file cannot be written."""
