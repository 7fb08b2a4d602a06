"""The one way to score: units of work and a system in, a run file out.

``score`` does what is the same everywhere: it checks the output and the tag, finds the parts that are
missing, merges all parts, reports truncated answers and writes what made the run beside it
(``formats.ir_metadata``). An ``Executor`` decides where units are scored; the bytes of the run file do not
depend on it.
"""

import contextlib
import logging
import os
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

from aptool import environment
from aptool.formats.claim import Claim, claimed_folder
from aptool.formats.ids import check_one_word
from aptool.formats.ir_metadata import check_metadata, write_metadata
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.pools import Answers, Unit, read_answers
from aptool.formats.run_output import check_run_output
from aptool.formats.storage import Input, check_unchanged, stat
from aptool.models.device import pick_device
from aptool.progress import get_progress
from aptool.scoring.baselines import BaselineLoader
from aptool.scoring.job import Task, plan, read_task, score_task, shared_input
from aptool.scoring.meter import PairMeter
from aptool.scoring.parts import Part, merge, missing_parts, parts_folder, write_part
from aptool.scoring.precision import sample_units, sampled_pools
from aptool.scoring.record import ScoredRun, gather
from aptool.scoring.systems import ModelLoader, System

logger = logging.getLogger(__name__)

AnySystem: TypeAlias = System | ModelLoader | BaselineLoader


class ScoredPart(NamedTuple):
    """A part that has been written."""

    pairs: int
    worker: str  # host and process that scored it
    tries: int = 1  # more than one if workers were lost with it
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    again: bool = False  # whether another worker had begun it and was late


class Executor(ABC):
    """Scores units in this process or elsewhere. One call of ``score`` at a time uses an executor."""

    def drive(self, work: Callable[["Executor"], ScoredRun]) -> ScoredRun:
        """Calls ``work`` with the executor to use: itself, unless another process has to hand out units."""
        return work(self)

    @abstractmethod
    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        """Opens a system to score these units; for ``plan`` its fingerprint, tag and limit suffice.

        Raises:
            AptoolError: the system cannot be opened.
        """

    @contextlib.contextmanager
    def claim(self, output: Location) -> Iterator[Claim]:
        """Claims ``output``, and provides the folder for its parts, while the block runs.

        Raises:
            InputError: another process is writing it.
        """
        with claimed_folder(parts_folder(output), output) as claim:
            yield claim

    @abstractmethod
    def run(
        self,
        parts: Sequence[Part],
        missing: Sequence[Part],
        system: System,
        answers: Input | None,
        meter: PairMeter,
    ) -> Generator[ScoredPart]:
        """Writes the missing parts, and reports each once it is written.

        When the generator ends, all parts are complete and readable by this process.

        Args:
            parts: all parts of the run.
            missing: those to write.
            system: the system that ``open`` returned.
            answers: the file with the texts of shared answers.
            meter: counts the pairs that are scored.

        Raises:
            AptoolError: a unit cannot be scored; parts that are written stay.
        """


class LocalExecutor(Executor):
    """Scores in this process, unit by unit; reads the next unit and writes the previous part meanwhile.

    At most three units are in memory: one being read, one being scored, one being written. Where a system is
    on all GPUs of the machine, that is so for each of them.
    """

    def __init__(self) -> None:
        self._answers: Answers | None = None

    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        """See ``Executor.open``."""
        self._answers = read_answers(*answers) if answers is not None else None
        if isinstance(system, BaselineLoader):
            return system.load(units, self._answers)
        if not isinstance(system, ModelLoader):
            return system
        device, sample = pick_device(system.device), sample_units(units)
        return system.load(device, lambda: sampled_pools(sample, self._answers))

    def run(
        self,
        parts: Sequence[Part],
        missing: Sequence[Part],
        system: System,
        answers: Input | None,
        meter: PairMeter,
    ) -> Generator[ScoredPart]:
        """See ``Executor.run``."""
        self._meter = meter
        worker = f"{socket.gethostname()}:{os.getpid()}"
        systems = system.copies(len(missing))
        gpus = len(systems) * str(system.describe().get("device", "")).startswith("cuda")
        wall, cores = time.monotonic(), time.process_time()
        with contextlib.closing(self._written(systems, deque(missing))) as written:
            for part in written:
                # What was spent since the last part counts as that of this one.
                now, used = time.monotonic(), time.process_time()
                yield ScoredPart(part.pairs, worker, 1, used - cores, (now - wall) * gpus)
                wall, cores = now, used

    def _written(self, systems: Sequence[System], missing: deque[Part]) -> Generator[Part]:
        """Scores parts, dealt to the systems as each becomes free; each part once it is written."""
        if len(systems) == 1:
            yield from self._written_by(systems[0], missing)
            return
        done: SimpleQueue[Part | BaseException | None] = SimpleQueue()

        def work(system: System) -> None:
            try:
                for part in self._written_by(system, missing):
                    done.put(part)
                done.put(None)
            except BaseException as error:
                done.put(error)

        with ThreadPoolExecutor(len(systems)) as threads:
            try:
                for system in systems:
                    threads.submit(work, system)
                working = len(systems)
                while working:
                    found = done.get()
                    if isinstance(found, BaseException):
                        raise found
                    if found is None:
                        working -= 1
                    else:
                        yield found
            finally:
                missing.clear()  # after an error the others end with what they have begun

    def _written_by(self, system: System, missing: deque[Part]) -> Generator[Part]:
        """Scores parts by one system, until none is missing."""
        writing: tuple[Part, Future[None]] | None = None
        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:

            def read() -> tuple[Part, Future[Task]] | None:
                try:
                    part = missing.popleft()
                except IndexError:
                    return None
                return part, reader.submit(read_task, part, system, self._answers)

            following = read()
            while following is not None:
                part, reading = following
                task, following = reading.result(), read()
                frame = score_task(task, system, partial(self._meter.add, part))
                self._meter.reach(part, part.pairs)
                if writing is not None:
                    writing[1].result()
                    yield writing[0]
                writing = part, writer.submit(write_part, part, frame, system.truncated(task.prepared))
            if writing is not None:
                writing[1].result()
                yield writing[0]


