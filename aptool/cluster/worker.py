"""A worker that scores units, on one node of a cluster.

A unit may be assigned twice: after the loss of its worker or node, or by a new driver while workers of a
killed driver still run. Three rules keep the result exact. The content of a part does not depend on the
worker. One driver at a time claims the output, and only its workers write parts. Each attempt leaves a file
next to the part, so that a unit which always kills its worker is reported instead of retried forever.
"""

import logging
import os
import secrets
import time
from collections.abc import Container, Generator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from aptool.cluster.nodes import Requirements, Versions, check_node, host
from aptool.errors import AptoolError
from aptool.formats.claim import DRIVER, SupersededError, check_held, holds
from aptool.formats.inputs import Input
from aptool.formats.location import Location, location, store_of
from aptool.formats.pools import ANSWERS, Answers, PoolBatch, Unit, read_answers, read_pools
from aptool.formats.store import ReplacedError
from aptool.models.device import is_out_of_memory
from aptool.scoring.parts import Part, digest_of, write_part
from aptool.scoring.pipeline import PreparedUnit, UnitRecord, joined_groups, prepare, score
from aptool.scoring.systems import Scorer, System

logger = logging.getLogger(__name__)

# Attempts per unit, if its worker is lost each time.
MAX_ATTEMPTS = 4

MEMORY_HINT = "a smaller --tokens-per-batch takes less memory"


class ScoringJob(NamedTuple):
    """The settings of a run, the same for all workers."""

    system: System
    device: str
    fingerprint: str  # fingerprint of the driver's scorer
    folder: Location  # folder of the parts
    owner: str  # token of the driver's claim
    answers: Input | None  # shared answers
    paths: tuple[str, ...] = ()  # files and folders that every node must see
    versions: Versions = ()  # versions on the driver
    contents: tuple[tuple[str, str], ...] = ()  # local input files, each with its digest on the driver
    prepare_fingerprint: str = ""  # ``Scorer.prepare_fingerprint`` of the driver

    @property
    def requirements(self) -> Requirements:
        """The requirements on every node."""
        return Requirements(self.versions, self.paths, self.folder, self.owner)


class Reading(NamedTuple):
    """A unit that was read and prepared for a worker with a GPU, or an error."""

    unit: PreparedUnit | None
    error: str = ""
    fatal: bool = False
    core_seconds: float = 0.0  # CPU time


@lru_cache(maxsize=1)
def open_scorer(job: ScoringJob, to_prepare: bool = False) -> tuple[Scorer, Answers | None]:
    """Open the system and read the shared answers, once per process; raise if they differ from the driver's.

    With ``to_prepare``, the system is opened on the CPU; only what decides its preparation is compared.
    """
    check_node(job.requirements)
    scorer = job.system.open(device="cpu" if to_prepare else job.device)
    if to_prepare:
        is_same = scorer.prepare_fingerprint == job.prepare_fingerprint
    else:
        is_same = scorer.fingerprint == job.fingerprint
    if not is_same:
        raise AptoolError(
            "the model differs from the driver's: expected the same model folder and plugins on every node"
        )
    if job.answers is None:
        return scorer, None
    answers = read_answers(*job.answers)
    check_contents(job, job.answers.path)
    return scorer, answers


def check_contents(job: ScoringJob, *paths: str) -> None:
    """Raise if a local file on this node differs from the driver's."""
    expected = dict(job.contents)
    for path in paths:
        if path in expected and digest_of(path) != expected[path]:
            raise ReplacedError(path)


def read(job: ScoringJob, unit: Unit, answers: Answers | None) -> PoolBatch:
    """Read a unit; raise if its files on this node differ from the driver's."""
    pools = read_pools(unit, answers)
    check_contents(job, unit.path, str(location(unit.path).parent / ANSWERS))
    return pools


