"""The one way to score: units of work and a system in, a run file out, whoever executes the units.

``score`` decides what is the same everywhere: which parts are missing, the tag, what is said of truncated answers,
and the merge. An ``Executor`` decides where a unit is scored; the run file is the same to the byte.
"""

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from aptool.formats.atomic import check_apart, check_writable
from aptool.formats.pools import Answers, Unit, read_answers, read_pools
from aptool.models.device import pick_device
from aptool.progress import Update, get_progress
from aptool.scoring.job import plan, read_task, score_task
from aptool.scoring.parts import Part, is_done, merge, parts_folder, write_part
from aptool.scoring.systems import ModelLoader, System

logger = logging.getLogger(__name__)

AnySystem: TypeAlias = System | ModelLoader


@dataclass(frozen=True)
class ScoredRun:
    """How a run file was made."""

    pairs: int
    truncated: int  # answers truncated at the model's limit, counted in each unit
    units: int
    resumed: int  # units whose parts were there already
    retried: int = 0  # units that were begun more than once, because a worker was lost
    workers: int = 1  # processes that scored


class Executor(ABC):
    """Where units are scored."""

    retried = 0
    workers = 1

    def drive(self, work: Callable[["Executor"], ScoredRun]) -> ScoredRun:
        """Runs ``work`` where the units can be handed out: here, unless another process has to lead."""
        return work(self)

    @abstractmethod
    def open(self, system: AnySystem, units: Sequence[Unit], answers: str | None) -> System:
        """The system that the units are scored with.

        Raises:
            AptoolError: it cannot be had.
        """

    @contextlib.contextmanager
    def claim(self, output: Path) -> Iterator[Path]:
        """The folder of the parts of ``output``, for as long as the block runs."""
        folder = parts_folder(output)
        folder.mkdir(exist_ok=True)
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if nothing is in it: the input was at fault from the start

    @abstractmethod
    def run(self, parts: list[Part], system: System, answers: str | None) -> Generator[Part]:
        """Scores units and writes their parts; yields each part once it is written.

        Raises:
            AptoolError: a unit cannot be scored; the parts of others stay.
        """

    def check(self, parts: list[Part], scored: list[Part]) -> None:
        """Checks all parts before they are merged; ``scored`` are those that were written now."""


class LocalExecutor(Executor):
    """This process: every unit in turn, the next one read and the last one written meanwhile.

    At most three units are in memory: one being read, one being scored, one being written.
    """

    def __init__(self) -> None:
        self._answers: Answers | None = None

    def open(self, system: AnySystem, units: Sequence[Unit], answers: str | None) -> System:
        """See ``Executor.open``."""
        device = pick_device(system.device) if isinstance(system, ModelLoader) else None
        self._answers = read_answers(answers) if answers is not None else None
        if not isinstance(system, ModelLoader):
            return system
        assert device is not None
        return system.load(device, lambda: read_pools(units[0], self._answers))

    def run(self, parts: list[Part], system: System, answers: str | None) -> Generator[Part]:
        """See ``Executor.run``."""
        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
            reads = (reader.submit(read_task, part, system, self._answers) for part in parts)
            coming = next(reads, None)
            leaving: list[tuple[Part, Future[None]]] = []
            for part in parts:
                assert coming is not None
                task, coming = coming.result(), next(reads, None)
                frame = score_task(task, system)
                yield from _written(leaving)
                leaving = [(part, writer.submit(write_part, part, frame, system.truncated(task.prepared)))]
            yield from _written(leaving)


def score(
    units: Sequence[Unit],
    system: AnySystem,
    output: str | Path,
    executor: Executor | None = None,
    *,
    tag: str | None = None,
    answers: str | Path | None = None,
) -> ScoredRun:
    """Scores pools into a TREC run file; resumes from the parts that an interrupted call left.

    Args:
        units: the row groups to score.
        system: what scores them; a ``ModelLoader`` for a trained model.
        output: the run file; gzip if its name ends in ``.gz``.
        executor: where; None is this process.
        tag: the run's tag, one word; None is the system's.
        answers: the file with the texts of shared answers.

    Raises:
        InputError: an input or the output is not what it should be.
        AptoolError: the executor could not score every unit; the parts of the others stay.
    """
    check_writable(output)
    shared = str(answers) if answers is not None else None
    inputs = dict.fromkeys(unit.path for unit in units)
    check_apart(output, [*inputs, *([shared] if shared is not None else [])])
    executor = executor if executor is not None else LocalExecutor()
    return executor.drive(partial(_score, units, system, Path(output), tag, shared))


def _score(
    units: Sequence[Unit],
    system: AnySystem,
    output: Path,
    tag: str | None,
    answers: str | None,
    executor: Executor,
) -> ScoredRun:
    opened = executor.open(system, units, answers)
    parts = plan(units, opened, output, tag if tag is not None else opened.tag, answers)
    with executor.claim(output), get_progress().task("score") as update:
        missing = [part for part in parts if not is_done(part)]
        throughput = _Throughput(update, len(parts), len(parts) - len(missing))
        with contextlib.closing(executor.run(missing, opened, answers)) as scored:
            for part in scored:
                throughput.add(part.pairs)
        executor.check(parts, missing)
        merged = merge(parts, output)
    if merged.truncated:
        logger.info(f"{merged.truncated} answers were truncated to {opened.max_answer_tokens} tokens")
    resumed = len(parts) - len(missing)
    return ScoredRun(merged.pairs, merged.truncated, len(parts), resumed, executor.retried, executor.workers)


def answers_beside(pools: str | Path) -> Path | None:
    """The shared answers of the collection that a pools file stands in, if it is on this machine."""
    from aptool.formats.collection import ANSWERS

    path = Path(pools).parent / ANSWERS
    return path if path.is_file() else None


class _Throughput:
    """Pairs a second and the time that is left; units that were there before count as done, not as speed."""

    def __init__(self, update: Update, units: int, resumed: int) -> None:
        self._update = update
        self._units = units
        self._done, self._resumed = resumed, resumed
        self._pairs = 0
        self._started = time.monotonic()
        if resumed:
            update(resumed, units, "row groups")

    def add(self, pairs: int) -> None:
        """A unit with so many pairs is done."""
        self._done += 1
        self._pairs += pairs
        seconds = max(time.monotonic() - self._started, 1e-3)
        left = (self._units - self._done) * seconds / (self._done - self._resumed)
        detail = f"row groups, {self._pairs / seconds:,.0f} pairs/s, {clock(left)} left"
        self._update(self._done, self._units, detail)


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _written(leaving: list[tuple[Part, Future[None]]]) -> Iterator[Part]:
    for part, writing in leaving:
        writing.result()
        yield part
