"""A worker of a cluster and its unit.

A unit may be assigned twice: its worker or node was lost, or a killed driver left workers behind. Three rules
keep the result exact. A part has the same content, whichever worker writes it. One driver at a time claims
the output, and workers of another driver do not write its parts. Each attempt leaves a file beside the part,
so a unit that always kills its worker is reported instead of retried forever.
"""

import os
import pickle
import secrets
import socket
import threading
import time
from collections.abc import Callable, Container
from functools import lru_cache
from typing import NamedTuple

import torch

from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import check_writable, remove_leftovers, remove_matching
from aptool.formats.claim import DRIVER, SupersededError, holds
from aptool.formats.location import Location, location
from aptool.formats.pools import Answers, read_answers
from aptool.formats.storage import Input
from aptool.formats.store import ReplacedError
from aptool.formats.stores import store_of
from aptool.models.device import is_out_of_memory
from aptool.scoring.parts import ATTEMPTS, Part, digest_of, parts_folder, write_part
from aptool.scoring.pipeline import Task, read_task, score_task
from aptool.scoring.record import UnitRecord
from aptool.scoring.systems import System
from aptool.version import __version__

# Attempts at a unit whose worker was lost each time.
MAX_ATTEMPTS = 4

# Seconds between two progress reports of a unit.
REPORT_SECONDS = 1.0

MEMORY_HINT = "a smaller --tokens-per-batch takes less memory"

# Package names and versions.
Versions = tuple[tuple[str, str], ...]


class ScoringJob(NamedTuple):
    """The settings of a run, the same for all workers."""

    load: Callable[[str], System]  # given a device
    device: str
    fingerprint: str  # of the driver's system
    folder: Location  # of the parts
    owner: str  # the token of the driver's claim
    answers: Input | None  # the shared answers
    paths: tuple[str, ...] = ()  # files and folders that every node must see
    versions: Versions = ()  # the driver's
    contents: tuple[tuple[str, str], ...] = ()  # local input files, and the driver's ``digest_of`` each


class Reading(NamedTuple):
    """A unit that was read for a worker with a GPU, or the error."""

    number: int
    task: bytes
    error: str
    fatal: bool


def sweep(output: Location) -> None:
    """Remove the files that a killed driver left: records of attempts, temporary files."""
    remove_leftovers(output)
    remove_matching(parts_folder(output), ATTEMPTS)


@lru_cache(maxsize=1)
def opened(job: ScoringJob, to_read: bool = False) -> tuple[System, Answers | None]:
    """The system and the shared answers, loaded once per process; raises if they differ from the driver's.

    A process that only reads has another device, and so another fingerprint.
    """
    check_node(job)
    system = job.load("cpu" if to_read else job.device)
    if system.fingerprint != job.fingerprint and not to_read:
        raise AptoolError("the model differs from the driver's: expected the same model folder on every node")
    if job.answers is None:
        return system, None
    answers = read_answers(*job.answers)
    check_content(job, job.answers.path)
    return system, answers


def check_content(job: ScoringJob, path: str) -> None:
    """Raise if a local file on this node differs from the driver's."""
    expected = dict(job.contents).get(path)
    if expected is not None and digest_of(path) != expected:
        raise ReplacedError(path)


def read(job: ScoringJob, number: int, part: Part) -> Reading:
    """Read and tokenize a unit for a worker with a GPU; needs no GPU itself."""
    try:
        system, answers = opened(job, to_read=True)
    except AptoolError as error:
        return Reading(number, b"", f"node {host()}: {error}", True)
    try:
        begin(part, "read")
        task = pickle.dumps(read_task(part.unit, system, answers), protocol=5)
        check_content(job, part.unit.path)
        end(part, "read")
    except AptoolError as error:
        return Reading(number, b"", str(error), False)
    return Reading(number, task, "", False)


