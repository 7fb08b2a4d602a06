"""From units and an open scorer to scores: the pipeline of one process.

A unit is one row group of a pools file. The steps of a unit are ``read_pools``, ``prepare``, ``score``, and
``write_part`` of ``scoring.parts`` or a place in memory (``MemorySink``). The pipeline yields one record per
stored unit. Units that share answers are scored together if the scorer can join them; their scores are the
same to the bit. Workers of a cluster call the same steps, for a batch of units at a time.
"""

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.environment import available_memory
from aptool.errors import AptoolError
from aptool.formats.pools import Answers, PoolBatch, Unit, read_pools
from aptool.formats.trec import rank_candidates
from aptool.progress import Bar
from aptool.scoring.parts import check_questions
from aptool.scoring.systems import Scorer

# Limits of the pairs that are scored together, and of their part of the memory.
JOINED_PAIRS = 1_000_000
JOINED_MEMORY = 1 / 64

# Memory per pair from reading to the sink: ids, indices, scores.
BYTES_PER_PAIR = 160

T = TypeVar("T")


class UnitRecord(NamedTuple):
    """The cost of a scored unit, or its error."""

    number: int  # index into the units to score
    pairs: int
    worker: str  # host and process id
    attempts: int = 1  # more than one if workers were lost
    again: bool = False  # whether a second worker scored the unit of a straggler
    seconds: float = 0.0  # wall time that the worker spent on the unit
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    error: str = ""  # one line; empty if the unit was scored
    fatal: bool = False  # whether all units would fail with the same error


class Work:
    """The cost of a call: the sums over the records of its units."""

    def __init__(self) -> None:
        self.retried = self.run_twice = 0
        self.core_seconds = self.gpu_seconds = 0.0
        self.workers: set[str] = set()

    def add(self, record: UnitRecord) -> None:
        """Add the cost of a unit."""
        self.retried += record.attempts > 1
        self.run_twice += record.again
        self.core_seconds += record.core_seconds
        self.gpu_seconds += record.gpu_seconds
        self.workers.add(record.worker)


class PreparedUnit(NamedTuple):
    """A unit that was read and prepared: the input of ``score``."""

    unit: Unit
    question_ids: pa.Array  # (pools,)
    answer_ids: pa.Array  # (P,)
    pair_question: np.ndarray  # (P,)
    inputs: Any  # the result of ``Scorer.prepare``
    truncated: int  # answers truncated at the model's limit


class UnitScores(NamedTuple):
    """The scores of a unit."""

    number: int  # index into the units to score
    frame: pl.DataFrame  # question_id, answer_id, score (f32), in the order of the pools
    truncated: int  # answers truncated at the model's limit


# Stores the scores of a unit. Called from several threads if there are several scorers.
Sink: TypeAlias = Callable[[UnitScores], None]


def prepare(unit: Unit, pools: PoolBatch, scorer: Scorer) -> PreparedUnit:
    """Prepare the pools of a unit for scoring, such as tokenize them."""
    inputs = scorer.prepare(pools)
    columns = pools.question_ids, pools.answer_ids, pools.pair_question
    return PreparedUnit(unit, *columns, inputs, scorer.truncated(inputs))


def score(
    units: Sequence[PreparedUnit], scorer: Scorer, progress: Callable[[int], None] = lambda pairs: None
) -> Generator[pl.DataFrame]:
    """Score units together; yield question_id, answer_id and score (f32) of each, in order.

    A score that is not finite is an error. ``progress`` is called with the number of pairs of each block.
    """
    inputs = scorer.join([unit.inputs for unit in units]) if len(units) > 1 else units[0].inputs
    scores = scorer.score(inputs, progress)
    ends = np.cumsum([len(unit.answer_ids) for unit in units])
    for unit, of_unit in zip(units, np.split(scores, ends[:-1]), strict=True):
        yield _frame(unit, of_unit)


def _frame(unit: PreparedUnit, scores: np.ndarray) -> pl.DataFrame:
    """Return the scores of a unit with ids; raise if a score is not finite."""
    frame = pl.DataFrame(
        {
            "question_id": pl.Series(unit.question_ids).gather(unit.pair_question),
            "answer_id": pl.Series(unit.answer_ids),
            "score": scores.astype(np.float32, copy=False),
        }
    )
    is_finite = np.isfinite(scores)
    if not is_finite.all():
        question, answer, value = frame.row(int(np.argmin(is_finite)))
        reason = f"question {question!r}, answer {answer!r}: score {value}: expected a finite number"
        raise AptoolError(f"{unit.unit.path}: row group {unit.unit.row_group}: {reason}")
    return frame


class PairMeter:
    """Counts scored pairs on a bar, at most ``pairs``; thread-safe, also with other meters of one bar."""

    _lock = threading.Lock()  # a bar is not thread-safe, and devices score groups of units on one

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


