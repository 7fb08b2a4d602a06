"""Files to read: on this machine, in an object store, or at another URL that fsspec supports."""

from __future__ import annotations

import fnmatch
import glob
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from aptool.errors import AptoolError, InputError
from aptool.formats.location import ObjectPath, PathOrUrl
from aptool.formats.store import ReplacedError, Stat
from aptool.formats.stores import store_of
from aptool.formats.urls import is_glob, is_object_url, is_remote, whole_url

if TYPE_CHECKING:
    import pyarrow as pa


class Input(NamedTuple):
    """A file to read and its expected version; None is any."""

    path: str
    version: str | None


def check_unchanged(inputs: Iterable[Input]) -> None:
    """Raise if a file has been replaced."""
    for path, version in inputs:
        if version is not None and stat(path).version != version:
            raise ReplacedError(path)


def stat(path: PathOrUrl) -> Stat:
    """Size and version of a file."""
    with readable(path):
        if not is_remote(path) or is_object_url(path):
            store, key = store_of(path)
            return store.stat(key)
        import fsspec

        system, name = fsspec.core.url_to_fs(whole_url(str(path)))
        return Stat(int(system.info(name)["size"] or 0), str(system.ukey(name)))


def open_binary(path: PathOrUrl) -> IO[bytes]:
    """Open a local file or a URL for reading."""
    with readable(path):
        if is_object_url(path):
            return ObjectPath(str(path)).open()
        return _open_other(str(path)) if is_remote(path) else Path(str(path)).open("rb")


def open_native(path: PathOrUrl, version: str | None = None) -> pa.NativeFile:
    """Open a local file or a URL for Arrow, at an expected version from ``stat``; None is any.

    Arrow reads a local file itself. Its threads must never read a Python file: they may hold it when the
    interpreter ends, and abort the process. A URL gives a ``pa.PythonFile``, which must be read with
    ``use_threads=False``, as ``ParquetReader`` does.

    Raises:
        ReplacedError: the file has another version, or an object is replaced while it is read.
    """
    import pyarrow as pa

    with readable(path):
        if is_object_url(path):
            file = ObjectPath(str(path)).ranged()
            if version is not None and file.version != version:
                raise ReplacedError(str(path))
            return pa.PythonFile(file, mode="r")
        if version is not None and stat(path).version != version:
            raise ReplacedError(str(path))
        if is_remote(path):
            return pa.PythonFile(_open_other(str(path)), mode="r")
        if Path(str(path)).is_fifo():  # opening a pipe waits for a writer
            raise InputError(path, problem="a pipe", expected="a seekable file")
        Path(str(path)).open("rb").close()  # Python's errors are clearer than Arrow's
        return pa.OSFile(os.fsencode(str(path)))


def expand(paths: tuple[str, ...] | list[str], suffix: str) -> list[str]:
    """The files of ``paths``: a folder expands to its files with ``suffix``, a glob to its matches.

    Files of one folder or glob are sorted by name; no file is repeated.
    """
    files: dict[str, None] = {}
    for path in paths:
        matches = _matches(path, suffix)
        if not matches:
            raise InputError(
                path, expected=f"a file, a glob that matches files, or a folder with *{suffix} files"
            )
        files.update(dict.fromkeys(matches))
    return list(files)


def unreadable(path: PathOrUrl, error: BaseException) -> InputError:
    """The one-line error for an unreadable file."""
    name = str(path)
    if isinstance(error, FileNotFoundError):
        return InputError(name, problem="file not found", expected="a file that exists")
    if isinstance(error, IsADirectoryError):
        return InputError(name, problem="a folder", expected="a file")
    reason = (str(getattr(error, "strerror", None) or error) or type(error).__name__).splitlines()[0]
    return InputError(name, problem=reason, expected="a file that can be read")


@contextmanager
def readable(path: PathOrUrl) -> Iterator[None]:
    """Raise errors of reading as an InputError with the file; each protocol has its own exceptions."""
    try:
        yield
    except AptoolError:
        raise
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    except Exception as error:
        if not is_remote(path):
            raise
        raise unreadable(path, error) from error


def _open_other(url: str) -> IO[bytes]:
    """A seekable file; a stream is read into memory."""
    import fsspec

    file = cast(IO[bytes], fsspec.open(whole_url(url), "rb").open())
    try:
        file.seek(0, io.SEEK_END)
        file.seek(0)
    except (OSError, ValueError):
        return io.BytesIO(file.read())
    return file


def _matches(path: str, suffix: str) -> list[str]:
    if is_object_url(path):
        return _object_matches(whole_url(path), suffix)
    if is_remote(path):
        return _other_matches(path, suffix)
    if Path(path).is_dir():
        return sorted(str(file) for file in Path(path).glob(f"*{suffix}"))
    if is_glob(path) and not Path(path).exists():
        return sorted(glob.glob(path))
    return [path]


def _object_matches(url: str, suffix: str) -> list[str]:
    with readable(url):
        if is_glob(url):
            # Listed from the last folder without a wildcard; as on a disk, wildcards do not match a slash.
            plain = ObjectPath(url)
            while is_glob(str(plain)):
                if plain.parent == plain:
                    raise InputError(url, problem="a wildcard in the bucket", expected="the bucket's name")
                plain = plain.parent
            depth = url.count("/")
            store, key = store_of(plain)
            files = [str(plain / name) for name in store.names(key)]
            return [file for file in files if file.count("/") == depth and fnmatch.fnmatchcase(file, url)]
        entries = [str(entry) for entry in ObjectPath(url).iterdir()]
        return [entry for entry in entries if entry.endswith(suffix)] if entries else [url]


def _other_matches(path: str, suffix: str) -> list[str]:
    with readable(path):
        import fsspec

        system, name = fsspec.core.url_to_fs(whole_url(path))
        if is_glob(name):
            files: list[Any] = system.glob(name)
        elif system.isdir(name):
            files = system.glob(f"{name.rstrip('/')}/*{suffix}")
        else:
            return [path]
    return sorted(str(system.unstrip_protocol(file)) for file in files)
