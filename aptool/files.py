"""Files on local disks and object stores, to read, by path or URL; gzip data are unpacked.

Local files are opened by Python; files on S3, Google Cloud Storage and Azure through ``pyarrow.fs``. A folder
on a store is a prefix.
"""

import errno
import fnmatch
import glob
import gzip
import hashlib
import io
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from aptool.errors import InputError
from aptool.paths import (
    Location,
    PathOrUrl,
    Url,
    file_errors,
    is_glob,
    is_remote,
    location,
    names,
    split,
    with_home,
)

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_BYTES = 1 << 17

_SAVE_SHEET = "text, such as the sheet saved as CSV in UTF-8"
# First bytes of files that are not text, with the name of the format and what to pass instead.
_BINARY_FORMATS = {
    b"PK\x03\x04": ("an Excel workbook or a ZIP archive", _SAVE_SHEET),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", _SAVE_SHEET),
    b"PAR1": ("a Parquet file", "text"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("text in UTF-16", "text in UTF-8")),
    **{bytes([0x80, protocol]): ("a Python pickle", "text") for protocol in range(2, 6)},
    b"\x28\xb5\x2f\xfd": ("zstd data", "text, or gzip data"),
    b"BZh": ("bzip2 data", "text, or gzip data"),
    b"\xfd7zXZ": ("xz data", "text, or gzip data"),
}


class Stat(NamedTuple):
    """Size in bytes, and a version: the ETag of an object, or the size and time of a file."""

    size: int
    version: str


class Input(NamedTuple):
    """An input file and its expected version; with None, any version is valid."""

    path: str
    version: str | None


class ReplacedError(InputError):
    """A file was replaced while a command was reading it."""

    def __init__(self, path: object) -> None:
        super().__init__(
            str(path),
            problem="replaced while it was read",
            expected="the same file until the command has ended",
        )


def check_unchanged(inputs: Iterable[Input]) -> None:
    """Raise if a file has been replaced."""
    for path, version in inputs:
        if version is not None and stat(path).version != version:
            raise ReplacedError(path)


def stat(path: PathOrUrl) -> Stat:
    """Size and version of a file; raise if it is missing."""
    with file_errors(path):
        file = location(path)
        if isinstance(file, Path):
            status = file.stat()
            return Stat(status.st_size, f"{status.st_size}-{status.st_mtime_ns}")
        system, name = split(file)
        if system.type_name == "s3":
            with system.open_input_file(name) as opened:
                return Stat(opened.size(), opened.metadata()["ETag"].decode())
        info = system.get_file_info(name)
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, "file not found", str(path))
        return Stat(info.size or 0, f"{info.size}-{info.mtime_ns}")


def open_input(path: PathOrUrl, version: str | None = None) -> "pa.NativeFile":
    """Open a file for Arrow, to read at any position; raise if its version is not that of ``stat``."""
    import pyarrow as pa

    with file_errors(path):
        file = location(path)
        if isinstance(file, Url):
            system, name = split(file)
            opened = system.open_input_file(name)
        else:
            _check_ends(file)
            if file.is_fifo():
                raise InputError(str(path), problem="a pipe", expected="a seekable file")
            file.open("rb").close()  # Python's errors are clearer than Arrow's
            opened = pa.OSFile(os.fsencode(file))
        if version is not None and version_of(opened, path) != version:
            raise ReplacedError(path)
        return opened


def version_of(file: "pa.NativeFile", path: PathOrUrl) -> str:
    """The version of an open file; on S3 without a further request."""
    etag = file.metadata().get("ETag") if is_remote(path) and file.metadata() else None
    return etag.decode() if etag is not None else stat(path).version


def open_binary(path: PathOrUrl) -> io.BufferedReader:
    """Open a file for reading."""
    with file_errors(path):
        file = location(path)
        if isinstance(file, Path):
            _check_ends(file)
        return file.open("rb")


def _check_ends(file: Path) -> None:
    """Raise for a file that may never end, such as /dev/zero."""
    if file.is_char_device() or file.is_block_device():
        raise InputError(str(file), problem="a device", expected="a file")


@contextmanager
def open_unpacked(path: PathOrUrl) -> Iterator[io.BufferedReader]:
    """Open a file for reading, unpacked if it is gzip data; errors of the block name the file."""
    with file_errors(path), open_binary(path) as file:
        is_packed = file.peek(2).startswith(b"\x1f\x8b")
        # GzipFile is not a RawIOBase, but has ``readinto``, which BufferedReader calls.
        unpacked = cast(io.RawIOBase, gzip.GzipFile(fileobj=file))
        try:
            yield io.BufferedReader(unpacked, _BLOCK_BYTES) if is_packed else file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(path, problem=str(error), expected="a complete gzip file") from error


def check_is_text(path: PathOrUrl, data: bytes) -> None:
    """Raise if the content of a file is of another known format."""
    for magic, (name, expected) in _BINARY_FORMATS.items():
        if data.startswith(magic):
            raise InputError(path, problem=name, expected=expected)


def unpacked_name(path: PathOrUrl) -> str:
    """A path without the suffix of a compressed file."""
    return re.sub(r"\.gz$", "", str(path), flags=re.IGNORECASE)


def packed_or_not(folder: PathOrUrl, name: str) -> str | None:
    """The path of a file of a folder or of its compressed form; None if both are missing."""
    files = (location(folder) / name, location(folder) / f"{name}.gz")
    return next((str(file) for file in files if file.is_file()), None)


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
    root = location(path)
    if isinstance(root, Url) and is_glob(str(root).split("/")[2]):
        raise InputError(path, problem="a wildcard in the bucket", expected="the bucket's name")
    if root.is_dir():
        return sorted(str(file) for file in root.iterdir() if file.name.endswith(suffix))
    if not is_glob(path) or root.is_file():
        return [path if isinstance(root, Url) else str(root)]
    if isinstance(root, Path):
        return sorted(glob.glob(with_home(path)))
    folder = root.parent
    while is_glob(str(folder)):
        folder = folder.parent
    files = [str(folder / name) for name in names(folder)]
    # As on a disk, wildcards do not match a slash.
    depth = str(root).count("/")
    return [file for file in files if file.count("/") == depth and fnmatch.fnmatchcase(file, str(root))]


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
                shutil.copyfileobj(opened, file, 1 << 22)
        yield copy
