"""Input files: local, in an object store, or at another URL that fsspec supports.

``Unpacked`` decompresses gzip, bzip2 and xz while reading.
"""

from __future__ import annotations

import bz2
import fnmatch
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from typing_extensions import override

from aptool.errors import AptoolError, InputError
from aptool.formats.location import (
    ObjectPath,
    PathOrUrl,
    is_glob,
    is_object_url,
    is_remote,
    store_of,
    whole_url,
    with_home,
)
from aptool.formats.store import ReplacedError, Stat

if TYPE_CHECKING:
    import pyarrow as pa


_PACKED = re.compile(rb"(?P<gzip>\x1f\x8b)|(?P<bzip2>BZh[1-9]1AY&SY)|(?P<xz>\xfd7zXZ\0)", re.DOTALL)
_LONGEST_MAGIC = 10
_SAVE_SHEET = "text, such as the sheet saved as CSV in UTF-8"
# First bytes of files that are not text, with the name of the format and what to pass instead.
_BINARY_FORMATS = {
    b"PK\x03\x04": ("an Excel workbook or a ZIP archive", _SAVE_SHEET),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", _SAVE_SHEET),
    b"PAR1": ("a Parquet file", "text"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("text in UTF-16", "text in UTF-8")),
    **{bytes([0x80, protocol]): ("a Python pickle", "text") for protocol in range(2, 6)},
    b"\x28\xb5\x2f\xfd": ("zstd data", "text, or gzip, bzip2 or xz data"),
}

_BLOCK_BYTES = 1 << 17


class Input(NamedTuple):
    """An input file and its expected version; with None, any version is valid."""

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
        if is_remote(path):
            return _open_other(str(path))
        file = Path(with_home(str(path)))
        if file.is_char_device() or file.is_block_device():  # may never end, such as /dev/zero
            raise InputError(path, problem="a device", expected="a file")
        return file.open("rb")


@contextmanager
def open_unpacked(path: PathOrUrl) -> Iterator[io.BufferedReader[Any]]:
    """Open a local file or a URL for reading, unpacked if it is gzip, bzip2 or xz; it may not be seekable."""
    with open_binary(path) as opened:
        # A file served over HTTP without byte ranges cannot seek; a buffer allows a look at its first bytes.
        file = io.BufferedReader(cast(io.RawIOBase, opened))
        with readable(path):
            packed = _PACKED.match(file.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC])
        yield Unpacked(path, file, str(packed.lastgroup)) if packed is not None else file


def check_is_text(path: PathOrUrl, data: bytes) -> None:
    """Raise if the content of a file is of another known format."""
    for magic, (name, expected) in _BINARY_FORMATS.items():
        if data.startswith(magic):
            raise InputError(path, problem=name, expected=expected)
    if is_pickle(data):
        raise InputError(path, problem="a Python pickle", expected="text")


def is_pickle(data: bytes) -> bool:
    """Whether data are a whole Python pickle of any protocol; its opcodes are read, not executed."""
    if not data.endswith(b"."):  # the last opcode
        return False
    import pickletools

    try:
        positions = [position for *_, position in pickletools.genops(data)]
        return 0 < (positions[-1] or 0) == len(data) - 1
    except Exception:
        return False


def unpacked_name(path: PathOrUrl) -> str:
    """A path without the suffix of a compressed file."""
    return re.sub(r"\.(gz|bz2|xz)$", "", str(path), flags=re.IGNORECASE)


def open_native(path: PathOrUrl, version: str | None = None) -> pa.NativeFile:
    """Open a local file or a URL for Arrow; raise if its version is not ``version``, from ``stat``.

    Read a ``pa.PythonFile``, which a URL gives, with ``use_threads=False``: Arrow's threads abort the process
    if they hold a Python file when the interpreter ends. Arrow reads a local file without Python.
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
        file_path = Path(with_home(str(path)))
        if file_path.is_fifo():  # opening a pipe waits for a writer
            raise InputError(path, problem="a pipe", expected="a seekable file")
        file_path.open("rb").close()  # Python's errors are clearer than Arrow's
        return pa.OSFile(os.fsencode(file_path))


def expand(paths: tuple[str, ...] | list[str], suffix: str) -> list[str]:
    """List the files of ``paths`` without duplicates.

    A folder expands to its files with ``suffix``, a glob to its matches, both sorted by name.
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