def run_pipelines(
    units: Sequence[Unit], scorer: Scorer, answers: Answers | None, bar: Bar, sink: Sink
) -> Generator[UnitRecord]:
    """Score units in this process, on all devices of the scorer; yield a record per stored unit.

    Per device at most three groups of units are in memory: one being read, one being scored, one in the sink.
    In a group, the time of all units is in the record of the first one.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    scorers = scorer.copies(len(units))
    gpus = len(scorers) * scorer.device.startswith("cuda")
    waiting = deque(enumerate(units))
    pipelines = [_pipeline(waiting, each, answers, bar, sink) for each in scorers]
    stored = pipelines[0] if len(pipelines) == 1 else _merged(pipelines, waiting)
    wall, cores = time.monotonic(), time.process_time()
    with contextlib.closing(stored):
        for unit in stored:
            # The time of a unit starts at the end of the previous unit.
            now, cores_now = time.monotonic(), time.process_time()
            seconds = now - wall
            yield UnitRecord(
                *(unit.number, unit.frame.height, worker),
                seconds=seconds,
                core_seconds=cores_now - cores,
                gpu_seconds=seconds * gpus,
            )
            wall, cores = now, cores_now


def _pipeline(
    waiting: deque[tuple[int, Unit]], scorer: Scorer, answers: Answers | None, bar: Bar, sink: Sink
) -> Generator[UnitScores]:
    """Score waiting units with one scorer, while the next unit is read and the previous one is stored."""
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        prepared = (
            (number, prepare(unit, read_pools(unit, answers), scorer)) for number, unit in _taken(waiting)
        )
        groups = joined_groups(prepared, scorer)
        reading = reader.submit(next, groups, ())
        storing: tuple[UnitScores, Future[None]] | None = None
        while group := reading.result():
            reading = reader.submit(next, groups, ())
            numbers, units = zip(*group, strict=True)
            meter = PairMeter(bar, sum(len(unit.answer_ids) for unit in units))
            frames = score(units, scorer, meter.add)
            for number, unit, frame in zip(numbers, units, frames, strict=True):
                if storing is not None:
                    storing[1].result()
                    yield storing[0]
                scores = UnitScores(number, frame, unit.truncated)
                storing = scores, writer.submit(sink, scores)
            meter.finish()
        if storing is not None:
            storing[1].result()
            yield storing[0]


def _taken(waiting: deque[tuple[int, Unit]]) -> Generator[tuple[int, Unit]]:
    """Remove waiting units one by one; other pipelines remove some, too."""
    with contextlib.suppress(IndexError):
        while True:
            yield waiting.popleft()


def joined_groups(
    units: Iterable[tuple[T, PreparedUnit]], scorer: Scorer
) -> Generator[list[tuple[T, PreparedUnit]]]:
    """Group consecutive units that `score` may score together, with their labels.

    If the iteration fails, the units before the error are a group.
    """
    limit = min(JOINED_PAIRS, int(available_memory() * JOINED_MEMORY) // BYTES_PER_PAIR)
    group: list[tuple[T, PreparedUnit]] = []
    pairs = 0
    try:
        for label, unit in units:
            is_joinable = scorer.is_joinable(unit.inputs)
            if group and not (is_joinable and pairs + len(unit.answer_ids) <= limit):
                yield group
                group, pairs = [], 0
            group.append((label, unit))
            pairs += len(unit.answer_ids)
            if not is_joinable:
                yield group
                group, pairs = [], 0
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def _merged(
    pipelines: Sequence[Generator[UnitScores]], waiting: deque[tuple[int, Unit]]
) -> Generator[UnitScores]:
    """Run each pipeline in a thread; yield units in the order in which they are stored."""
    done: SimpleQueue[UnitScores | BaseException | None] = SimpleQueue()

    def work(pipeline: Generator[UnitScores]) -> None:
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


class MemorySink:
    """Keeps the scores of all units in memory."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        self._frames: dict[int, pl.DataFrame] = {}
        self.truncated = 0

    def __call__(self, scores: UnitScores) -> None:
        """Keep the scores of a unit."""
        self._frames[scores.number] = scores.frame
        self.truncated += scores.truncated

    def frame(self) -> pl.DataFrame:
        """Return question_id, answer_id and score (f64), in the order of a run file."""
        frames = [self._frames[number] for number in range(len(self._units))]
        check_questions(
            self._units,
            pl.concat(
                frame.select(pl.col("question_id").unique(maintain_order=True), part=pl.lit(number))
                for number, frame in enumerate(frames)
            ),
        )
        # A run file has no negative zero.
        score = pl.when(pl.col("score") == 0).then(0.0).otherwise(pl.col("score").cast(pl.Float64))
        return rank_candidates(pl.concat(frames).with_columns(score=score)).drop("rank")
