"""Atomic files and folders: an output gets its final name only when it is complete."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

from aptool.errors import AptoolError, InputError
from aptool.formats import local_store
from aptool.formats.local_store import check_parent, flush, locked, resolved, umask, writing
from aptool.formats.location import Location, ObjectPath, PathOrUrl, location
from aptool.formats.object_folder import check_object_folder, published
from aptool.formats.stores import store_of
from aptool.formats.urls import is_remote

# Attempts to rename a folder to a name that another process takes at the same moment.
_ATTEMPTS = 10


@contextmanager
def atomic_file(path: PathOrUrl) -> Iterator[Path]:
    """Yield a temporary local file, which becomes ``path`` if the block succeeds.

    On an exception it is removed, and ``path`` is unchanged.
    """
    store, key = store_of(path)
    with store.scratch(key) as temporary:
        yield temporary


@contextmanager
def atomic_folder(
    path: PathOrUrl,
    mark: str,
    own_files: Callable[[Path], Collection[str]] = lambda folder: (),
    *,
    by_content: bool = False,
) -> Iterator[Path]:
    """Yield a temporary folder, which becomes ``path`` if the block succeeds.

    A folder of the same kind at ``path`` is replaced once the new folder is complete; files that are not
    ``own_files`` are copied. On an object store the files are uploaded, ``mark`` last; see
    ``formats.object_folder``.

    Args:
        path: the folder.
        mark: name of a file that every folder of this kind contains; see ``check_folder``.
        own_files: the relative paths of aptool's files in the folder that is replaced.
        by_content: on an object store, name the files by their content; ``mark`` is JSON then.
    """
    check_folder(path, mark)
    if isinstance(target := location(path), ObjectPath):
        with published(target, mark, by_content=by_content) as temporary:
            yield temporary
        return
    final = resolved(target)
    local_store.remove_leftovers(final)
    temporary = local_store.temporary_name(final)
    temporary.mkdir()
    replaced = temporary.with_name(temporary.name + ".old")
    try:
        with locked(temporary), writing(path):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    flush(file)
                    file.chmod(0o666 & ~umask())  # some libraries write private files
            temporary.chmod(0o777 & ~umask())
            if not any(_replaced(temporary, final, replaced, own_files) for _ in range(_ATTEMPTS)):
                problem = "another process keeps replacing it"
                raise InputError(path, problem=problem, expected="one command at a time")
    finally:
        if replaced.exists() and not final.exists():  # stopped between the two renames
            os.replace(replaced, final)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _replaced(
    temporary: Path, final: Path, replaced: Path, own_files: Callable[[Path], Collection[str]]
) -> bool:
    """Rename a folder to its final name; False if another process created one in the meantime."""
    shutil.rmtree(replaced, ignore_errors=True)
    if final.exists():
        _copy_other_files(final, temporary, set(own_files(final)))
        os.replace(final, replaced)
    try:
        os.replace(temporary, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def remove_leftovers(path: PathOrUrl) -> None:
    """Remove the temporary files of ``path`` that a killed process left."""
    if not is_remote(path):  # uploads to a store are atomic
        local_store.remove_leftovers(Path(str(path)).resolve())


def remove_matching(folder: PathOrUrl, names: re.Pattern[str]) -> None:
    """Remove the files of a folder with matching names, and the folder if it is then empty."""
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


def check_writable(path: PathOrUrl) -> None:
    """Create the parent folder of the file ``path`` and raise if the file cannot be written.

    Call before long work.
    """
    store, key = store_of(path)
    store.check_writable(key)


def check_apart(path: PathOrUrl, inputs: Iterable[PathOrUrl]) -> None:
    """Raise if an output is one of its inputs."""
    output = location(path)
    for file in map(location, inputs):
        if file == output or (_is_local_file(output) and _is_local_file(file) and file.samefile(output)):
            raise InputError(path, problem="read by the same command", expected="another file to write to")


def files_of(*paths: PathOrUrl) -> Iterator[Location]:
    """The entries of each local folder, such as a model; any other path itself."""
    for path in map(location, paths):
        if isinstance(path, Path) and path.is_dir():
            yield from path.iterdir()
        else:
            yield path


def check_folder(path: PathOrUrl, mark: str) -> None:
    """Raise if a folder cannot be written.

    An existing folder is replaced only if it is empty or contains ``mark``, so that a mistyped path does not
    delete other files.
    """
    final = location(path)
    if isinstance(final, ObjectPath):
        check_object_folder(final, mark)
        return
    store_of(path)  # refuses a URL of another protocol
    check_parent(final)
    if final.is_dir():
        if any(final.iterdir()) and not (final / mark).is_file():
            raise InputError(path, problem=f"no {mark} in it", expected="a folder to replace, or a new path")
    elif final.exists():
        raise InputError(path, problem="a file", expected="a folder, or a new path")


def _is_local_file(path: Location) -> TypeGuard[Path]:
    return isinstance(path, Path) and path.is_file()


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _copy_other_files(old: Path, new: Path, own_files: set[str], prefix: str = "") -> None:
    """Copy the files of a replaced folder that aptool did not write and the new folder lacks."""
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
