"""Where files are read from: this machine, or anything fsspec knows by its URL."""

import glob
from pathlib import Path
from typing import IO, Any, cast

from aptool.errors import InputError


def is_remote(path: str | Path) -> bool:
    """Whether ``path`` is a URL such as ``s3://bucket/file`` and not a place on this machine."""
    return "://" in str(path)


def open_binary(path: str | Path) -> IO[bytes]:
    """Opens a local file or a URL for reading.

    Raises:
        InputError: there is no such file, it is a folder, or it cannot be read.
    """
    try:
        if is_remote(path):
            import fsspec

            return cast(IO[bytes], fsspec.open(str(path), "rb").open())
        return Path(path).open("rb")
    except (OSError, ValueError, ImportError) as error:
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
        return InputError(path, value="no such file", expected="a file that exists")
    if isinstance(error, IsADirectoryError):
        return InputError(path, value="a folder", expected="a file")
    reason = str(getattr(error, "strerror", None) or error).splitlines()[0]
    return InputError(path, value=reason, expected="a file that can be read")


def _matches(path: str, suffix: str) -> list[str]:
    if is_remote(path):
        return _remote_matches(path, suffix)
    if Path(path).is_dir():
        return sorted(str(file) for file in Path(path).glob(f"*{suffix}"))
    if any(mark in path for mark in "*?[") and not Path(path).exists():
        return sorted(glob.glob(path))
    return [path]


def _remote_matches(path: str, suffix: str) -> list[str]:
    import fsspec

    try:
        system, name = fsspec.core.url_to_fs(path)
        if any(mark in name for mark in "*?["):
            found: list[Any] = system.glob(name)
        elif system.isdir(name):
            found = system.glob(f"{name.rstrip('/')}/*{suffix}")
        else:
            return [path]
    except (OSError, ValueError, ImportError) as error:
        raise unreadable(path, error) from error
    return sorted(str(system.unstrip_protocol(file)) for file in found)
