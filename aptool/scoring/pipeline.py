"""From units and an open scorer to scores: the pipeline of one process.

The steps of a unit are ``read`` and ``score`` of ``scoring.units``, then ``write`` or a place in memory.
While a unit is scored, the next one is read and the previous one is written.
"""

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

import polars as pl

from aptool.data.pools import Answers, Unit
from aptool.progress import Bar
from aptool.scoring.systems import Scorer
from aptool.scoring.units import Record, read, score


class UnitRecord(NamedTuple):
    """A written part and its cost."""

    number: int  # of the part
    record: Record
    worker: str  # host and process id
    seconds: float = 0.0  # wall time that the worker spent on the unit
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0


class Work:
    """The cost of a call: the sums over the records of its units."""

    def __init__(self) -> None:
        self.core_seconds = self.gpu_seconds = 0.0
        self.workers: set[str] = set()

    def add(self, record: UnitRecord) -> None:
        """Add the cost of a unit."""
        self.core_seconds += record.core_seconds
        self.gpu_seconds += record.gpu_seconds
        self.workers.add(record.worker)


# Stores the scores of a unit: its number, the result of ``score``, the number of truncated answers. Called
# from several threads if there are several scorers.
Sink: TypeAlias = Callable[[int, pl.DataFrame, int], Record]


class PairMeter:
    """Counts scored pairs on a bar, at most ``pairs``; thread-safe, also with other meters of one bar."""

    _lock = threading.Lock()  # a bar is not thread-safe, and devices score units on one

    def __init__(self, bar: Bar, pairs: int) -> None:
        self._bar, self._left = bar, pairs

    def add(self, pairs: int) -> None:
        """Count further pairs; pairs that are scored again do not count."""
        with self._lock:
            pairs = min(pairs, self._left)
            self._left -= pairs
            self._bar.update(pairs)

    def finish(self) -> None:
        """Count the remaining pairs."""
        self.add(self._left)


class _Stored(NamedTuple):
    number: int  # of the unit
    record: Record


def run_pipelines(
    units: Mapping[int, Unit], scorer: Scorer, answers: Answers | None, bar: Bar, sink: Sink
) -> Generator[UnitRecord]:
    """Score units in this process, on all devices of the scorer; yield a record per stored unit.

    ``units`` have numbers, by which sink and records name them. Per device at most three units are in memory:
    one being read, one being scored, one in the sink.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    scorers = scorer.copies(len(units))
    gpus = len(scorers) * scorer.device.startswith("cuda")
    waiting = deque(units.items())
    pipelines = [_pipeline(waiting, each, answers, bar, sink) for each in scorers]
    stored = pipelines[0] if len(pipelines) == 1 else _merged(pipelines, waiting)
    wall, cores = time.monotonic(), time.process_time()
    with contextlib.closing(stored):
        for number, record in stored:
            # The time of a unit starts at the end of the previous unit.
            now, cores_now = time.monotonic(), time.process_time()
            seconds = now - wall
            yield UnitRecord(number, record, worker, seconds, cores_now - cores, seconds * gpus)
            wall, cores = now, cores_now


def _pipeline(
    waiting: deque[tuple[int, Unit]], scorer: Scorer, answers: Answers | None, bar: Bar, sink: Sink
) -> Generator[_Stored]:
    """Score waiting units with one scorer, while the next unit is read and the previous one is stored."""
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        units = ((number, unit, read(unit, scorer, answers)) for number, unit in _taken(waiting))
        reading = reader.submit(next, units, None)
        storing: tuple[int, Future[Record]] | None = None
        while (taken := reading.result()) is not None:
            number, unit, prepared = taken
            reading = reader.submit(next, units, None)
            meter = PairMeter(bar, unit.pairs)
            frame = score(prepared, scorer, meter.add)
            meter.finish()
            if storing is not None:
                yield _Stored(storing[0], storing[1].result())
            storing = number, writer.submit(sink, number, frame, prepared.truncated)
        if storing is not None:
            yield _Stored(storing[0], storing[1].result())


def _taken(waiting: deque[tuple[int, Unit]]) -> Generator[tuple[int, Unit]]:
    """Remove waiting units one by one; other pipelines remove some, too."""
    with contextlib.suppress(IndexError):
        while True:
            yield waiting.popleft()


def _merged(pipelines: Sequence[Generator[_Stored]], waiting: deque[tuple[int, Unit]]) -> Generator[_Stored]:
    """Run each pipeline in a thread; yield units in the order in which they are stored."""
    done: SimpleQueue[_Stored | BaseException | None] = SimpleQueue()

    def work(pipeline: Generator[_Stored]) -> None:
        try:
            for unit in pipeline:
                done.put(unit)
            done.put(None)
        except BaseException as error:
            done.put(error)

    with ThreadPoolExecutor(len(pipelines)) as threads:
        try:
            for pipeline in pipelines:
                threads.submit(work, pipeline)
            working = len(pipelines)
            while working:
                unit = done.get()
                if isinstance(unit, BaseException):
                    raise unit
                if unit is None:
                    working -= 1
                else:
                    yield unit
        finally:
            waiting.clear()  # after an error, the other pipelines finish their current units and stop
