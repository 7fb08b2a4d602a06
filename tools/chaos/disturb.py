"""Disturbances of a command in a separate process: a signal, a failing disk, a clock that is set back.

File operations are counted by an audit hook (``sys.addaudithook``), so that a disturbance can be repeated at
the same operation.
"""

import errno
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}
KILLS = ("kill", "late", "future")
KILLED_IN = "chaos: "  # prefix of the line with the operation at which the command was killed
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Disturbance(NamedTuple):
    """A disturbance of a command.

    Attributes:
        kind: ``kill`` or ``late`` (killed at an operation, or after a time), ``full`` (limited file size),
            ``readonly`` or ``nospace`` (changes fail from an operation on), ``clock`` (set back by an hour
            at an operation), ``twice`` (run by two processes at once), ``disk`` (a small disk),
            ``unwritable`` (read-only folders, as an ordinary user), ``future`` (killed, and the clock is set
            back by a day before the next run), ``none``.
        at: number of the operation, from 1; milliseconds of ``late``; maximum file size of ``full``; pages of
            ``disk``.
        signal: signal of ``kill``, ``late`` and ``future``.
    """

    kind: str
    at: int = 0
    signal: int = signal.SIGKILL

    def __str__(self) -> str:
        name = f" by {signal.Signals(self.signal).name}" if self.kind in KILLS else ""
        return f"{self.kind}{name} at {self.at:,}"


def count_changes(folder: Path) -> Callable[[], int]:
    """Count changes of files in a folder by this process; return a function that reads the counter."""
    return _watch(folder, lambda number, event, path: None)


def disturb(what: Disturbance, folder: Path) -> None:
    """Prepare a disturbance of this process."""
    if what.kind in ("kill", "future"):

        def kill(number: int, event: str, path: str) -> None:
            if number == what.at:
                os.write(2, f"{KILLED_IN}{_phase(event, path)}\n".encode())
                os.kill(os.getpid(), what.signal)

        _watch(folder, kill)
    elif what.kind == "late":
        timer = threading.Timer(what.at / 1000, os.kill, (os.getpid(), what.signal))
        timer.daemon = True
        timer.start()
    elif what.kind == "full":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (what.at, what.at))
    elif what.kind in ("readonly", "nospace"):
        code = errno.EROFS if what.kind == "readonly" else errno.ENOSPC

        def fail(number: int, event: str, path: str) -> None:
            if number >= what.at:
                raise OSError(code, os.strerror(code), path)

        _watch(folder, fail)
    elif what.kind == "clock":

        def set_back(number: int, event: str, path: str) -> None:
            if number == what.at:
                _set_clock_back()

        _watch(folder, set_back)


def _phase(event: str, path: str) -> str:
    """The operation and the kind of file of a change, as text."""
    kinds = {".claim": "claim", "/driver": "claim", ".parts/": "part", ".training/": "state"}
    kind = next((kind for piece, kind in kinds.items() if piece in path), "output")
    doing = {"os.remove": "removing", "os.rmdir": "removing", "os.rename": "renaming", "os.link": "renaming"}
    return f"{doing.get(event, 'writing')} {kind}"


def _watch(folder: Path, act: Callable[[int, str, str], None]) -> Callable[[], int]:
    counted, inside, lock = [0], str(folder), threading.Lock()

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event != "open" and event not in _CHANGES:
            return
        if event == "open" and not (isinstance(given[2], int) and given[2] & _WRITES):
            return
        path = os.fsdecode(given[0]) if isinstance(given[0], str | bytes | os.PathLike) else ""
        path = os.path.abspath(path)  # noqa: PTH100 - no path object is made here
        if not path.startswith(inside):
            return
        with lock:
            counted[0] += 1
            number = counted[0]
        act(number, event, path)

    sys.addaudithook(hook)
    return lambda: counted[0]


def _set_clock_back() -> None:
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() - 3600
    time.time_ns = lambda: now_ns() - 3600 * 10**9
