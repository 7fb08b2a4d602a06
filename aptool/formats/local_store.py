"""Local disks and mounted shared file systems as a store."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import string
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from typing_extensions import override

from aptool.errors import AptoolError, InputError
from aptool.formats.store import Stat, Store

_DIGITS = string.digits + string.ascii_lowercase

# Errors of ``link`` on file systems without hard links, such as FAT, SMB and some of FUSE.
_NO_LINKS = {errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}

# Folders that this process created for outputs, innermost first.
_created_folders: list[Path] = []

# Rust libraries report system errors only in messages.
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")


class LocalStore(Store):
    """Files on local disks; keys are absolute paths."""

    @override
    def stat(self, key: str) -> Stat:
        return _stat(Path(key).stat())

    @override
    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with Path(key).open("rb") as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    @override
    def read_versioned(self, key: str) -> tuple[bytes, str]:
        with Path(key).open("rb") as file:
            return file.read(), _token(os.fstat(file.fileno()))

    @override
    def create(self, key: str, data: bytes) -> bool:
        temporary = self._write_temporary(key, data)
        try:
            with writing(key, FileExistsError, FileNotFoundError):
                try:
                    os.link(temporary, key)  # atomic, and fails if the file exists
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    _write_new(Path(key), data)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    @override
    def swap(self, key: str, data: bytes, version: str) -> bool:
        """Swaps lock the file, so that only one of several succeeds."""
        try:
            with Path(key).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _token(os.fstat(file.fileno())) != version or _token(Path(key).stat()) != version:
                    return False
                os.replace(self._write_temporary(key, data), key)
                return True
        except FileNotFoundError:
            return False

    @override
    @contextmanager
    def writer(self, key: str) -> Iterator[IO[bytes]]:
        with self.scratch(key) as temporary, temporary.open("wb") as file:
            yield file

    @override
    @contextmanager
    def scratch(self, key: str) -> Iterator[Path]:
        self.check_writable(key)
        final = resolved(key)  # replaces the target of a symbolic link, not the link
        remove_leftovers(final)
        temporary = temporary_name(final)
        temporary.touch(exist_ok=False)
        try:
            with locked(temporary), writing(key):
                yield temporary
                flush(temporary)
                # Some libraries write private files; set the mode that open() would set.
                temporary.chmod(0o666 & ~umask())
                os.replace(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)

    @override
    def upload(self, key: str, file: Path) -> None:
        with self.scratch(key) as temporary:
            shutil.copyfile(file, temporary)

    @override
    def names(self, folder: str) -> list[str]:
        root = Path(folder)
        return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())

    @override
    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            Path(key).unlink(missing_ok=True)

    @override
    def check_writable(self, key: str) -> None:
        check_parent(key)
        if Path(key).is_dir():
            raise InputError(key, problem="a folder", expected="a file, or a new path")
        if Path(key).exists() and not Path(key).is_file():
            # A rename would replace it.
            raise InputError(key, problem="a device or a pipe", expected="a file, or a new path")

    @staticmethod
    def _write_temporary(key: str, data: bytes) -> Path:
        temporary = temporary_name(Path(key))
        with writing(key, FileNotFoundError):
            _write_new(temporary, data)
        return temporary


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist, and remove it if this fails."""
    with contextlib.ExitStack() as undo, path.open("xb") as file:
        undo.callback(path.unlink, missing_ok=True)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        undo.pop_all()


def _token(status: os.stat_result) -> str:
    """A version that also distinguishes files of the same size and time."""
    return f"{_stat(status).version}-{status.st_ino}"


def _stat(status: os.stat_result) -> Stat:
    return Stat(status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


def resolved(path: str | Path) -> Path:
    """The absolute path of an output, without symbolic links."""
    try:
        final = Path(path).resolve()
        str(final).encode("utf-8")
        if final.is_symlink():  # from Python 3.13 on, ``resolve`` raises no error
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except (RuntimeError, OSError) as error:
        raise InputError(path, problem="a link to itself", expected="a path to write to") from error
    except UnicodeEncodeError as error:
        expected = "a UTF-8 name"
        raise InputError(path, problem="a name that is not UTF-8", expected=expected) from error
    return final


@contextmanager
def writing(path: object, *unchanged: type[OSError]) -> Iterator[None]:
    """Raise disk errors as InputError with the path of the output, except for ``unchanged`` errors."""
    passed: tuple[type[Exception], ...] = (AptoolError, *unchanged)
    try:
        yield
    except passed:
        raise
    except Exception as error:
        match = _SYSTEM_ERROR.search(str(error))
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        elif match is not None:
            reason = os.strerror(int(match[1]))
        else:
            raise
        raise InputError(path, problem=reason, expected="a writable file or folder") from error


def temporary_name(final: Path) -> Path:
    """A new hidden name in the folder of an output, which contains the id of this process."""
    token = _base36(os.getpid(), 5) + _base36(secrets.randbelow(36**3), 3)
    return final.with_name(f".{final.name}.{token}.part")


def _base36(number: int, digits: int) -> str:
    return "".join(_DIGITS[number // 36**digit % 36] for digit in reversed(range(digits)))


def remove_leftovers(final: Path) -> None:
    """Remove the temporary files and folders of an output that killed processes left.

    Keep those of running processes of this machine, and those that another machine has locked. Restore a
    replaced folder that has no successor.
    """
    pattern = re.compile(rf"\.{re.escape(final.name)}\.[a-z0-9_]{{8}}\.part(\.old)?")
    with contextlib.suppress(OSError):
        for leftover in sorted(path for path in final.parent.iterdir() if pattern.fullmatch(path.name)):
            with contextlib.suppress(OSError):
                _remove_leftover(leftover, final)


def _remove_leftover(leftover: Path, final: Path) -> None:
    temporary = leftover.with_suffix("") if leftover.suffix == ".old" else leftover
    # Its process is checked too: a new file is not locked yet.
    with contextlib.suppress(ValueError):
        process = int(temporary.name.rsplit(".", 2)[1][:5], 36)
        if process != os.getpid() and Path(f"/proc/{process}").exists():
            return
    if temporary.exists():
        with locked(temporary) as is_unused:
            if not is_unused:
                return
    if leftover.suffix == ".old" and leftover.is_dir() and not final.exists():
        os.replace(leftover, final)
    elif leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a file or folder while the block runs, so that ``remove_leftovers`` keeps it.

    Yield False if another process has locked it, or if the file system has no locks.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def check_parent(path: str | Path) -> None:
    """Create the folder of ``path``; raise if it is not writable or the name is too long."""
    final = resolved(path)
    created: list[Path] = []  # innermost first
    try:
        created += [folder for folder in final.parents if not folder.exists()]
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=final.parent):
            pass
        with contextlib.suppress(FileNotFoundError):
            temporary_name(final).lstat()  # raises if the name is too long
    except OSError as error:
        _remove_empty(created)
        raise InputError(path, problem=error.strerror or str(error), expected="a writable folder") from error
    _created_folders[:0] = created


def remove_empty_folders() -> None:
    """Remove the empty folders that this process created for outputs, after a failure."""
    _remove_empty(_created_folders)
    _created_folders.clear()


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def free_bytes(path: Path) -> int:
    """Free space on the disk of a file or folder, which may not exist yet."""
    return shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.exists())).free


def flush(path: Path) -> None:
    """Flush a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def umask() -> int:
    """The permission bits that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