class Worker:
    """Scores units one after the other."""

    def __init__(self, job: ScoringJob) -> None:
        """Load the system; an error is reported with the first unit."""
        self._job = job
        self._name = f"{host()}:{os.getpid()}"
        self._failure = ""
        self._units, self._seconds = 0, 0.0
        try:
            opened(job)
        except AptoolError as error:
            self._failure = f"node {host()}: {error}"

    def score(
        self,
        number: int,
        part: Part,
        reading: Reading | None = None,
        post: Callable[[tuple[int, int]], None] = lambda progress: None,
    ) -> UnitRecord:
        """Score a unit and write its part; without a ``reading``, read it first.

        ``post`` receives the number of the unit and of its scored pairs from time to time.
        """
        failed = UnitRecord(number, 0, self._name, error=self._failure, fatal=True)
        if self._failure:
            return failed
        started = time.monotonic()
        if reading is not None and reading.error:
            return failed._replace(error=reading.error, fatal=reading.fatal)
        try:
            self._check_owner()
            attempts = begin(part, "score")
            self._write(part, reading, _Reports(number, post))
            end(part, "score")
        except SupersededError as error:
            return failed._replace(error=str(error))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            unit = part.unit
            end(part, "score")
            place = f"{unit.path}: row group {unit.row_group}"
            reason = f"{place}: out of memory on node {host()}: {MEMORY_HINT}"
            return failed._replace(error=reason, fatal=False)
        except AptoolError as error:
            end(part, "score")
            return failed._replace(error=str(error), fatal=False)
        seconds = time.monotonic() - started
        self._units, self._seconds = self._units + 1, self._seconds + seconds
        return UnitRecord(number, part.pairs, self._name, attempts, seconds=seconds)

    @property
    def seconds_per_unit(self) -> float:
        """The mean duration of its units; 0 before the first."""
        return self._seconds / max(self._units, 1)

    def is_current(self) -> bool:
        """Whether this worker loaded the system and its driver still holds the claim."""
        return not self._failure and is_current(self._job)

    def score_again(self, number: int, part: Part) -> UnitRecord | None:
        """Re-score a straggler's unit. Return None if another worker already took it, or on error."""
        started = time.monotonic()
        try:
            if begin(part, "again") > 1:
                return None
            self._write(part)
            end(part, "again")
        except (AptoolError, RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            return None  # the worker of the unit reports the error
        seconds = time.monotonic() - started
        return UnitRecord(number, part.pairs, self._name, again=True, seconds=seconds)

    def _write(
        self,
        part: Part,
        reading: Reading | None = None,
        scored: Callable[[int], None] = lambda pairs: None,
    ) -> None:
        """Score a unit and write its part; without a ``reading``, read it first."""
        system, answers = opened(self._job)
        if reading is not None:
            task: Task = pickle.loads(reading.task)
        else:
            task = read_task(part.unit, system, answers)
            check_content(self._job, part.unit.path)
        frame = score_task(task, system, scored)
        self._check_owner()
        write_part(part, frame, system.truncated(task.prepared))

    def _check_owner(self) -> None:
        if not is_current(self._job):
            raise SupersededError(self._job.folder)


class _Reports:
    """Sums the scored pairs of a unit, and posts the sum every ``REPORT_SECONDS``."""

    def __init__(self, number: int, post: Callable[[tuple[int, int]], None]) -> None:
        self._number, self._post = number, post
        self._pairs, self._posted = 0, time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, pairs: int) -> None:
        with self._lock:
            self._pairs += pairs
            if time.monotonic() - self._posted < REPORT_SECONDS:
                return
            self._posted = time.monotonic()
            self._post((self._number, self._pairs))


def is_current(job: ScoringJob) -> bool:
    """Whether the driver that started this worker still holds its claim on the output."""
    return holds(job.folder / DRIVER, job.owner)


def is_begun(part: Part, names: Container[str]) -> bool:
    """Whether a worker has started to score a part, given the names in its folder."""
    return _records(part, "score")[0].name in names


def begin(part: Part, step: str) -> int:
    """Record an attempt in a file, which ``end`` removes; return its number, from 1.

    Raises if every attempt lost its worker: the unit itself must be the reason.
    """
    token = secrets.token_bytes(8)
    for number, record in enumerate(_records(part, step), start=1):
        store, key = store_of(record)
        if store.create(key, token):
            return number
    unit = part.unit
    raise AptoolError(
        f"{unit.path}: row group {unit.row_group}: {MAX_ATTEMPTS} workers were lost while scoring it, "
        f"as happens when a worker is out of memory: {MEMORY_HINT}, and so do fewer --workers on a node"
    )


def end(part: Part, step: str) -> None:
    """Remove the records of a unit's attempts."""
    records = [store_of(record) for record in _records(part, step)]
    records[0][0].delete([key for _, key in records])


def _records(part: Part, step: str) -> list[Location]:
    """The records of all attempts, in order; their names are fixed, so the folder is not listed."""
    return [
        part.path.with_name(f"{part.path.name}.try-{step}-{number}") for number in range(1, MAX_ATTEMPTS + 1)
    ]


def check_node(job: ScoringJob) -> None:
    """Raise unless this node has the driver's versions, sees its files and can write the parts."""
    check_versions(job.versions)
    for path in job.paths:
        if not location(path).exists():
            raise InputError(path, problem="file not found", expected="a path that every node sees")
    if not is_current(job):
        raise InputError(
            str(job.folder),
            problem="not the driver's folder",
            expected="an output on storage that all nodes share",
        )
    check_writable(job.folder / "part")


def host() -> str:
    """The name of this node."""
    return socket.gethostname()


def versions() -> Versions:
    """Versions of the packages that must agree on all nodes; torch without its build tag."""
    return ("aptool", __version__), ("torch", torch.__version__.partition("+")[0])


def check_versions(expected: Versions) -> None:
    """Raise if this node has other versions than the driver."""
    node = dict(versions())
    differ = [
        f"{name} {node[name]} there, {version} here" for name, version in expected if node[name] != version
    ]
    if differ:
        raise AptoolError(f"{'; '.join(differ)}: expected the same versions")
