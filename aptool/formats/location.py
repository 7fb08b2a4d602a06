"""Paths on this machine and URLs of object stores, with the same methods."""

import io
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from aptool.formats.object_store import RangedFile
from aptool.formats.stores import store_of
from aptool.formats.urls import is_object_url, whole_url

# Bytes per request of a stream.
_STREAM_BYTES = 4 << 20


class ObjectPath:
    """A URL of an object or of a prefix, which acts as a folder, with methods of ``pathlib.Path``.

    Not an ``os.PathLike``: functions that open files by path cannot open it.
    """

    def __init__(self, url: str) -> None:
        """Take a URL such as ``s3://bucket/folder/file``; no request is made."""
        scheme, _, rest = whole_url(url).partition("://")
        self._url = f"{scheme}://{rest.rstrip('/')}"

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"ObjectPath({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __lt__(self, other: "ObjectPath") -> bool:
        return self._url < other._url

    def __truediv__(self, name: "str | PurePosixPath") -> "ObjectPath":
        return ObjectPath(f"{self._url}/{name}")

    @property
    def name(self) -> str:
        """The last component."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The extension with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its extension."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> "ObjectPath":
        """The folder; that of a bucket is the bucket."""
        scheme, _, rest = self._url.partition("://")
        return ObjectPath(f"{scheme}://{rest.rpartition('/')[0] or rest}")

    def with_name(self, name: str) -> "ObjectPath":
        """Another object of the same folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> "ObjectPath":
        """An object of the same folder with another extension."""
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> "ObjectPath":
        """Itself."""
        return self

    def resolve(self) -> "ObjectPath":
        """Itself."""
        return self

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def rmdir(self) -> None:
        """Do nothing: a store has no folders."""

    def is_file(self) -> bool:
        """Whether an object with this name exists."""
        store, key = store_of(self._url)
        try:
            store.stat(key)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether objects below this prefix exist."""
        store, key = store_of(self._url)
        return bool(store.names(key))

    def exists(self) -> bool:
        """Whether an object with this name, or below it, exists."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["ObjectPath"]:
        """The objects and folders directly in this one, sorted."""
        store, key = store_of(self._url)
        for name in sorted({name.partition("/")[0] for name in store.names(key)}):
            yield self / name

    def read_bytes(self) -> bytes:
        """All bytes."""
        store, key = store_of(self._url)
        return store.read(key)

    def read_text(self, encoding: str = "utf-8") -> str:
        """All of a text."""
        return self.read_bytes().decode(encoding)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """A stream of the bytes; only ``"rb"``."""
        if mode != "rb":
            raise ValueError(f"mode {mode!r}: objects are only read by their path")
        return io.BufferedReader(self.ranged(), _STREAM_BYTES)

    def ranged(self) -> RangedFile:
        """A file whose reads fetch only the requested bytes."""
        store, key = store_of(self._url)
        return RangedFile(store, key, store.stat(key))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        store, key = store_of(self._url)
        if not missing_ok:
            store.stat(key)
        store.delete([key])


Location: TypeAlias = Path | ObjectPath
PathOrUrl: TypeAlias = str | Path | ObjectPath


def location(path: PathOrUrl) -> Location:
    """The path or URL as an object with the methods of a path.

    A read-only URL of another protocol stays a ``Path``: see ``storage``.
    """
    if isinstance(path, ObjectPath):
        return path
    return ObjectPath(str(path)) if is_object_url(path) else Path(path)