@contextmanager
def readable(path: PathOrUrl) -> Iterator[None]:
    """Raise all errors of reading a file as InputError; each protocol of fsspec has its own exceptions."""
    try:
        yield
    except AptoolError:
        raise
    except FileNotFoundError as error:
        raise InputError(str(path), problem="file not found", expected="a file that exists") from error
    except IsADirectoryError as error:
        raise InputError(str(path), problem="a folder", expected="a file") from error
    except Exception as error:
        if not (isinstance(error, OSError | ValueError) or is_remote(path)):
            raise
        reason = (str(getattr(error, "strerror", None) or error) or type(error).__name__).splitlines()[0]
        raise InputError(str(path), problem=reason, expected="a file that can be read") from error


def _open_other(url: str) -> IO[bytes]:
    """Open a URL of another protocol. A stream that cannot seek is read into memory."""
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
    path = with_home(path)
    if Path(path).is_dir():
        return sorted(str(file) for file in Path(path).glob(f"*{suffix}"))
    if is_glob(path) and not Path(path).exists():
        return sorted(glob.glob(path))
    return [path]


def _object_matches(url: str, suffix: str) -> list[str]:
    with readable(url):
        if is_glob(url) and not _exists(url):
            # As on a disk, wildcards do not match a slash.
            folder = ObjectPath(url)
            while is_glob(str(folder)):
                if folder.parent == folder:
                    raise InputError(url, problem="a wildcard in the bucket", expected="the bucket's name")
                folder = folder.parent
            depth = url.count("/")
            store, key = store_of(folder)
            files = [str(folder / name) for name in store.names(key)]
            return [file for file in files if file.count("/") == depth and fnmatch.fnmatchcase(file, url)]
        entries = [str(entry) for entry in ObjectPath(url).iterdir()]
        return [entry for entry in entries if entry.endswith(suffix)] if entries else [url]


def _exists(url: str) -> bool:
    """Whether an object has exactly this name, wildcards included."""
    if is_glob(url.split("/")[2]):
        return False
    store, key = store_of(url)
    try:
        store.stat(key)
    except FileNotFoundError:
        return False
    return True


def _other_matches(path: str, suffix: str) -> list[str]:
    with readable(path):
        import fsspec

        system, name = fsspec.core.url_to_fs(whole_url(path))
        if is_glob(name) and not system.exists(name):
            files: list[Any] = system.glob(name)
        elif system.isdir(name):
            files = system.glob(f"{name.rstrip('/')}/*{suffix}")
        else:
            return [path]
    return sorted(str(system.unstrip_protocol(file)) for file in files)


class Unpacked(io.BufferedReader):
    """The decompressed content of a stream."""

    def __init__(self, path: object, file: IO[bytes], kind: str) -> None:
        """Decompress ``file``, of kind gzip, bzip2 or xz; errors name ``path``."""
        super().__init__(_Decompressor(path, file, kind), _BLOCK_BYTES)


_OPENERS: dict[str, Callable[[IO[bytes]], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


class _Decompressor(io.RawIOBase):
    def __init__(self, path: object, file: IO[bytes], kind: str) -> None:
        self._path, self._kind = path, kind
        self._unpacked = _OPENERS[kind](file)

    @override
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._unpacked.read1(len(buffer))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            expected = f"a complete {self._kind} file"
            raise InputError(str(self._path), problem=str(error), expected=expected) from error
        buffer[: len(data)] = data
        return len(data)

    @override
    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_BLOCK_BYTES) or b"", b""))