def read_and_prepare(job: ScoringJob, part: Part) -> Reading:
    """Read and prepare a unit for a worker with a GPU."""
    try:
        scorer, answers = open_scorer(job, to_prepare=True)
    except AptoolError as error:
        return Reading(None, f"node {host()}: {error}", True)
    cpu = time.process_time()
    try:
        start_attempt(part, "read")
        unit = prepare(part.unit, read(job, part.unit, answers), scorer)
        end_attempts(part, "read")
    except AptoolError as error:
        return Reading(None, str(error))
    return Reading(unit, core_seconds=time.process_time() - cpu)


class _Begun(NamedTuple):
    """A unit that a worker has begun, and its cost up to its preparation."""

    number: int
    part: Part
    attempts: int
    seconds: float
    core_seconds: float


class Worker:
    """Scores units, those that share answers together."""

    def __init__(self, job: ScoringJob) -> None:
        """Open the system. An error is reported with the first unit."""
        self._job = job
        self._name = f"{host()}:{os.getpid()}"
        self._failure = ""
        self._groups, self._seconds = 0, 0.0
        try:
            open_scorer(job)
        except AptoolError as error:
            self._failure = f"node {host()}: {error}"

    def score(self, parts: Mapping[int, Part], readings: Sequence[Reading] = ()) -> list[UnitRecord]:
        """Score units, by number, and write their parts; units without ``readings`` are read first."""
        records: list[UnitRecord] = []
        if self._failure:
            failed = UnitRecord(0, 0, self._name, error=self._failure, fatal=True)
            records += (failed._replace(number=number) for number in parts)
        else:
            units = self._begin(parts, readings, records)
            for group in joined_groups(units, open_scorer(self._job)[0]):
                records += self._score_group(group)
        for record in records:
            unit, text = parts[record.number].unit, f"{record.pairs} pairs in {record.seconds:.2f} s"
            level = logging.ERROR if record.error else logging.DEBUG
            position = f"{unit.path}: row group {unit.row_group}"
            logger.log(level, f"node {host()}: {position}: {record.error or text}")
        return records

    def _begin(
        self, parts: Mapping[int, Part], readings: Sequence[Reading], records: list[UnitRecord]
    ) -> Generator[tuple[_Begun, PreparedUnit]]:
        """Read and prepare units; yield those to score together, and add the records of the others."""
        scorer, answers = open_scorer(self._job)
        for (number, part), reading in zip_longest(parts.items(), readings):
            if part.path.exists():  # from a lost worker of the same batch, or from an idle worker
                records.append(UnitRecord(number, part.pairs, self._name))
                continue
            unit, spent = None, 0.0
            if reading is not None:
                unit, spent = reading.unit, reading.core_seconds
                if reading.error:
                    records.append(
                        UnitRecord(number, 0, self._name, error=reading.error, fatal=reading.fatal)
                    )
                    continue
            started, cpu = time.monotonic(), time.process_time() - spent
            try:
                self._check_owner()
                attempts = start_attempt(part, "score")
                if unit is None:
                    unit = prepare(part.unit, read(self._job, part.unit, answers), scorer)
            except (AptoolError, RuntimeError, MemoryError) as error:
                records.append(self._failed(number, part, error))
                continue
            cost = time.monotonic() - started, time.process_time() - cpu
            begun = _Begun(number, part, attempts, *cost)
            if attempts == 1:
                yield begun, unit
            else:  # alone, because it may be the unit that ends its workers
                records += self._score_group([(begun, unit)])

    def _score_group(self, group: Sequence[tuple[_Begun, PreparedUnit]]) -> list[UnitRecord]:
        """Score units together and write their parts; after an error, score each of several units alone."""
        started, cpu = time.monotonic(), time.process_time()
        try:
            frames = score([unit for _, unit in group], open_scorer(self._job)[0])
            for (begun, unit), frame in zip(group, frames, strict=True):
                self._check_owner()
                write_part(begun.part, frame, unit.truncated)
                end_attempts(begun.part, "score")
        except (AptoolError, RuntimeError, MemoryError) as error:
            if len(group) == 1 or isinstance(error, SupersededError):
                return [self._failed(begun.number, begun.part, error) for begun, _ in group]
        else:
            seconds, cores = time.monotonic() - started, time.process_time() - cpu
            return self._records(group, seconds, cores)
        return [record for each in group for record in self._score_group([each])]

    def _failed(self, number: int, part: Part, error: AptoolError | RuntimeError | MemoryError) -> UnitRecord:
        """Return the record of a unit after an error of its input or memory; raise other errors."""
        failed = UnitRecord(number, 0, self._name, error=str(error))
        if isinstance(error, SupersededError):
            return failed._replace(fatal=True)
        if not isinstance(error, AptoolError):
            if not is_out_of_memory(error):
                raise error
            position = f"{part.unit.path}: row group {part.unit.row_group}"
            reason = f"{position}: out of memory on node {host()}: {MEMORY_HINT}"
            failed = failed._replace(error=reason)
        end_attempts(part, "score")
        return failed

    def _records(
        self, group: Sequence[tuple[_Begun, PreparedUnit]], seconds: float, cores: float
    ) -> list[UnitRecord]:
        """Return the records of units that were scored together; their pairs share the cost."""
        self._groups += 1
        self._seconds += seconds + sum(begun.seconds for begun, _ in group)
        pairs = sum(begun.part.pairs for begun, _ in group)
        return [
            UnitRecord(
                *(begun.number, begun.part.pairs, self._name, begun.attempts),
                seconds=begun.seconds + seconds * begun.part.pairs / pairs,
                core_seconds=begun.core_seconds + cores * begun.part.pairs / pairs,
            )
            for begun, _ in group
        ]

    @property
    def seconds_per_group(self) -> float:
        """Mean seconds per group of units that were scored together; 0 before the first group."""
        return self._seconds / max(self._groups, 1)

    def is_current(self) -> bool:
        """Whether the system is open and the driver still holds its claim."""
        return not self._failure and is_current(self._job)

    def score_again(self, number: int, part: Part) -> UnitRecord | None:
        """Re-score a straggler's unit. Return None if another worker already took it, or on error."""
        started, cpu = time.monotonic(), time.process_time()
        try:
            if start_attempt(part, "again") > 1:
                return None
            scorer, answers = open_scorer(self._job)
            unit = prepare(part.unit, read(self._job, part.unit, answers), scorer)
            (frame,) = score([unit], scorer)
            self._check_owner()
            write_part(part, frame, unit.truncated)
            end_attempts(part, "again")
        except (AptoolError, RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            return None  # the worker of the unit reports the error
        seconds = time.monotonic() - started
        cores = time.process_time() - cpu
        return UnitRecord(number, part.pairs, self._name, again=True, seconds=seconds, core_seconds=cores)

    def _check_owner(self) -> None:
        job = self._job
        check_held(job.folder / DRIVER, job.owner, job.folder)


def is_current(job: ScoringJob) -> bool:
    """Whether the driver of this worker still holds its claim on the output."""
    return holds(job.folder / DRIVER, job.owner)


def is_started(part: Part, names: Container[str]) -> bool:
    """Whether a worker has started to score a part; ``names`` are the files in its folder."""
    return _records(part, "score")[0].name in names


def start_attempt(part: Part, step: str) -> int:
    """Record an attempt in a file; return its number, from 1. Raise if ``MAX_ATTEMPTS`` workers were lost."""
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


def end_attempts(part: Part, step: str) -> None:
    """Remove the records of the attempts at a unit."""
    records = [store_of(record) for record in _records(part, step)]
    records[0][0].delete([key for _, key in records])


def _records(part: Part, step: str) -> list[Location]:
    """The files of all possible attempts, in order. Fixed names spare a listing of the folder."""
    return [
        part.path.with_name(f"{part.path.name}.try-{step}-{number}") for number in range(1, MAX_ATTEMPTS + 1)
    ]
