"""Files and folders that appear under their final name only when they are whole."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aptool.errors import InputError

# A URL, also one that was taken for a path, which makes one slash of two. A single letter is a drive.
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside ``path``; renames it to ``path`` when the block ends well.

    On an exception the temporary file is removed and what stood at ``path`` before is untouched.

    Raises:
        InputError: the folder of ``path`` cannot be written to.
    """
    check_writable(path)
    final = Path(path).resolve()  # what a link leads to is what is written
    handle, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        # mkstemp makes files private; give the result the mode an ordinary open() would have.
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, final)
    except OSError as error:
        raise InputError(path, problem=error.strerror or str(error), expected="a writable file") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path, mark: str) -> Iterator[Path]:
    """Yields a temporary folder beside ``path``; moves it to ``path`` when the block ends well.

    A folder of the same kind that stood at ``path`` is replaced, and is removed only after the new one is in
    place.

    Args:
        path: the folder.
        mark: a file that every folder of this kind holds; see ``check_folder``.

    Raises:
        InputError: the folder cannot be made there.
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
                file.chmod(0o666 & ~_umask())  # some libraries write files that no one else may read
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
    """Makes the folder that the file ``path`` will stand in, and finds out now whether it can be written to.

    Called before long work starts, so that an output that cannot be written is said at once.

    Raises:
        InputError: it cannot, or ``path`` is a folder, a device or a pipe.
    """
    _check_parent(path)
    if Path(path).is_dir():
        raise InputError(path, problem="a folder", expected="a file, or nothing yet")
    if Path(path).exists() and not Path(path).is_file():
        # A rename would put a file in its place.
        raise InputError(path, problem="a device or a pipe", expected="a file, or nothing yet")


def check_apart(path: str | Path, inputs: Iterable[str | Path]) -> None:
    """Finds out whether an output would replace one of the files that it is made from.

    Raises:
        InputError: it would.
    """
    if not Path(path).is_file():
        return
    for one in inputs:
        if Path(one).is_file() and Path(one).samefile(path):
            raise InputError(path, problem="read by the same command", expected="another file to write to")


def check_folder(path: str | Path, mark: str) -> None:
    """Like ``check_writable``, for a folder.

    What stands at ``path`` is replaced only if it is empty or holds a file named ``mark``: a slip of the pen
    must not cost anyone a folder of other things.

    Raises:
        InputError: the folder cannot be written, or ``path`` is a file or a folder of other things.
    """
    _check_parent(path)
    final = Path(path)
    if final.is_dir():
        if any(final.iterdir()) and not (final / mark).is_file():
            raise InputError(path, problem=f"no {mark} in it", expected="a folder to replace, or nothing yet")
    elif final.exists():
        raise InputError(path, problem="a file", expected="a folder, or nothing yet")


def _check_parent(path: str | Path) -> None:
    if URL.match(str(path)):
        # It would become a folder by the name of the protocol.
        wanted = "a path: on this machine, or on storage that is mounted there; URLs are only read"
        raise InputError(path, expected=wanted)
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
