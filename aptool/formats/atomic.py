"""Files and folders that get their final name only when they are complete."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aptool.errors import InputError
from aptool.formats.storage import is_remote


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``path``, which is renamed to ``path`` if the block succeeds.

    On an exception the temporary file is removed and a file that was at ``path`` before is unchanged.

    Raises:
        InputError: the folder of ``path`` cannot be written to.
    """
    check_writable(path)
    final = Path(path).resolve()  # the target of a link is replaced, not the link
    handle, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        # mkstemp makes files private; the result gets the mode that open() would give it.
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, final)
    except OSError as error:
        raise InputError(path, problem=error.strerror or str(error), expected="a writable file") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path, mark: str) -> Iterator[Path]:
    """Yields a temporary folder beside ``path``, which is renamed to ``path`` if the block succeeds.

    A folder of the same kind at ``path`` is replaced, and is removed only after the new one is in place.

    Args:
        path: the folder.
        mark: name of a file that every folder of this kind contains; see ``check_folder``.

    Raises:
        InputError: the folder cannot be created there.
    """
    check_folder(path, mark)
    final = Path(path).resolve()
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent))
    replaced = temporary.with_name(temporary.name + ".old")
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _flush(file)
                file.chmod(0o666 & ~_umask())  # some libraries write private files
        temporary.chmod(0o777 & ~_umask())
        if final.exists():
            os.replace(final, replaced)
        os.replace(temporary, final)
    finally:
        if replaced.exists() and not final.exists():  # stopped between the two renames
            os.replace(replaced, final)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def check_writable(path: str | Path) -> None:
    """Creates the parent folder of the file ``path`` and checks that it can be written to.

    Called before long work starts, so that it does not end with an output that cannot be written.

    Raises:
        InputError: it cannot be written to, or ``path`` is a folder, a device or a pipe.
    """
    _check_parent(path)
    if Path(path).is_dir():
        raise InputError(path, problem="a folder", expected="a file, or nothing yet")
    if Path(path).exists() and not Path(path).is_file():
        # Renaming a file to it would replace it.
        raise InputError(path, problem="a device or a pipe", expected="a file, or nothing yet")


def check_apart(path: str | Path, inputs: Iterable[str | Path]) -> None:
    """Checks that an output does not replace one of its inputs.

    Raises:
        InputError: it does.
    """
    if not Path(path).is_file():
        return
    for one in inputs:
        if Path(one).is_file() and Path(one).samefile(path):
            raise InputError(path, problem="read by the same command", expected="another file to write to")


def check_folder(path: str | Path, mark: str) -> None:
    """Like ``check_writable``, for a folder.

    A folder at ``path`` is replaced only if it is empty or contains a file named ``mark``, so that a mistyped
    path does not delete other files.

    Raises:
        InputError: the folder cannot be written, or ``path`` is a file or a folder of another kind.
    """
    _check_parent(path)
    final = Path(path)
    if final.is_dir():
        if any(final.iterdir()) and not (final / mark).is_file():
            raise InputError(path, problem=f"no {mark} in it", expected="a folder to replace, or nothing yet")
    elif final.exists():
        raise InputError(path, problem="a file", expected="a folder, or nothing yet")


def _check_parent(path: str | Path) -> None:
    if is_remote(path):
        # It would become a folder with the name of the protocol.
        raise InputError(path, expected="a local path, perhaps on mounted storage; URLs are read only")
    try:
        parent = Path(path).resolve().parent
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise InputError(
            path, problem=error.strerror or str(error), expected="a place that can be written to"
        ) from error


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
