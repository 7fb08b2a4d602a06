"""Where files are read from: this machine, or anything fsspec knows by its URL."""

import glob
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from aptool.errors import InputError


def is_remote(path: str | Path) -> bool:
    """Whether ``path`` is a URL such as ``s3://bucket/file`` and not a place on this machine."""
    return "://" in str(path)


def is_glob(path: str) -> bool:
    """Whether ``path`` has marks that stand for any letters."""
    return any(mark in path for mark in "*?[")


def open_binary(path: str | Path) -> IO[bytes]:
    """Opens a local file or a URL for reading.

    Raises:
        InputError: there is no such file, it is a folder, or it cannot be read.
    """
    try:
        return _open_remote(str(path)) if is_remote(path) else Path(path).open("rb")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def expand(paths: tuple[str, ...] | list[str], suffix: str) -> list[str]:
    """The files that ``paths`` stand for: folders and globs become their files ending in ``suffix``.

    Files inside one folder or glob come in the order of their names; no file comes twice.

    Raises:
        InputError: a path stands for no file at all.
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
    """The one-line error for a file that could not be opened."""
    if isinstance(error, FileNotFoundError):
        return InputError(path, problem="file not found", expected="a file that exists")
    if isinstance(error, IsADirectoryError):
        return InputError(path, problem="a folder", expected="a file")
    reason = (str(getattr(error, "strerror", None) or error) or type(error).__name__).splitlines()[0]
    return InputError(path, problem=reason, expected="a file that can be read")


def _open_remote(url: str) -> IO[bytes]:
    """A file that can be read from any place; one whose server only streams is read into memory."""
    with _remote_failures(url):
        import fsspec

        file = cast(IO[bytes], fsspec.open(url, "rb").open())
        try:
            file.seek(0, io.SEEK_END)
            file.seek(0)
        except (OSError, ValueError):
            return io.BytesIO(file.read())
        return file


@contextmanager
def _remote_failures(url: str) -> Iterator[None]:
    """Each protocol has exceptions of its own; to a user they are all a file that cannot be read."""
    try:
        yield
    except Exception as error:
        raise unreadable(url, error) from error


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

        system, name = fsspec.core.url_to_fs(path)
        if is_glob(name):
            found: list[Any] = system.glob(name)
        elif system.isdir(name):
            found = system.glob(f"{name.rstrip('/')}/*{suffix}")
        else:
            return [path]
    return sorted(str(system.unstrip_protocol(file)) for file in found)