def score(
    units: Sequence[Unit],
    system: AnySystem,
    output: PathOrUrl,
    executor: Executor | None = None,
    *,
    tag: str | None = None,
    answers: PathOrUrl | None = None,
) -> ScoredRun:
    """Scores pools into a TREC run file; resumes from the parts that an interrupted call left.

    Args:
        units: the row groups to score.
        system: the system; a ``ModelLoader`` for a trained model, a ``BaselineLoader`` for an untrained one.
        output: the run file; gzip if its name ends in ``.gz``.
        executor: where to score; None is this process.
        tag: the tag of the run, one word; None is the system's.
        answers: the file with the texts of shared answers; None is ``answers.parquet`` beside the pools.

    Raises:
        UsageError: the tag is not one word, or there is no such device.
        InputError: an input is not valid, or the output or its metadata cannot be written.
        AptoolError: a unit could not be scored; parts that are written stay.
    """
    if tag is not None:
        check_one_word("tag", tag)
    check_run_output(output)
    shared = Input(str(answers), stat(answers).version) if answers is not None else None
    check_metadata(location(output))
    executor = executor if executor is not None else LocalExecutor()
    return executor.drive(partial(_score, units, system, output, tag, shared, environment.command()))


def _score(
    units: Sequence[Unit],
    system: AnySystem,
    output: PathOrUrl,
    tag: str | None,
    answers: Input | None,
    command: str | None,
    executor: Executor,
) -> ScoredRun:
    started = time.monotonic()
    with get_progress().task("loading model"):
        opened = executor.open(system, units, answers)
    tag = tag if tag is not None else opened.tag
    parts = plan(units, opened, output, tag, answers)
    inputs = _inputs(units, answers)
    workers: set[str] = set()
    retried, run_twice, core_seconds, gpu_seconds = 0, 0, 0.0, 0.0
    with executor.claim(location(output)) as claim, get_progress().task("score") as update:
        missing = missing_parts(parts)
        meter = PairMeter(update, parts, missing)
        with contextlib.closing(executor.run(parts, missing, opened, answers, meter)) as scored:
            for part in scored:
                workers.add(part.worker)
                retried += part.tries > 1
                run_twice += part.again
                core_seconds += part.core_seconds
                gpu_seconds += part.gpu_seconds
        check_unchanged(inputs)
        merged = merge(parts, output, claim.check)
    if merged.truncated:
        logger.info(f"{merged.truncated} answers were truncated to {opened.max_answer_tokens} tokens")
    scored_run = ScoredRun(
        pairs=merged.pairs,
        truncated=merged.truncated,
        units=len(parts),
        resumed=len(parts) - len(missing),
        retried=retried,
        run_twice=run_twice,
        workers=len(workers),
        seconds=round(time.monotonic() - started, 3),
        core_seconds=round(core_seconds, 3),
        gpu_seconds=round(gpu_seconds, 3),
    )
    write_metadata(location(output), gather(tag, opened, units, scored_run, command))
    return scored_run


def _inputs(units: Sequence[Unit], answers: Input | None) -> list[Input]:
    files = dict.fromkeys(Input(unit.path, unit.version) for unit in units)
    paths = dict.fromkeys(file.path for file in files)
    beside = [answers] if answers is not None else map(shared_input, paths)
    return [*files, *dict.fromkeys(file for file in beside if file is not None)]
