"""The common interface of local disks and object stores.

A disk replaces a file atomically by a rename. An object store has neither renames nor folders, but a PUT is
atomic and can require that no object exists (create), or that the object has a known version (swap).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, NamedTuple

from aptool.errors import InputError


class Stat(NamedTuple):
    """Size in bytes, and a version: the ETag of an object, or the size and time of a local file."""

    size: int
    version: str


class ReplacedError(InputError):
    """A file was replaced while a command was reading it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            path, problem="replaced while it was read", expected="the same file until the command has ended"
        )


class Store(ABC):
    """A key-value store of files. A key is an absolute path, or the name of an object in its bucket.

    Methods raise ``FileNotFoundError`` for a missing file, and ``InputError`` or ``OSError`` if the store
    cannot be used.
    """

    @abstractmethod
    def stat(self, key: str) -> Stat:
        """Size and version."""

    @abstractmethod
    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Read the bytes from ``start`` to ``end``."""

    @abstractmethod
    def read_versioned(self, key: str) -> tuple[bytes, str]:
        """Read the file; return its bytes and their version for ``swap``."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Create a file atomically; return False if it exists.

        An object store also returns True if the file exists with the same bytes, since a repeated request
        cannot be told from another writer. Callers that compete write different bytes.
        """

    @abstractmethod
    def swap(self, key: str, data: bytes, version: str) -> bool:
        """Replace a file if it has this version; return whether it had."""

    @abstractmethod
    def writer(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """Open a stream, whose content appears under the key when the block succeeds."""

    @abstractmethod
    def scratch(self, key: str) -> AbstractContextManager[Path]:
        """Create a temporary local file, whose content appears under the key when the block succeeds."""

    @abstractmethod
    def upload(self, key: str, file: Path) -> None:
        """Copy a local file atomically."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """List the keys of all files below a folder, relative to it and sorted."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete files; missing files are ignored."""

    @abstractmethod
    def check_writable(self, key: str) -> None:
        """Raise if the file cannot be written."""
