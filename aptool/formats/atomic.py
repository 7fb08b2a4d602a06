"""Files and folders that get their final name only when they are complete."""

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
from aptool.formats.local_store import check_parent, flush, in_use, resolved, umask, writing
from aptool.formats.location import Location, ObjectPath, PathOrUrl, location
from aptool.formats.object_folder import check_object_folder, published
from aptool.formats.stores import store_of
from aptool.formats.urls import is_remote

# Times that a folder is renamed to a name that another process takes at the same moment.
_ATTEMPTS = 10


@contextmanager
def atomic_file(path: PathOrUrl) -> Iterator[Path]:
    """Yield a temporary file of this machine, which becomes ``path`` if the block succeeds.

    On an exception it is removed, and what was at ``path`` before is unchanged.
    """
    store, key = store_of(path)
    with store.scratch(key) as temporary:
        yield temporary


def no_files(folder: Path) -> Collection[str]:
    """No file of a folder is known to be aptool's own."""
    return ()


@contextmanager
def atomic_folder(
    path: PathOrUrl,
    mark: str,
    own_files: Callable[[Path], Collection[str]] = no_files,
    *,
    by_content: bool = False,
) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``, which is renamed to ``path`` if the block succeeds.

    On an object store its files are uploaded, ``mark`` as the last; see ``formats.object_folder``.

    A folder of the same kind at ``path`` is replaced, and is removed only after the new one is in place, with
    copies of all files that are not ``own_files``.

    Args:
        path: the folder.
        mark: name of a file that every folder of this kind contains; see ``check_folder``.
        own_files: for the folder that is replaced, the relative paths of the files that aptool wrote.
        by_content: on an object store, name the files by their content; ``mark`` is JSON then.
    """
    check_folder(path, mark)
    if isinstance(there := location(path), ObjectPath):
        with published(there, mark, by_content=by_content) as temporary:
            yield temporary
        return
    final = resolved(there)
    local_store.remove_leftovers(final)
    temporary = local_store.temporary_name(final)
    temporary.mkdir()
    replaced = temporary.with_name(temporary.name + ".old")
    try:
        with in_use(temporary), writing(path):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    flush(file)
                    file.chmod(0o666 & ~umask())  # some libraries write private files
            temporary.chmod(0o777 & ~umask())
            if not any(_replaced(temporary, final, replaced, own_files) for _ in range(_ATTEMPTS)):
                problem = "replaced by others time and again"
                raise InputError(path, problem=problem, expected="one command at a time")
    finally:
        if replaced.exists() and not final.exists():  # stopped between the two renames
            os.replace(replaced, final)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _replaced(
    temporary: Path, final: Path, replaced: Path, own_files: Callable[[Path], Collection[str]]
) -> bool:
    """Rename a folder to its final name; false if another process has put one there in the meantime."""
    shutil.rmtree(replaced, ignore_errors=True)
    if final.exists():
        _keep_others(final, temporary, set(own_files(final)))
        os.replace(final, replaced)
    try:
        os.replace(temporary, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def remove_leftovers(path: PathOrUrl) -> None:
    """Remove what ``atomic_file`` or ``atomic_folder`` left for ``path`` in a process that was killed.

    See ``local_store.remove_leftovers``.
    """
    if not is_remote(path):  # a store shows nothing that is not complete
        local_store.remove_leftovers(Path(str(path)).resolve())


def remove_matching(folder: PathOrUrl, names: re.Pattern[str]) -> None:
    """Remove the files of a folder that have one of these names, and the folder if nothing else is in it."""
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
    """Remove a folder and all that is in it, as far as that is possible."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    store, key = store_of(folder)
    with contextlib.suppress(AptoolError, OSError):
        store.delete([f"{key}/{name}" for name in store.names(key)])


def check_writable(path: PathOrUrl) -> None:
    """Create the parent folder of the file ``path`` and checks that it can be written to.

    Called before long work starts, so that it does not end with an output that cannot be written.
    """
    store, key = store_of(path)
    store.check_writable(key)


def check_apart(path: PathOrUrl, inputs: Iterable[PathOrUrl]) -> None:
    """Check that an output does not replace one of its inputs."""
    output = location(path)
    for one in map(location, inputs):
        if one == output or (_is_local_file(output) and _is_local_file(one) and one.samefile(output)):
            raise InputError(path, problem="read by the same command", expected="another file to write to")


def files_of(*paths: PathOrUrl) -> Iterator[Location]:
    """What stands in each local folder, such as that of a model; of anything else the path itself."""
    for place in map(location, paths):
        if isinstance(place, Path) and place.is_dir():
            yield from place.iterdir()
        else:
            yield place


def check_folder(path: PathOrUrl, mark: str) -> None:
    """Like ``check_writable``, for a folder.

    A folder at ``path`` is replaced only if it is empty or contains a file named ``mark``, so that a mistyped
    path does not delete other files.
    """
    final = location(path)
    if isinstance(final, ObjectPath):
        check_object_folder(final, mark)
        return
    store_of(path)  # refuses a URL of another protocol
    check_parent(final)
    if final.is_dir():
        if any(final.iterdir()) and not (final / mark).is_file():
            raise InputError(path, problem=f"no {mark} in it", expected="a folder to replace, or nothing yet")
    elif final.exists():
        raise InputError(path, problem="a file", expected="a folder, or nothing yet")


def _is_local_file(path: Location) -> TypeGuard[Path]:
    return isinstance(path, Path) and path.is_file()


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _keep_others(old: Path, new: Path, own: set[str], prefix: str = "") -> None:
    """Copy what is not ``own`` of a folder that will be replaced, and is not in the new one."""
    for entry in _entries(old):
        target, name = new / entry.name, prefix + entry.name
        if entry.is_dir() and not entry.is_symlink():
            if target.exists() and not target.is_dir():
                raise InputError(entry, problem="a folder", expected="a file, or nothing yet")
            is_new = not target.exists()
            target.mkdir(exist_ok=True)
            _keep_others(entry, target, own, name + "/")
            if is_new and not any(target.iterdir()) and any(entry.iterdir()):
                target.rmdir()  # all of it was aptool's own
            elif is_new:
                shutil.copystat(entry, target)
        elif name in own or os.path.lexists(target):
            continue
        elif entry.is_symlink() or entry.is_file():
            shutil.copy2(entry, target, follow_symlinks=False)
        else:
            raise InputError(entry, problem="a device or a pipe", expected="only files and folders")
