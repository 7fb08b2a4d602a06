"""What a worker of a cluster does with one unit, whoever hands it the unit.

A unit may be given out more than once: its worker dies, a node goes, or a driver that was killed has left
workers behind. Three things keep the result exact. A part has one name and one content, whoever writes it.
The parts folder belongs to one driver at a time, and a worker of another writes nothing into it. And each
try leaves a mark beside the part, so a unit that takes its workers down with it is named in the end, and not
tried for ever.
"""

import os
import pickle
import secrets
import socket
from collections.abc import Callable
from functools import lru_cache
from glob import escape
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch

from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import check_writable
from aptool.formats.pools import Answers, read_answers
from aptool.scoring.job import Task, read_task, score_task
from aptool.scoring.parts import Part, parts_folder, write_part
from aptool.scoring.systems import System

# How often a unit is given out whose worker was lost each time.
TRIES = 4

# The file in a parts folder that says whose it is.
OWNER = "driver"

SMALLER = "a smaller --tokens-per-batch takes less memory"


class ScoringJob(NamedTuple):
    """All that a worker is told. It is the same for all workers of a run."""

    load: Callable[[str], System]  # makes the system on a device
    device: str
    fingerprint: str  # of the system, as the driver has it
    folder: Path  # of the parts
    owner: str  # what the folder's file of that name says while this run has it
    answers: str | None  # path of the answers that pools share
    paths: tuple[str, ...] = ()  # files and folders that every node must see


class Outcome(NamedTuple):
    """What became of a unit."""

    number: int
    pairs: int
    tries: int  # how often the unit was begun, this time included
    worker: str  # host and process
    error: str  # what is wrong with the unit, in one line; empty if nothing is
    fatal: bool  # the same would be wrong with every unit


class Reading(NamedTuple):
    """A unit that a reader has read for a scorer, or what is wrong with it."""

    number: int
    task: bytes
    error: str
    fatal: bool


class SupersededError(AptoolError):
    """Another driver has the parts folder now."""


def own(folder: Path) -> str:
    """Makes the parts folder this process's own; whoever had it before has lost it."""
    owner = secrets.token_hex(8)
    temporary = folder / f".{OWNER}.{owner}"
    temporary.write_text(owner, encoding="ascii")
    os.replace(temporary, folder / OWNER)
    return owner


def owns(folder: Path, owner: str) -> bool:
    """Whether the parts folder is there and belongs to ``owner``."""
    try:
        return (folder / OWNER).read_text(encoding="ascii") == owner
    except OSError:
        return False


def sweep(output: Path) -> None:
    """Removes what an earlier driver that was killed has left: marks of tries, files not yet renamed."""
    folder, beside = parts_folder(output), f".{escape(output.name)}.*.part"
    left = (folder.glob("*.try-*"), folder.glob(".*.part"), output.parent.glob(beside))
    for path in chain(*left):
        path.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def opened(job: ScoringJob) -> tuple[System, Answers | None]:
    """The system and the shared answers, made once in each process.

    Raises:
        AptoolError: they cannot be had on this node, or are others than the driver's.
    """
    check_node(job)
    system = job.load(job.device)
    if system.fingerprint != job.fingerprint:
        raise AptoolError("the model there is not the driver's: expected the same model folder on every node")
    return system, read_answers(job.answers) if job.answers is not None else None


def read(job: ScoringJob, number: int, part: Part) -> Reading:
    """Reads and tokenises a unit for a scorer elsewhere; needs no accelerator."""
    cpu = job._replace(device="cpu")
    try:
        system, answers = opened_to_read(cpu)
    except AptoolError as error:
        return Reading(number, b"", f"node {host()}: {error}", True)
    try:
        begin(part, "read")
        task = pickle.dumps(read_task(part, system, answers), protocol=5)
        end(part, "read")
    except AptoolError as error:
        return Reading(number, b"", str(error), False)
    return Reading(number, task, "", False)


@lru_cache(maxsize=1)
def opened_to_read(job: ScoringJob) -> tuple[System, Answers | None]:
    """Like ``opened``, for who only reads: the fingerprint of a system on another device is not compared."""
    check_node(job)
    return job.load(job.device), read_answers(job.answers) if job.answers is not None else None


class Worker:
    """Scores units, one after the other."""

    def __init__(self, job: ScoringJob) -> None:
        """Opens the system; what goes wrong with that is told with the first unit."""
        self._job = job
        self._name = f"{host()}:{os.getpid()}"
        self._failure = ""
        try:
            opened(job)
        except AptoolError as error:
            self._failure = f"node {host()}: {error}"

    def score(self, number: int, part: Part, reading: Reading | None = None) -> Outcome:
        """Scores a unit and writes its part; reads it first if nobody else has."""
        failed = Outcome(number, 0, 1, self._name, self._failure, True)
        if self._failure:
            return failed
        if reading is not None and reading.error:
            return failed._replace(error=reading.error, fatal=reading.fatal)
        try:
            self._check_owner()
            tries = begin(part, "score")
            system, answers = opened(self._job)
            task: Task = (
                pickle.loads(reading.task) if reading is not None else read_task(part, system, answers)
            )
            frame = score_task(task, system)
            self._check_owner()
            write_part(part, frame, system.truncated(task.prepared))
            end(part, "score")
        except SupersededError as error:
            return failed._replace(error=str(error))
        except (torch.OutOfMemoryError, MemoryError):
            unit = part.unit
            end(part, "score")
            place = f"{unit.path}: row group {unit.row_group}"
            reason = f"{place}: out of memory on node {host()}: {SMALLER}"
            return failed._replace(error=reason, fatal=False)
        except AptoolError as error:
            end(part, "score")
            return failed._replace(error=str(error), fatal=False)
        return Outcome(number, part.pairs, tries, self._name, "", False)

    def _check_owner(self) -> None:
        if not owns(self._job.folder, self._job.owner):
            raise SupersededError(
                f"{self._job.folder}: another run of the same output has taken over: expected one at a time"
            )


def begin(part: Part, step: str) -> int:
    """Leaves a mark of a try, which whoever finishes it removes.

    Returns:
        Which try this is, from 1.

    Raises:
        AptoolError: it was tried so often, each time in vain, that the unit itself must be the reason.
    """
    for number, mark in enumerate(_marks(part, step), start=1):
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    unit = part.unit
    raise AptoolError(
        f"{unit.path}: row group {unit.row_group}: {TRIES} workers were lost with it one after another, "
        f"as happens when a worker is out of memory: {SMALLER}, and so do fewer --workers on a node"
    )


def end(part: Part, step: str) -> None:
    """Removes the marks of a unit's tries."""
    for mark in _marks(part, step):
        if not mark.exists():
            break
        mark.unlink(missing_ok=True)


def _marks(part: Part, step: str) -> list[Path]:
    """The marks of all tries, in their order; their names are known, so the folder need not be listed."""
    return [part.path.with_name(f"{part.path.name}.try-{step}-{number}") for number in range(1, TRIES + 1)]


def check_node(job: ScoringJob) -> None:
    """Finds out whether the node that this runs on has what the job needs.

    Raises:
        AptoolError: the first thing that it has not.
    """
    for path in job.paths:
        if not Path(path).exists():
            raise InputError(path, problem="file not found there", expected="a path that every node sees")
    if not owns(job.folder, job.owner):
        raise InputError(
            job.folder,
            problem="not the driver's folder there",
            expected="an output on storage that all nodes share",
        )
    check_writable(job.folder / "part")


def host() -> str:
    """The name of this node."""
    return socket.gethostname()
