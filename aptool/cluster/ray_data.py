"""Scoring of units with Ray Data.

A row has the numbers of a batch of units: Ray Data takes about 10 ms per row. Workers with a GPU score units
that other tasks read; workers without a GPU read and score. Ray retries a batch when its worker or node is
lost. Idle workers re-score the units of stragglers.
"""

import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any, cast

import numpy as np
import ray
import ray.data

from aptool.cluster.messages import NO_PROGRESS_VARIABLE, ray_failures
from aptool.cluster.nodes import check_node
from aptool.cluster.resources import Cluster, Resources
from aptool.cluster.worker import ScoringJob, Worker, is_current, is_started, read_and_prepare
from aptool.scoring.parts import Part, file_names
from aptool.scoring.pipeline import UnitRecord

# Names of Ray Data's threads that call Ray. Its other threads, such as loggers, never end.
THREADS = ("iter_threaded", "StreamingExecutor", "ray-data")

# Spare rows, which have no unit, give an idle worker the units of stragglers.
MOST_SPARE = 64

# Batches per worker if they had the size of the first one, and maximum number of units in a batch.
SHARES = 4
MOST_UNITS = 64

# Workers that may fail to start, one after the other: on a node that joined and is not yet left out.
MOST_INIT_DEATHS = 20

# Maximum number of pairs in a batch that is read for a worker with a GPU.
MOST_READ_PAIRS = 1 << 16

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
    debug: bool,
) -> Generator[UnitRecord]:
    """Score units; yield a record per completed unit, and two for the unit of some stragglers.

    ``workers`` is the maximum of scoring processes (None: no limit), ``room`` the number that fits now, and
    ``each`` the resources of a worker.
    """
    if not parts:
        return
    _quiet(debug)
    begin = min(room, workers) if workers is not None else room
    batches = batches_of([part.pairs for part in parts], begin, MOST_READ_PAIRS if each.gpus else None)
    rows: list[dict[str, Any]] = [{"numbers": batch} for batch in batches]
    most = min(len(rows), workers if workers is not None else len(rows))
    if most > 1:
        rows += [{"numbers": []}] * min(most, MOST_SPARE)
    shared = ray.put(parts)
    dataset: ray.data.Dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
    _lift_time_limit(dataset.context)
    dataset.context.max_consecutive_actor_init_deaths = MOST_INIT_DEATHS
    dataset.set_name(f"aptool-score-{job.folder.name.removesuffix('.parts')}")  # as the dashboard shows it
    if each.gpus:
        dataset = dataset.map(
            cast(Any, prepare_row),
            fn_args=(job, shared),
            num_cpus=1,
            label_selector=cluster.labels,
        )
    if workers is not None:
        # Workers without room wait for nodes; an autoscaler sees their demand.
        pool = ray.data.ActorPoolStrategy(size=most, max_tasks_in_flight_per_actor=2)
    else:
        pool = ray.data.ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=max(1, min(room, most)), max_tasks_in_flight_per_actor=2
        )
    dataset = dataset.map_batches(
        ScoreUnits,
        batch_size=1,
        fn_constructor_args=(job, shared, debug),
        compute=pool,
        num_cpus=each.cpus,
        num_gpus=each.gpus or None,
        memory=each.memory or None,
        label_selector=cluster.labels,  # read for each new worker, so that nodes can be left out later
    )
    try:
        with ray_failures(cluster.address):
            for records in dataset.iter_batches(prefetch_batches=0, batch_size=None, batch_format="numpy"):
                yield from map(UnitRecord, *(records[name].tolist() for name in UnitRecord._fields))
    finally:
        _join_threads()


def batches_of(pairs: Sequence[int], workers: int, most_pairs: int | None = None) -> list[list[int]]:
    """Group units into batches of decreasing size, the units with most pairs first.

    A batch has at most a share of the remaining pairs, so that workers finish at the same time; and always
    one unit.

    Args:
        pairs: number of pairs of each unit.
        workers: number of workers.
        most_pairs: maximum number of pairs of a batch with several units; None for no maximum.
    """
    batches: list[list[int]] = []
    remaining, room = sum(pairs), 0
    for number in np.argsort(-np.array(pairs), kind="stable").tolist():
        if pairs[number] > room or len(batches[-1]) == MOST_UNITS:
            batches.append([])
            room = min(remaining // (SHARES * max(workers, 1)), most_pairs or remaining)
        batches[-1].append(number)
        room -= pairs[number]
        remaining -= pairs[number]
    return batches


def _join_threads() -> None:
    """Wait for Ray Data's threads: one that calls Ray after ``ray.shutdown`` aborts the process."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith(THREADS):
            thread.join(max(0.0, deadline - time.monotonic()))


def prepare_row(row: dict[str, Any], job: ScoringJob, shared: Any) -> dict[str, Any]:
    """Read and prepare the units of a row; delay a spare row until the other rows are started."""
    parts: list[Part] = ray.get(shared)
    if not len(row["numbers"]):
        wait_until_started(job, parts)
    readings = [read_and_prepare(job, parts[number]) for number in row["numbers"]]
    return {**row, "readings": pickle.dumps(readings, protocol=5)}


class ScoreUnits:
    """A ``Worker`` as a class of Ray Data's ``map_batches``, with batches of one row."""

    def __init__(self, job: ScoringJob, shared: Any, debug: bool) -> None:
        """Open the system; raise on a node that has just joined and will be left out."""
        check_node(job.requirements)
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
        logging.getLogger("aptool").setLevel(logging.DEBUG if debug else logging.WARNING)
        self._worker = Worker(job)
        self._parts: list[Part] = ray.get(shared)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Score the units of a row, or for a spare row the units of stragglers."""
        row = {name: column[0] for name, column in batch.items()}
        parts = {int(number): self._parts[number] for number in row["numbers"]}
        if parts:
            records = self._worker.score(parts, pickle.loads(row["readings"]) if "readings" in row else ())
        else:
            records = score_stragglers(self._worker, self._parts)
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
        late.sort(key=lambda number: not is_started(parts[number], names))  # a queued unit may follow soon
        if not late:
            break
        if time.monotonic() - start < max(PATIENCE_SECONDS, worker.seconds_per_group):
            time.sleep(POLL_SECONDS)
            continue
        number = late[0]
        tried.add(number)
        record = worker.score_again(number, parts[number])
        if record is not None:
            records.append(record)
    return records
