"""Local paths and URLs of object stores, with the same methods, and the stores that hold the files."""

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from aptool.errors import InputError
from aptool.formats.local_store import LocalStore, resolved
from aptool.formats.store import Stat, Store

if TYPE_CHECKING:
    from aptool.formats.object_store import ObjectStore

# "s3://bucket/file", "s3:/bucket/file" (pathlib removes a slash) and "simplecache::s3://bucket/file" (chained
# protocols of fsspec). A single letter is a Windows drive.
_URL = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*::)*([A-Za-z][A-Za-z0-9+.-]+)):/(/?)")

# Their URLs have no host, so a third slash begins the path.
_LOCAL_PROTOCOLS = ("file", "local")

# Object stores. URLs of other protocols can be read if fsspec supports them.
OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "abfs", "abfss")

# Bytes per request of a stream.
_STREAM_BYTES = 4 << 20


def is_remote(path: object) -> bool:
    """Whether ``path`` is a URL such as ``s3://bucket/file``."""
    return _URL.match(str(path)) is not None


def is_object_url(path: object) -> bool:
    """Whether ``path`` is a URL of an object store: S3, Google Cloud Storage or Azure."""
    match = _URL.match(str(path))
    return match is not None and match[1].lower() in OBJECT_SCHEMES


def with_home(path: str) -> str:
    """Replace a leading ``~`` or ``~USER`` by the home folder, as a shell does."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib raises for an unknown user


def is_glob(path: str) -> bool:
    """Whether ``path`` contains a wildcard."""
    return any(wildcard in path for wildcard in "*?[")


def whole_url(path: str) -> str:
    """Restore a slash that pathlib removed from a URL; return a path unchanged."""
    match = _URL.match(path)
    if match is None or match[3]:
        return path
    root = "/" if match[2] in _LOCAL_PROTOCOLS else ""
    return f"{match[1]}://{root}{path[match.end() :]}"


def store_of(path: object) -> tuple[Store, str]:
    """The store of a path or URL, and the key of the file; raise if the URL is read-only."""
    url = whole_url(str(path))
    if not is_remote(url):
        return LocalStore(), str(Path(with_home(url)).absolute())
    if not is_object_url(url):
        raise InputError(
            url, expected="a path, or a URL of S3, Google Cloud Storage or Azure; other URLs are read-only"
        )
    return _bucket_and_key(url)


def _bucket_and_key(url: str) -> "tuple[ObjectStore, str]":
    scheme, _, path_in_store = url.partition("://")
    bucket, _, key = path_in_store.partition("/")
    if not bucket:
        raise InputError(url, expected=f"{scheme}://BUCKET/NAME")
    return bucket_store(f"{scheme}://{bucket}"), key


@lru_cache(maxsize=16)
def bucket_store(bucket: str) -> "ObjectStore":
    """The store of a bucket; tests clear the cache after a change of credentials."""
    from aptool.formats.object_store import ObjectStore

    return ObjectStore(bucket)


class RangedFile(io.RawIOBase):
    """A seekable file whose reads request only the needed bytes; they raise if the file is replaced.

    The readers of obstore and fsspec compare no version: they would mix the bytes of two files.
    """

    def __init__(self, store: "ObjectStore", key: str, stat: Stat) -> None:
        """Open without a request."""
        self._store, self._key, self._stat = store, key, stat
        self._position = 0

    @property
    def version(self) -> str:
        """The version of the file."""
        return self._stat.version

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._stat.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, partly at the end of the file."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    @override
    def read(self, size: int | None = -1) -> bytes:
        end = self._stat.size if size is None or size < 0 else min(self._position + size, self._stat.size)
        if end <= self._position:
            return b""
        data = self._store.read(self._key, self._position, end, self._stat.version)
        self._position += len(data)
        return data

    @override
    def readall(self) -> bytes:
        return self.read()


@dataclass(frozen=True, order=True, repr=False)
class ObjectPath:
    """A URL such as ``s3://bucket/folder/file``, with methods of ``pathlib.Path``.

    A folder is a prefix of the names of objects. The class is not an ``os.PathLike``: functions that open
    files by path cannot open it.
    """

    _url: str

    def __post_init__(self) -> None:
        scheme, _, path = whole_url(self._url).partition("://")
        object.__setattr__(self, "_url", f"{scheme}://{path.rstrip('/')}")

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"ObjectPath({self._url!r})"

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
        """The folder of the object; the parent of a bucket is the bucket itself."""
        scheme, _, path = self._url.partition("://")
        return ObjectPath(f"{scheme}://{path.rpartition('/')[0] or path}")

    def with_name(self, name: str) -> "ObjectPath":
        """Another object of the same folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> "ObjectPath":
        """An object of the same folder with another extension."""
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> "ObjectPath":
        """Return the path itself."""
        return self

    def resolve(self) -> "ObjectPath":
        """Return the path itself."""
        return self

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def rmdir(self) -> None:
        """Do nothing: a store has no folders."""

    def is_file(self) -> bool:
        """Whether the object exists."""
        store, key = store_of(self._url)
        try:
            store.stat(key)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether the folder exists: it contains objects."""
        store, key = store_of(self._url)
        return bool(store.names(key))

    def exists(self) -> bool:
        """Whether the object or the folder exists."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["ObjectPath"]:
        """The objects and folders in this folder, sorted."""
        store, key = store_of(self._url)
        for name in sorted({name.partition("/")[0] for name in store.names(key)}):
            yield self / name

    def read_bytes(self) -> bytes:
        """Read the object."""
        store, key = store_of(self._url)
        return store.read(key)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read the object as text."""
        return self.read_bytes().decode(encoding)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the object for reading; the mode must be ``"rb"``."""
        if mode != "rb":
            raise ValueError(f"mode {mode!r}: objects are only read by their path")
        return io.BufferedReader(self.ranged(), _STREAM_BYTES)

    def ranged(self) -> RangedFile:
        """Open the object as a file that requests only the needed bytes."""
        store, key = _bucket_and_key(self._url)
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
    """An object with the methods of a path, from a path or URL.

    A read-only URL of another protocol becomes a ``Path``; ``formats.inputs`` reads it.
    """
    if is_object_url(path):
        return ObjectPath(str(path))
    local = Path(with_home(str(path)))
    # A folder ./~ stays one where its path is expanded again.
    return local if with_home(str(local)) == str(local) else local.absolute()


def output_location(path: PathOrUrl) -> Location:
    """The location of an output without links: all of its names share the files next to it."""
    output = location(path)
    return resolved(output) if isinstance(output, Path) else output


def why_missing(folder: Location, name: str) -> str:
    """Return the problem of a path that is expected to be a folder with a file of this name."""
    if folder.is_file():
        return "a file"
    return f"no {name} in it" if folder.exists() else "folder not found"
