"""Disturbances of the output's file system: a small disk, read-only folders, times in the future."""

import contextlib
import ctypes
import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from disturb import Disturbance

PAGE = 4096  # bytes that a file on a tmpfs takes at least
_CAPABILITIES = 0x20080522  # version 3 of the structures of capset(2)
_DAY = 86400


@contextlib.contextmanager
def prepared(what: Disturbance, folder: Path, output: Path) -> Iterator[Callable[[], object]]:
    """Prepare the file system of a command; yield a function that ends the disturbance."""
    folder.mkdir(parents=True, exist_ok=True)
    if what.kind == "disk":
        with _small_disk(folder, what.at) as enlarge:
            yield enlarge
    elif what.kind == "unwritable":
        if what.at % 2:  # the folder of the output is missing, or exists
            output.mkdir(exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield lambda: make_writable(folder)
    elif what.kind == "future":
        yield lambda: _shift_times(folder, _DAY)
    else:
        yield lambda: None


def make_writable(folder: Path) -> None:
    """Give the owner all permissions."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def become_ordinary_user() -> None:
    """Drop the capabilities of root, which may write anywhere."""
    header = struct.pack("Ii", _CAPABILITIES, 0)
    assert ctypes.CDLL(None).capset(header, bytes(24)) == 0


@contextlib.contextmanager
def _small_disk(folder: Path, pages: int) -> Iterator[Callable[[], object]]:
    """Mount a disk of a few pages at a folder; yield a function that enlarges it."""
    size = f"size={pages * PAGE}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)
    try:
        enlarge = ["mount", "-o", "remount,size=256m", str(folder)]
        yield lambda: subprocess.run(enlarge, check=True)
    finally:
        subprocess.run(["umount", folder], check=True)


def _shift_times(folder: Path, seconds: int) -> None:
    """Date all files as if the clock had been set back afterwards."""
    later = time.time() + seconds
    for path in folder.rglob("*"):
        os.utime(path, (later, later), follow_symlinks=False)
