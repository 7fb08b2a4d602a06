"""Files and folders, written atomically: they get their names only when they are complete.

Outputs that a user names go through ``output_file``, ``output_stream`` and ``output_folder``, which replace
only unchanged outputs of aptool (see ``formats.outputs``). ``atomic_file`` writes in aptool's own folders.
"""

import contextlib
import errno
import hashlib
import io
import os
import re
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeGuard, cast

from typing_extensions import override

from aptool.errors import AptoolError, InputError
from aptool.formats import local_store
from aptool.formats.local_store import check_parent, flush, locked, resolved, umask, writing
from aptool.formats.location import Location, ObjectPath, PathOrUrl, is_remote, location, store_of
from aptool.formats.object_folder import published
from aptool.formats.outputs import MANIFEST as OUTPUTS
from aptool.formats.outputs import (
    Kind,
    Written,
    check_folder_replaceable,
    check_names_replaceable,
    check_replaceable,
    is_unchanged,
    read_written,
    record,
    record_all,
    sha256_of,
)

# Attempts to rename a folder to a name that another process takes at the same moment.
_ATTEMPTS = 10


@contextmanager
def atomic_file(path: PathOrUrl) -> Iterator[Path]:
    """Yield a temporary local file, which becomes ``path`` if the block succeeds."""
    store, key = store_of(path)
    with store.scratch(key) as temporary:
        yield temporary


@contextmanager
def output_file(path: PathOrUrl, kind: Kind) -> Iterator[Path]:
    """Yield a temporary local file, which becomes the output ``path`` if the block succeeds."""
    check_replaceable(path, kind)
    with atomic_file(path) as temporary:
        yield temporary
        record(path, kind, sha256_of(temporary))


@contextmanager
def output_stream(path: PathOrUrl, kind: Kind) -> Iterator[IO[bytes]]:
    """Yield a stream, whose content becomes ``path`` if the block succeeds; it needs no local disk."""
    check_replaceable(path, kind)
    store, key = store_of(path)
    with store.writer(key) as file:
        hashed = _HashedStream(file)
        yield cast(IO[bytes], hashed)
        record(path, kind, hashed.digest.hexdigest())


@contextmanager
def output_folder(
    path: PathOrUrl, kind: Kind, mark: str, names: Iterable[str] = (), *, by_content: bool = False
) -> Iterator[Path]:
    """Yield a temporary folder, which becomes ``path`` if the block succeeds.

    The new folder replaces a folder of the same kind at ``path``, and gets copies of the files in it that
    aptool did not write. On an object store, the files are uploaded, ``mark`` last: a file that every folder
    of this kind contains. ``names`` are files to be written, if they are known in advance, and ``by_content``
    is that of ``object_folder.published``.
    """
    check_output_folder(path, kind, names)
    if isinstance(target := location(path), ObjectPath):
        with published(target, mark, partial(_record_upload, path, kind), by_content=by_content) as temporary:
            yield temporary
            new = _file_names(temporary)
        if not by_content:
            store, key = store_of(target)
            old = {name: entry for name, entry in read_written(target).items() if name not in new}
            store.delete([f"{key}/{name}" for name in _unchanged(target, kind, old)])
        return
    final = resolved(target)
    local_store.remove_leftovers(final)
    temporary = local_store.temporary_name(final)
    temporary.mkdir()
    replaced = temporary.with_name(temporary.name + ".old")
    try:
        with locked(temporary), writing(path):
            yield temporary
            files = [name for name in _file_names(temporary) if Path(name).name != OUTPUTS]
            record_all(temporary, {name: Written(kind, (sha256_of(temporary / name),)) for name in files})
            for file in temporary.rglob("*"):
                if file.is_file():
                    flush(file)
                    file.chmod(0o666 & ~umask())  # some libraries write private files
            temporary.chmod(0o777 & ~umask())
            if not any(_replaced(temporary, final, replaced, kind) for _ in range(_ATTEMPTS)):
                problem = "another process keeps replacing it"
                raise InputError(path, problem=problem, expected="one command at a time")
    finally:
        if replaced.exists() and not final.exists():  # stopped between the two renames
            os.replace(replaced, final)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _file_names(folder: Path) -> set[str]:
    """The relative names of all files of a folder."""
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def _unchanged(folder: Location, kind: Kind, written: Mapping[str, Written]) -> set[str]:
    """The names of the recorded outputs of one kind in a folder that are unchanged."""
    return {
        name for name, entry in written.items() if entry.kind == kind and is_unchanged(folder / name, entry)
    }


def _record_upload(path: PathOrUrl, kind: Kind, files: Mapping[str, Path]) -> None:
    """Record the files that are about to be uploaded to a folder; raise if one would replace the user's."""
    check_names_replaceable(path, kind, files)
    record_all(location(path), {name: Written(kind, (sha256_of(file),)) for name, file in files.items()})


