"""Outputs: a file or folder gets its name only when it is complete, and replaces nothing without being asked.

A command checks its outputs once, before its work (``check_output``); what writes them then replaces them. On
an object store, files are written locally and uploaded in one call.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aptool.errors import AptoolError, InputError
from aptool.files import stat
from aptool.paths import Location, PathOrUrl, Url, file_errors, location, names, output_location, split

if TYPE_CHECKING:
    import pyarrow as pa

EXPECTED = "another path, or --overwrite (in Python, overwrite=True)"

_REQUESTS = 16  # at the same time


def check_output(path: PathOrUrl, *, overwrite: bool = False) -> None:
    """Raise if an output file cannot be written, or exists and may not be replaced. Call before long work."""
    final = output_location(path)
    if final.is_dir() or str(path).endswith("/"):
        raise InputError(str(path), problem="a folder", expected="a file, or a new path")
    if isinstance(final, Path):
        _check_parent(path, final)
        if final.exists() and not final.is_file():
            raise InputError(str(path), problem="a device or a pipe", expected="a file, or a new path")
    else:
        names(final)  # raises for a missing bucket
    if not overwrite and final.is_file() and stat(final).size:
        raise InputError(str(path), problem="it exists", expected=EXPECTED)


def check_output_folder(path: PathOrUrl, *, overwrite: bool = False) -> None:
    """Raise if an output folder cannot be written, or has files and may not be changed."""
    final = output_location(path)
    if isinstance(final, Path):
        _check_parent(path, final)
    if final.is_file():
        raise InputError(str(path), problem="a file", expected="a folder, or a new path")
    if not overwrite and names(final):
        raise InputError(str(path), problem="it exists", expected=EXPECTED)


def _check_parent(path: PathOrUrl, final: Path) -> None:
    """Raise unless a file can be created in the first folder above ``final`` that exists."""
    with file_errors(path, "a writable folder"):
        folder = next(folder for folder in final.parents if folder.exists())
        missing = final.relative_to(folder).parts
        for name in (*missing[:-1], f".{final.name}.part"):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                (folder / name).lstat()  # raises if the name is too long
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        with tempfile.TemporaryFile(dir=folder):
            pass


def check_apart(path: PathOrUrl, inputs: Iterable[PathOrUrl]) -> None:
    """Raise if an output is one of its inputs, or one of the files of an input folder, such as a model."""
    output = output_location(path)
    for file in map(output_location, inputs):
        if file == output or (file == output.parent and file.is_dir() and output.exists()):
            problem, expected = "also an input of this command", "another output file"
            raise InputError(str(path), problem=problem, expected=expected)


@contextmanager
def output_file(path: PathOrUrl) -> Iterator[Path]:
    """Yield a local file to write, which becomes ``path`` if the block succeeds and otherwise vanishes.

    A disk's file is renamed, and one process at a time writes it; a store's file is uploaded in one call.
    """
    final = output_location(path)
    if isinstance(final, Url):
        with tempfile.TemporaryDirectory(prefix="aptool-") as folder:
            yield (temporary := Path(folder) / (final.name[-60:] or "file"))
            upload(temporary, final)
        return
    with _beside(path, final) as (temporary, mode):
        try:
            yield temporary
            _flush(temporary, mode)
            os.replace(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def output_folder(path: PathOrUrl, mark: str) -> Iterator[Path]:
    """Yield a local folder to fill, whose files get into the folder ``path`` if the block succeeds.

    ``mark`` is the file by which readers recognize a complete folder: where ``path`` has files, it is removed
    first and written last. Other files there stay.
    """
    final = output_location(path)
    if isinstance(final, Url):
        with tempfile.TemporaryDirectory(prefix="aptool-") as name:
            yield (folder := Path(name))
            delete([final / mark])
            for file in sorted(names(folder), key=lambda file: file == mark):
                upload(folder / file, final / file)
        return
    with _beside(path, final) as (temporary, mode):
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed process
        temporary.mkdir()
        try:
            yield temporary
            files = sorted(names(temporary), key=lambda file: file == mark)
            for name in files:
                _flush(temporary / name, mode)
            if not final.exists() or not any(final.iterdir()):
                os.replace(temporary, final)
                return
            (final / mark).unlink(missing_ok=True)
            for name in files:
                (final / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(temporary / name, final / name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _beside(path: PathOrUrl, final: Path) -> Iterator[tuple[Path, int]]:
    """Yield a locked temporary name beside an output, and the mode of new files.

    The name is fixed: the next writer replaces what a killed one has left.
    """
    with file_errors(path, "a writable file or folder"):
        final.parent.mkdir(parents=True, exist_ok=True)
        with _locked(final.with_name(f".{final.name}.lock"), path) as mode:
            yield final.with_name(f".{final.name}.part"), mode


def _flush(path: Path, mode: int) -> None:
    """Flush a file to the disk, with the mode of new files: some libraries write private ones."""
    path.chmod(mode)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def upload(file: Path, target: Url) -> None:
    """Copy a file to an object."""
    import pyarrow as pa

    write_object(target, pa.memory_map(str(file)).read_buffer() if file.stat().st_size else b"")


def write_object(target: Url, data: "bytes | pa.Buffer") -> None:
    """Write an object in one call: closing a stream publishes it, also after an exception."""
    with file_errors(target, "a reachable store"):
        system, name = split(target)
        with system.open_output_stream(name, compression=None) as sink:
            sink.write(data)


def delete(files: Iterable[PathOrUrl]) -> None:
    """Remove files, if they exist; the whole content of a folder of a store with a few requests."""
    remaining = {location(path) for path in files}
    folders = Counter(file.parent for file in remaining if isinstance(file, Url))
    for folder in [folder for folder, count in folders.items() if count > 1]:
        content = {folder / name for name in names(folder)}
        if content and content <= remaining:
            remaining -= content
            _delete_folder(folder)
    urls = [file for file in remaining if isinstance(file, Url)]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        list(pool.map(lambda url: url.unlink(missing_ok=True), urls))
    for file in remaining.difference(urls):
        file.unlink(missing_ok=True)


def remove_tree(folder: Location) -> None:
    """Remove a folder and its content, as far as possible."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(AptoolError):
        _delete_folder(folder)


def _delete_folder(folder: Url) -> None:
    """Remove all objects of a folder of a store."""
    with file_errors(folder, "a reachable store"):
        system, name = split(folder)
        system.delete_dir(name)


@contextmanager
def lock(folder: Location) -> Iterator[None]:
    """Let one process at a time write a local folder; a store has no locks, and each write is whole."""
    if isinstance(folder, Url):
        yield
        return
    try:
        with contextlib.ExitStack() as held:
            with file_errors(folder, "a writable folder"):  # not those of the block
                folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(_locked(folder / ".lock", folder))
            yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()


@contextmanager
def _locked(file: Path, output: object) -> Iterator[int]:
    """Lock a file with ``flock``, which ends with the process, and yield its mode; raise if it is locked.

    The file names its owner, and is removed at the end.
    """
    while True:
        with file.open("a+") as handle:  # NFS locks only files that are open for writing
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                handle.seek(0)
                problem = f"being written by {handle.readline(200).strip() or 'another process'}"
                raise InputError(str(output), problem=problem, expected="one command at a time") from error
            status = os.fstat(handle.fileno())
            if not (file.exists() and os.path.samestat(status, file.stat())):
                continue  # its last owner has just removed it
            try:
                handle.truncate(0)
                since = time.strftime("%FT%T%z")
                handle.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}\n")
                handle.flush()
                yield status.st_mode
            finally:
                file.unlink(missing_ok=True)
            return
