"""The store of this machine's disks, and of shared ones that it has mounted."""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from aptool.errors import AptoolError, InputError
from aptool.formats.store import ReplacedError, Stat, Store

# How libraries written in Rust name an error of the system.
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")


class LocalStore(Store):
    """See ``Store``; keys are absolute paths."""

    def stat(self, key: str) -> Stat:
        """See ``Store.stat``."""
        return _stat(Path(key).stat())

    def read(self, key: str, start: int = 0, end: int | None = None, version: str | None = None) -> bytes:
        """See ``Store.read``."""
        with Path(key).open("rb") as file:
            self._check(key, file, version)
            file.seek(start)
            data = file.read() if end is None else file.read(end - start)
            self._check(key, file, version)  # also after: a file may be overwritten in place
            return data

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        """See ``Store.read_versioned``."""
        with Path(key).open("rb") as file:
            return file.read(), _token(os.fstat(file.fileno()))

    def create(self, key: str, data: bytes) -> bool:
        """See ``Store.create``."""
        temporary = self._written_beside(key, data)
        try:
            os.link(temporary, key)  # atomic, and fails where there is a file
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            try:
                with Path(key).open("xb") as file:
                    file.write(data)
            except FileExistsError:
                return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def swap(self, key: str, data: bytes, version: str) -> bool:
        """See ``Store.swap``; all who swap lock the file, so that one of them succeeds."""
        try:
            with Path(key).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _token(os.fstat(file.fileno())) != version or _token(Path(key).stat()) != version:
                    return False
                os.replace(self._written_beside(key, data), key)
                return True
        except FileNotFoundError:
            return False

    @contextmanager
    def writer(self, key: str) -> Iterator[IO[bytes]]:
        """See ``Store.writer``."""
        with self.scratch(key) as temporary, temporary.open("wb") as file:
            yield file

    @contextmanager
    def scratch(self, key: str) -> Iterator[Path]:
        """See ``Store.scratch``; the file is in the folder where it will be."""
        self.check_writable(key)
        final = resolved(key)  # the target of a link is replaced, not the link
        handle, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            with writing(key):
                yield temporary
                flush(temporary)
                # mkstemp makes files private; the result gets the mode that open() would give it.
                temporary.chmod(0o666 & ~umask())
                os.replace(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)

    def upload(self, key: str, file: Path) -> None:
        """See ``Store.upload``."""
        with self.scratch(key) as temporary:
            shutil.copyfile(file, temporary)

    def names(self, folder: str) -> list[str]:
        """See ``Store.names``."""
        root = Path(folder)
        return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())

    def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        for key in keys:
            Path(key).unlink(missing_ok=True)

    def check_writable(self, key: str) -> None:
        """See ``Store.check_writable``; creates the folder of the file."""
        check_parent(key)
        if Path(key).is_dir():
            raise InputError(key, problem="a folder", expected="a file, or nothing yet")
        if Path(key).exists() and not Path(key).is_file():
            # Renaming a file to it would replace it.
            raise InputError(key, problem="a device or a pipe", expected="a file, or nothing yet")

    @staticmethod
    def _check(key: str, file: IO[bytes], version: str | None) -> None:
        if version is not None and _stat(os.fstat(file.fileno())).version != version:
            raise ReplacedError(key)

    @staticmethod
    def _written_beside(key: str, data: bytes) -> Path:
        final = Path(key)
        # A name that ``remove_leftovers`` knows, if this process is killed here.
        temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
        with contextlib.ExitStack() as undo:
            undo.callback(temporary.unlink, missing_ok=True)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            undo.pop_all()
        return temporary


def _token(found: os.stat_result) -> str:
    """A version that also differs between files of one size and one tick of the clock."""
    return f"{_stat(found).version}-{found.st_ino}"


def _stat(found: os.stat_result) -> Stat:
    return Stat(found.st_size, f"{found.st_size}-{found.st_mtime_ns}")


def resolved(path: str | Path) -> Path:
    """The absolute path of an output, without links.

    Raises:
        InputError: it is a link to itself, or its name is not UTF-8, which some libraries cannot write.
    """
    try:
        found = Path(path).resolve()
        str(found).encode("utf-8")
    except (RuntimeError, OSError) as error:
        raise InputError(path, problem="a link to itself", expected="a path to write to") from error
    except UnicodeEncodeError as error:
        expected = "a path to write to whose name is UTF-8"
        raise InputError(path, problem="a name that is not UTF-8", expected=expected) from error
    return found


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Names the output in what a disk raises, also through libraries that have errors of their own."""
    try:
        yield
    except AptoolError:
        raise
    except OSError as error:
        raise InputError(
            path, problem=error.strerror or str(error), expected="a writable file or folder"
        ) from error
    except Exception as error:
        found = _SYSTEM_ERROR.search(str(error))
        if found is None:
            raise
        reason = os.strerror(int(found[1]))
        raise InputError(path, problem=reason, expected="a writable file or folder") from error


def check_parent(path: str | Path) -> None:
    """Creates the folder of ``path`` and checks that it can be written to.

    Raises:
        InputError: it cannot.
    """
    try:
        parent = resolved(path).parent
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise InputError(
            path, problem=error.strerror or str(error), expected="a place that can be written to"
        ) from error


def flush(path: Path) -> None:
    """Waits until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def umask() -> int:
    """The permissions that this process takes away from new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
