"""Claims: locks by which only one process at a time writes an output.

A claim is a file that names its owner, is written atomically, also on an object store, and is renewed while
the owner runs. Another process takes a claim over if its owner has ended or, on another machine, has stopped
renewing it. Workers of the previous owner notice at the next ``check`` or ``holds``.
"""

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from aptool.documents import parse_json
from aptool.errors import AptoolError, InputError, one_line
from aptool.formats.atomic import remove_leftovers
from aptool.formats.location import Location, PathOrUrl, output_location, store_of

logger = logging.getLogger(__name__)

# Seconds between renewals, and seconds without renewal after which a remote owner counts as ended.
RENEWAL_SECONDS = 5.0
PATIENCE_SECONDS = 30.0

# Name of the claim in a folder of parts or of a training; its owner drives the work.
DRIVER = "driver"

# First bytes of a claim, by which a damaged claim differs from a file of the user.
_START = b'{"token": '


class SupersededError(AptoolError):
    """Another process has taken over the output."""

    def __init__(self, output: object) -> None:
        super().__init__(f"{output}: another run with the same output has taken over: expected one at a time")


class Claim:
    """The right to write an output. Workers know it by ``path`` and ``token``; see ``claimed``."""

    def __init__(self, path: Location, output: object) -> None:
        """Prepare a claim; ``take`` takes it."""
        self.path = path
        self.token = secrets.token_hex(8)
        self._output = output
        self._store, self._key = store_of(path)
        self._start = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._renewals = 0
        self._lock = threading.Lock()  # shared with the renewing thread

    def check(self) -> None:
        """Raise if another process took over; call before irreversible steps."""
        check_held(self.path, self.token, self._output)

    def take(self) -> None:
        """Take the claim, if need be from an owner that has ended; raise if the owner is running."""
        while not self._create():
            try:
                data, version = self._store.read_versioned(self._key)
            except FileNotFoundError:
                continue
            if not (data.startswith(_START) or _START.startswith(data)):
                problem = "not a claim that aptool wrote"
                raise InputError(self.path, problem=problem, expected="the file elsewhere, or another output")
            owner = _parsed(data)
            who = _described(owner)
            if not self._has_ended(owner, data):
                raise InputError(
                    str(self._output), problem=f"being written by {who}", expected="one command at a time"
                )
            if self._store.swap(self._key, self._record(), version):
                logger.info(f"{self._output}: {who} has ended: its output is taken over")
                return

    def _create(self) -> bool:
        """Create the claim and its folder; retry if an ending owner removes the folder."""
        while True:
            try:
                self.path.parent.mkdir(exist_ok=True)
            except FileExistsError as error:
                problem, expected = "a file or a broken link", "a folder, or a new path"
                raise InputError(self.path.parent, problem=problem, expected=expected) from error
            with contextlib.suppress(FileNotFoundError):
                return self._store.create(self._key, self._record())

    def reissue(self) -> None:
        """Change the token, so that workers with the old token lose the claim."""
        with self._lock:
            before, self.token = self.token, secrets.token_hex(8)
            data, version = self._store.read_versioned(self._key)
            if _parsed(data).get("token") != before or not self._store.swap(
                self._key, self._record(), version
            ):
                raise SupersededError(self._output)

    def renew(self) -> None:
        """Renew the claim, unless another process has taken over."""
        with self._lock:
            data, version = self._store.read_versioned(self._key)
            if _parsed(data).get("token") == self.token:
                self._renewals += 1
                self._store.swap(self._key, self._record(), version)

    def release(self) -> None:
        """Remove the claim, unless another process has taken over."""
        with contextlib.suppress(OSError, AptoolError):  # another process can take over a remaining file
            # Stores have no conditional deletion. A process that takes over between the two steps, so
            # long after the last renewal, loses its claim: its next ``check`` raises, and it writes nothing.
            if holds(self.path, self.token):
                self._store.delete([self._key])

    def _record(self) -> bytes:
        record = {
            "token": self.token,
            "host": socket.gethostname(),
            "machine": _machine(),
            "process": os.getpid(),
            "started": _started(os.getpid()),
            "since": self._start,
            "renewals": self._renewals,
        }
        return (json.dumps(record) + "\n").encode()

    def _has_ended(self, owner: dict[str, Any], data: bytes) -> bool:
        if owner.get("machine") == _machine():
            started = _started(owner.get("process"))
            return started is None or started != owner.get("started")
        logger.info(
            f"{self._output}: claimed by {_described(owner)}: "
            f"waiting {PATIENCE_SECONDS:.0f} s to see whether it is still running"
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(min(1.0, PATIENCE_SECONDS / 10))
            try:
                if self._store.read_versioned(self._key)[0] != data:
                    return False
            except FileNotFoundError:
                return True
        return True


@contextmanager
def claimed(path: Location, output: object) -> Iterator[Claim]:
    """Claim ``output`` with the file ``path`` while the block runs."""
    claim = Claim(path, output)
    claim.take()
    remove_leftovers(path)  # temporary files of owners that were killed while they renewed the claim
    ended = threading.Event()
    thread = threading.Thread(target=_renew_until, args=(claim, ended), name="aptool-claim", daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        ended.set()
        thread.join()
        claim.release()


@contextmanager
def claimed_folder(folder: Location, output: object) -> Iterator[Claim]:
    """Claim an output with a file in a folder, which is removed at the end if it is empty."""
    try:
        with claimed(folder / DRIVER, output) as claim:
            yield claim
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextmanager
def claimed_beside(output: PathOrUrl) -> Iterator[Claim]:
    """Claim an output with the hidden file ``.NAME.claim`` in its folder."""
    path = output_location(output)
    with claimed(path.with_name(f".{path.name}.claim"), output) as claim:
        yield claim


def holds(path: Location, token: str) -> bool:
    """Whether the claim file has this token."""
    store, key = store_of(path)
    try:
        return bool(_parsed(store.read(key)).get("token") == token)
    except OSError:
        return False


def check_held(path: Location, token: str, output: object) -> None:
    """Raise unless the claim file of an output has this token."""
    if not holds(path, token):
        raise SupersededError(output)


def _renew_until(claim: Claim, ended: threading.Event) -> None:
    while not ended.wait(RENEWAL_SECONDS):
        with contextlib.suppress(OSError, AptoolError):  # retried at the next renewal
            claim.renew()


def _parsed(data: bytes) -> dict[str, Any]:
    """The record of a claim; empty if it is damaged."""
    try:
        record = parse_json(data.decode("utf-8"), "claim")
    except (ValueError, InputError):
        return {}
    return record if isinstance(record, dict) else {}


def _described(owner: dict[str, Any]) -> str:
    process, host, start = (one_line(str(owner.get(name, "?"))) for name in ("process", "host", "since"))
    return f"process {process} on {host}, since {start}"


@lru_cache(maxsize=1)
def _machine() -> str:
    """An id of the machine and the container, within which process ids are unique."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def _started(process: object) -> str | None:
    """Start time of a local process in kernel ticks, which tells reused ids apart; None if it has ended."""
    if not isinstance(process, int):
        return None
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after_name = fields.rpartition(")")[2].split()
    return None if after_name[0] in "ZX" else after_name[19]
