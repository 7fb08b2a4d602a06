"""Files on local disks and object stores, to read, by path or URL.

Local files are opened by Python; files on S3, Google Cloud Storage and Azure through ``pyarrow.fs``; other
URLs, such as ``hf://`` and ``https://``, are read through fsspec. A folder on a store is a prefix.
"""

import errno
import fnmatch
import glob
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from aptool.errors import InputError
from aptool.paths import (
    Location,
    PathOrUrl,
    Url,
    file_errors,
    is_glob,
    is_object_url,
    is_remote,
    names,
    split,
    whole_url,
    with_home,
)

if TYPE_CHECKING:
    import pyarrow as pa

_BUFFER_BYTES = 4 << 20


class Stat(NamedTuple):
    """Size in bytes, and a version: the ETag of an object, or the size and time of a file."""

    size: int
    version: str


class ReplacedError(InputError):
    """A file was replaced while a command was reading it."""

    def __init__(self, path: object) -> None:
        super().__init__(
            str(path),
            problem="replaced while it was read",
            expected="the same file until the command has ended",
        )


def stat(path: PathOrUrl) -> Stat:
    """Size and version of a file; raise if it is missing."""
    with file_errors(path):
        if not is_remote(path):
            status = Path(with_home(str(path))).stat()
            return Stat(status.st_size, f"{status.st_size}-{status.st_mtime_ns}")
        if not is_object_url(path):
            import fsspec

            other, name = fsspec.core.url_to_fs(str(path))
            return Stat(int(other.info(name)["size"] or 0), str(other.ukey(name)))
        system, name = split(path)
        if system.type_name == "s3":
            with system.open_input_file(name) as file:
                return Stat(file.size(), file.metadata()["ETag"].decode())
        info = system.get_file_info(name)
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, "file not found", str(path))
        return Stat(info.size or 0, f"{info.size}-{info.mtime_ns}")


def open_input(path: PathOrUrl, version: str | None = None) -> "pa.NativeFile":
    """Open a file for Arrow, to read at any position; raise if its version is not that of ``stat``.

    Read a ``pa.PythonFile``, which the URL of another protocol gives, with ``use_threads=False``: Arrow's
    threads abort the process if they hold a Python file when the interpreter ends.
    """
    import pyarrow as pa

    with file_errors(path):
        if is_object_url(path):
            system, name = split(path)
            file = system.open_input_file(name)
            if version is not None and version_of(file, path) != version:
                raise ReplacedError(path)
            return file
        if version is not None and stat(path).version != version:
            raise ReplacedError(path)
        if is_remote(path):
            return pa.PythonFile(_open_other(str(path)), mode="r")
        local = _local_file(path)
        local.open("rb").close()  # Python's errors are clearer than Arrow's
        return pa.OSFile(os.fsencode(local))


def version_of(file: "pa.NativeFile", path: PathOrUrl) -> str:
    """The version of an open file; on S3 without a further request."""
    etag = file.metadata().get("ETag") if is_object_url(path) and file.metadata() else None
    return etag.decode() if etag is not None else stat(path).version


def open_binary(path: PathOrUrl) -> io.BufferedReader:
    """Open a file for reading."""
    with file_errors(path):
        if is_object_url(path):
            return Url(str(path)).open()
        if is_remote(path):
            return io.BufferedReader(cast(io.RawIOBase, _open_other(str(path))), _BUFFER_BYTES)
        return _local_file(path, is_stream=True).open("rb")


def _local_file(path: PathOrUrl, is_stream: bool = False) -> Path:
    file = Path(with_home(str(path)))
    if file.is_char_device() or file.is_block_device():  # may never end, such as /dev/zero
        raise InputError(str(path), problem="a device", expected="a file")
    if file.is_fifo() and not is_stream:
        raise InputError(str(path), problem="a pipe", expected="a seekable file")
    return file


def _open_other(url: str) -> IO[bytes]:
    """Open a URL of another protocol. A stream that cannot seek is read into memory."""
    import fsspec

    file = cast(IO[bytes], fsspec.open(whole_url(url), "rb").open())
    return file if file.seekable() else io.BytesIO(file.read())


def expand(paths: Iterable[str], suffix: str) -> list[str]:
    """List the files of ``paths`` without duplicates.

    A folder expands to its files with ``suffix``, a glob to its matches, both sorted by name.
    """
    files: dict[str, None] = {}
    for path in paths:
        matches = _matches(path, suffix)
        if not matches:
            expected = f"a file, a glob that matches files, or a folder with *{suffix} files"
            raise InputError(path, expected=expected)
        files.update(dict.fromkeys(matches))
    return list(files)


def _matches(path: str, suffix: str) -> list[str]:
    if is_object_url(path):
        folder, pattern = Url(path), path
        if is_glob(str(folder).split("/")[2]):
            problem, expected = "a wildcard in the bucket", "the bucket's name"
            raise InputError(path, problem=problem, expected=expected)
        if folder.is_dir():
            pattern = f"{folder}/*{suffix}"
        elif not is_glob(path) or folder.is_file():
            return [path]
        else:
            while is_glob(str(folder)):
                folder = folder.parent
        files = [str(folder / name) for name in names(folder)]
        # As on a disk, wildcards do not match a slash.
        depth = pattern.count("/")
        return [file for file in files if file.count("/") == depth and fnmatch.fnmatchcase(file, pattern)]
    if is_remote(path):
        return _other_matches(path, suffix)
    path = with_home(path)
    if Path(path).is_dir():
        return sorted(str(file) for file in Path(path).glob(f"*{suffix}"))
    return sorted(glob.glob(path)) if is_glob(path) and not Path(path).exists() else [path]


def _other_matches(path: str, suffix: str) -> list[str]:
    import fsspec

    with file_errors(path):
        system, name = fsspec.core.url_to_fs(whole_url(path))
        if is_glob(name) and not system.exists(name):
            files: list[Any] = system.glob(name)
        elif system.isdir(name):
            files = system.glob(f"{name.rstrip('/')}/*{suffix}")
        else:
            return [path]
    return sorted(str(system.unstrip_protocol(file)) for file in files)


def sha256_of(file: Location) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@contextmanager
def local_copy(path: Location) -> Iterator[Path]:
    """Yield a local file or folder: the path itself, or a temporary copy of a remote one."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="aptool-") as folder:
        copy = Path(folder) / path.name
        files = {path: copy}
        if not path.is_file():
            copy.mkdir()
            files = {path / name: copy / name for name in names(path)}
        for source, target in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with file_errors(path), open_binary(source) as opened, target.open("wb") as file:
                shutil.copyfileobj(opened, file, _BUFFER_BYTES)
        yield copy
