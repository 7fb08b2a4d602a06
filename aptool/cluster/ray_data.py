"""Scoring of units with Ray Data.

Workers with a GPU score units that other tasks read; workers without a GPU read and score. Ray retries a unit
when its worker or node is lost. Idle workers re-score the units of stragglers.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, cast

import ray
import ray.data

from aptool.cluster.messages import NO_PROGRESS_VARIABLE, BoardPost, listening, ray_failures, start_board
from aptool.cluster.metrics import WorkerMetrics
from aptool.cluster.resources import Cluster, Resources
from aptool.cluster.worker import Reading, ScoringJob, Worker, host, is_current, is_started, read_and_prepare
from aptool.scoring.parts import Part, file_names
from aptool.scoring.pipeline import UnitRecord

# Names of Ray Data's threads that call Ray. Its other threads, such as loggers, never end.
THREADS = ("iter_threaded", "StreamingExecutor", "ray-data")

# Spare rows give an idle worker the units of stragglers: their number, and the maximum of spare rows.
SPARE = -1
MOST_SPARE = 64

# Time limit for Ray Data's threads to end.
TIMEOUT_SECONDS = 10.0

# Minimum time before a missing part counts as late, and interval of the polls.
PATIENCE_SECONDS = 2.0
POLL_SECONDS = 0.5

# Maximum delay of a spare row. The waiting task occupies a core, which the reading of a unit may need.
QUEUE_SECONDS = 300.0


def map_units(
    parts: list[Part],
    job: ScoringJob,
    workers: int | None,
    room: int,
    each: Resources,
    cluster: Cluster,
    receive: Callable[[str, Any], None],
    debug: bool,
) -> Generator[UnitRecord]:
    """Score units; yield a record per completed unit, and two for the unit of some stragglers.

    ``workers`` is the maximum of scoring processes (None: no limit), ``room`` the number that fits now, and
    ``each`` the resources of a worker. ``receive`` gets the messages of workers: their progress within units.
    """
    if not parts:
        return
    _quiet(debug)
    rows = [{"number": number} for number in range(len(parts))]
    most = min(len(rows), workers if workers is not None else len(rows))
    if most > 1:
        rows += [{"number": SPARE}] * min(most, MOST_SPARE)
    dataset: ray.data.Dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
    _lift_time_limit(dataset.context)
    dataset.set_name(f"aptool-score-{job.folder.name.removesuffix('.parts')}")  # as the dashboard shows it
    if each.gpus:
        dataset = dataset.map(cast(Any, prepare_row), fn_args=(job, parts), num_cpus=1)
    if workers is not None:
        # Workers without room wait for nodes; an autoscaler sees their demand.
        pool = ray.data.ActorPoolStrategy(size=most, max_tasks_in_flight_per_actor=2)
    else:
        begin = max(1, min(room, most))
        pool = ray.data.ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=begin, max_tasks_in_flight_per_actor=2
        )
    board = start_board()
    dataset = dataset.map_batches(
        ScoreUnits,
        batch_size=1,
        fn_constructor_args=(job, parts, board),
        compute=pool,
        num_cpus=each.cpus,
        num_gpus=each.gpus or None,
        memory=each.memory or None,
    )
    try:
        with ray_failures(cluster.address), listening(board, receive):
            for batch in dataset.iter_batches(prefetch_batches=0, batch_size=1, batch_format="numpy"):
                yield UnitRecord(**{name: column.tolist()[0] for name, column in batch.items()})
    finally:
        _join_threads()


def _join_threads() -> None:
    """Wait for Ray Data's threads: one that calls Ray after ``ray.shutdown`` aborts the process."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith(THREADS):
            thread.join(max(0.0, deadline - time.monotonic()))


def prepare_row(row: dict[str, Any], job: ScoringJob, parts: Sequence[Part]) -> dict[str, Any]:
    """Read and prepare the unit of a row; delay a spare row until the other rows are started."""
    if row["number"] == SPARE:
        wait_until_started(job, parts)
        return {**row, **Reading(b"", "", False)._asdict()}
    return {**row, **read_and_prepare(job, parts[row["number"]])._asdict()}


class ScoreUnits:
    """A ``Worker`` as a class of Ray Data's ``map_batches``, with batches of one row."""

    def __init__(self, job: ScoringJob, parts: Sequence[Part], board: Any) -> None:
        self._worker = Worker(job)
        self._metrics = WorkerMetrics(f"{host()}:{os.getpid()}")
        self._board = board
        self._parts = parts

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Score the unit of a batch, or for a spare row the units of stragglers."""
        row = {name: column[0] for name, column in batch.items()}
        number = int(row["number"])
        if number == SPARE:
            records = score_stragglers(self._worker, self._parts)
        else:
            reading = Reading(row["unit"], str(row["error"]), bool(row["fatal"])) if "unit" in row else None
            report = partial(BoardPost(self._board, number), "progress")
            records = [self._worker.score(number, self._parts[number], reading, report)]
        self._metrics.count(records)
        columns = zip(*records, strict=True) if records else ((),) * len(UnitRecord._fields)
        return {name: list(column) for name, column in zip(UnitRecord._fields, columns, strict=True)}


def _quiet(debug: bool) -> None:
    """Turn off Ray Data's progress bars and messages, unless debugging."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = debug
    context.print_on_execution_start = debug
    for handler in logging.getLogger("ray.data").handlers:
        if not debug and "File" not in type(handler).__name__:
            handler.setLevel(logging.CRITICAL)


def _lift_time_limit(context: ray.data.DataContext) -> None:
    """Lift Ray Data's limit of 30 minutes without progress, unless the user has set one."""
    default = ray.data.DataContext.execution_no_progress_timeout_s
    if context.execution_no_progress_timeout_s == default and NO_PROGRESS_VARIABLE not in os.environ:
        context.execution_no_progress_timeout_s = -1


def wait_until_started(job: ScoringJob, parts: Sequence[Part]) -> None:
    """Block until the unstarted units fit in the workers' queues.

    A spare row needs no reading: without this wait it would reach the workers before the last units.
    """
    deadline = time.monotonic() + QUEUE_SECONDS
    while time.monotonic() < deadline and is_current(job):
        names = file_names(parts)
        missing = [part for part in parts if part.path.name not in names]
        begun = sum(is_started(part, names) for part in missing)
        if len(missing) - begun <= begun:
            break
        time.sleep(POLL_SECONDS)


def score_stragglers(worker: Worker, parts: Sequence[Part]) -> list[UnitRecord]:
    """Re-score the units of stragglers (their workers report errors), until each part exists or is taken."""
    records: list[UnitRecord] = []
    tried: set[int] = set()
    start = time.monotonic()
    while worker.is_current():
        names = file_names(parts)
        late = [i for i, part in enumerate(parts) if i not in tried and part.path.name not in names]
        if not late:
            break
        if time.monotonic() - start < max(PATIENCE_SECONDS, worker.seconds_per_unit):
            time.sleep(POLL_SECONDS)
            continue
        number = late[0]
        tried.add(number)
        record = worker.score_again(number, parts[number])
        if record is not None:
            records.append(record)
    return records