def _replaced(temporary: Path, final: Path, replaced: Path, kind: Kind) -> bool:
    """Rename a folder to its final name; return False if another process has just created it."""
    shutil.rmtree(replaced, ignore_errors=True)
    if final.exists():
        check_names_replaceable(final, kind, _file_names(temporary) - {OUTPUTS})
        written = read_written(final)
        record_all(temporary, {name: entry for name, entry in written.items() if entry.kind != kind})
        _copy_other_files(final, temporary, _unchanged(final, kind, written))
        os.replace(final, replaced)
    try:
        os.replace(temporary, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


class _HashedStream(io.RawIOBase):
    """Passes writes on to a stream and hashes them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    @override
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write and hash bytes."""
        self.digest.update(data)
        return self._file.write(data)


def remove_leftovers(path: PathOrUrl) -> None:
    """Remove the temporary files of ``path`` that a killed process left."""
    if not is_remote(path):  # uploads to a store are atomic
        local_store.remove_leftovers(resolved(str(path)))


def remove_matching(folder: PathOrUrl, names: re.Pattern[str]) -> None:
    """Remove the files of a folder with matching names; also the folder, if it is empty afterwards."""
    if isinstance(folder := location(folder), ObjectPath):
        store, key = store_of(folder)
        store.delete([f"{key}/{name}" for name in store.names(key) if names.fullmatch(name)])
        return
    for entry in _entries(Path(folder)):
        if names.fullmatch(entry.name) and (entry.is_file() or entry.is_symlink()):
            entry.unlink(missing_ok=True)
    if not Path(folder).is_symlink():
        with contextlib.suppress(OSError):  # missing, or not empty
            Path(folder).rmdir()


def remove_tree(folder: Location) -> None:
    """Remove a folder and its content, as far as possible."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    store, key = store_of(folder)
    with contextlib.suppress(AptoolError, OSError):
        store.delete([f"{key}/{name}" for name in store.names(key)])


def remove_outputs(folder: Location, kind: Kind, keep: Container[str] = ()) -> None:
    """Remove the unchanged outputs of one kind from a folder, but those to ``keep``, and their records."""
    written = read_written(folder)
    store, key = store_of(folder)
    stale = {name: entry for name, entry in written.items() if name not in keep}
    store.delete([f"{key}/{name}" for name in _unchanged(folder, kind, stale)])
    if stale == written and all(entry.kind == kind for entry in written.values()):
        store.delete([f"{key}/{OUTPUTS}"])


def check_writable(path: PathOrUrl) -> None:
    """Create the parent folder of a file; raise if the file cannot be written."""
    store, key = store_of(path)
    store.check_writable(key)


def check_output(path: PathOrUrl, kind: Kind) -> None:
    """Raise if an output file cannot be written or may not be replaced. Call before long work."""
    check_writable(path)
    check_replaceable(path, kind)


def check_output_folder(path: PathOrUrl, kind: Kind, names: Iterable[str] = ()) -> None:
    """Raise if an output folder, or one of ``names`` in it, may not be written. Call before long work."""
    final = location(path)
    if isinstance(final, Path):
        store_of(path)  # raises for a read-only URL
        check_parent(final)
        if final.exists() and not final.is_dir():
            raise InputError(path, problem="a file", expected="a folder, or a new path")
    else:
        check_writable(path)
    check_folder_replaceable(path, kind)
    check_names_replaceable(path, kind, names)


def check_apart(path: PathOrUrl, inputs: Iterable[PathOrUrl]) -> None:
    """Raise if an output is one of its inputs."""
    output = location(path)
    for file in map(location, inputs):
        if file == output or (_is_local(output) and _is_local(file) and file.samefile(output)):
            raise InputError(path, problem="also an input of this command", expected="another output file")


def files_of(*paths: PathOrUrl) -> Iterator[Location]:
    """Yield the entries of each local folder, such as a model; yield other paths unchanged."""
    for path in map(location, paths):
        if isinstance(path, Path) and path.is_dir():
            yield from path.iterdir()
        else:
            yield path


def _is_local(path: Location) -> TypeGuard[Path]:
    return isinstance(path, Path) and path.exists()


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _copy_other_files(old: Path, new: Path, own_files: set[str], prefix: str = "") -> None:
    """Copy the files that are neither aptool's nor in the new folder."""
    for entry in _entries(old):
        target, name = new / entry.name, prefix + entry.name
        if entry.is_dir() and not entry.is_symlink():
            if target.exists() and not target.is_dir():
                raise InputError(entry, problem="a folder", expected="a file, or a new path")
            is_new = not target.exists()
            target.mkdir(exist_ok=True)
            _copy_other_files(entry, target, own_files, name + "/")
            if is_new and not any(target.iterdir()) and any(entry.iterdir()):
                target.rmdir()  # it had only aptool's files
            elif is_new:
                shutil.copystat(entry, target)
        elif name in own_files or os.path.lexists(target):
            continue
        elif entry.is_symlink() or entry.is_file():
            shutil.copy2(entry, target, follow_symlinks=False)
        else:
            raise InputError(entry, problem="a device or a pipe", expected="only files and folders")
