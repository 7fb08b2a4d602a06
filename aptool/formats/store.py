"""What is read from and written to, by name: a disk or an object store behind one interface.

A disk has names that are replaced at once by a rename; an object store has neither renames nor folders, but a
PUT is whole or not at all, may be made only where nothing is (create) or only over what was seen (swap), and
an upload in parts appears when it is completed. The methods below are what both can do.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, NamedTuple

from aptool.errors import InputError


class Stat(NamedTuple):
    """A file as it is now.

    Attributes:
        size: bytes.
        version: differs from that of what is put in its place: an ETag, or on a disk size and time.
    """

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

    Methods raise ``FileNotFoundError`` where there is no such file, and ``InputError`` or ``OSError`` where
    the store cannot be used.
    """

    @abstractmethod
    def stat(self, key: str) -> Stat:
        """Size and version."""

    @abstractmethod
    def read(self, key: str, start: int = 0, end: int | None = None, version: str | None = None) -> bytes:
        """The bytes from ``start`` to ``end`` and no others.

        Raises:
            ReplacedError: the file no longer has this ``version``.
        """

    @abstractmethod
    def read_into(self, key: str, ranges: Sequence[tuple[int, Sequence[memoryview]]]) -> bool:
        """Fill buffers, for each range one after the other, from its first byte on.

        Returns:
            Whether the file has all of these bytes.
        """

    @abstractmethod
    def read_versioned(self, key: str) -> tuple[bytes, str]:
        """All bytes, and the version that ``swap`` takes for them."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Write a file, whole or not at all, where there is none; False where there is another.

        Where a repeated request may be at work, a file with the same bytes counts as written.
        """

    @abstractmethod
    def swap(self, key: str, data: bytes, version: str) -> bool:
        """Replace a file that is still as ``read_versioned`` found it; False where it is not."""

    @abstractmethod
    def writer(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """A stream into a file that appears under its name, whole, when the block succeeds."""

    @abstractmethod
    def scratch(self, key: str) -> AbstractContextManager[Path]:
        """A temporary file of this machine, whose content appears under the name when the block succeeds."""

    @abstractmethod
    def upload(self, key: str, file: Path) -> None:
        """Copy a file of this machine; it appears whole."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The relative keys of all files below a folder, sorted; none where there is no such folder."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove files; those that are not there are no error."""

    @abstractmethod
    def check_writable(self, key: str) -> None:
        """Checks, before any work, that a file can be written.

        Raises:
            InputError: it cannot.
        """
