"""Files to read: on this machine, or at any URL that fsspec knows."""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from aptool.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# "s3://bucket/file"; also "s3:/bucket/file", which pathlib makes of it. A single letter is a drive. Protocols
# may be chained: "simplecache::s3://bucket/file".
_URL = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*::)*([A-Za-z][A-Za-z0-9+.-]+)):/(/?)")
_LOCAL_PROTOCOLS = ("file", "local")


def is_remote(path: str | Path) -> bool:
    """Whether ``path`` is a URL such as ``s3://bucket/file`` and not a path on this machine."""
    return _URL.match(str(path)) is not None


def is_glob(path: str) -> bool:
    """Whether ``path`` contains a wildcard."""
    return any(wildcard in path for wildcard in "*?[")


def open_binary(path: str | Path) -> IO[bytes]:
    """Opens a local file or a URL for reading.

    Raises:
        InputError: there is no such file, it is a folder, or it cannot be read.
    """
    try:
        return _open_remote(str(path)) if is_remote(path) else Path(path).open("rb")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def open_native(path: str | Path) -> pa.NativeFile:
    """Opens a local file or a URL for Arrow.

    Arrow reads a local file by itself. Its threads must never read a Python file: they may still hold it when
    the interpreter ends, and abort the process as they ask for the interpreter's lock. What a URL gives, a
    ``pa.PythonFile``, is therefore to be read with ``use_threads=False``, as ``ParquetReader`` does.

    Raises:
        InputError: there is no such file, it is a folder, or it cannot be read.
    """
    import pyarrow as pa

    opened = open_binary(path)
    if is_remote(path):
        return pa.PythonFile(opened, mode="r")
    opened.close()  # Python's errors are the clearer ones
    try:
        return pa.OSFile(os.fsencode(path))
    except OSError as error:
        raise unreadable(path, error) from error


def expand(paths: tuple[str, ...] | list[str], suffix: str) -> list[str]:
    """The files of ``paths``: a folder expands to its files that end in ``suffix``, a glob to its matches.

    Files of one folder or glob are sorted by name; no file is repeated.

    Raises:
        InputError: a folder or a glob has no file.
    """
    found: dict[str, None] = {}
    for path in paths:
        matches = _matches(path, suffix)
        if not matches:
            raise InputError(
                path, expected=f"a file, a glob that matches files, or a folder with *{suffix} files"
            )
        found.update(dict.fromkeys(matches))
    return list(found)


def unreadable(path: str | Path, error: BaseException) -> InputError:
    """The one-line error for a file that cannot be opened or read."""
    if isinstance(error, FileNotFoundError):
        return InputError(path, problem="file not found", expected="a file that exists")
    if isinstance(error, IsADirectoryError):
        return InputError(path, problem="a folder", expected="a file")
    reason = (str(getattr(error, "strerror", None) or error) or type(error).__name__).splitlines()[0]
    return InputError(path, problem=reason, expected="a file that can be read")


def _open_remote(url: str) -> IO[bytes]:
    """A seekable file; what a server can only stream is read into memory."""
    with _remote_failures(url):
        import fsspec

        file = cast(IO[bytes], fsspec.open(_whole_url(url), "rb").open())
        try:
            file.seek(0, io.SEEK_END)
            file.seek(0)
        except (OSError, ValueError):
            return io.BytesIO(file.read())
        return file


@contextmanager
def _remote_failures(url: str) -> Iterator[None]:
    """Each protocol has its own exceptions; to a user, all of them mean a file that cannot be read."""
    try:
        yield
    except Exception as error:
        raise unreadable(url, error) from error


def _whole_url(url: str) -> str:
    """The URL with both slashes, of which pathlib has perhaps removed one."""
    found = _URL.match(url)
    if found is None or found[3]:
        return url
    root = "/" if found[2] in _LOCAL_PROTOCOLS else ""
    return f"{found[1]}://{root}{url[found.end() :]}"


def _matches(path: str, suffix: str) -> list[str]:
    if is_remote(path):
        return _remote_matches(path, suffix)
    if Path(path).is_dir():
        return sorted(str(file) for file in Path(path).glob(f"*{suffix}"))
    if is_glob(path) and not Path(path).exists():
        return sorted(glob.glob(path))
    return [path]


def _remote_matches(path: str, suffix: str) -> list[str]:
    with _remote_failures(path):
        import fsspec

        system, name = fsspec.core.url_to_fs(_whole_url(path))
        if is_glob(name):
            found: list[Any] = system.glob(name)
        elif system.isdir(name):
            found = system.glob(f"{name.rstrip('/')}/*{suffix}")
        else:
            return [path]
    return sorted(str(system.unstrip_protocol(file)) for file in found)
