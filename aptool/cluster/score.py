"""Scoring on a Ray cluster: Ray Data gives the missing units of a run to a pool of actors.

An actor reads, scores and writes a unit with the functions of ``scoring.run``, so its bytes do not depend
on the actor. Ray Data retries the units of lost actors; a unit that is scored twice is written twice with the
same bytes. The driver gets a record per unit.
"""

import logging
import os
import pickle
import threading
import time
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
from ray.util.metrics import Counter
from typing_extensions import override

from aptool.cluster.connection import Cluster, Resources, Workers, worker_resources
from aptool.cluster.workers import (
    MEMORY_HINT,
    NO_PROGRESS_VARIABLE,
    check_worker,
    first_task,
    host,
    ray_failures,
)
from aptool.data.pools import Unit, read_answers
from aptool.environment import versions_of
from aptool.errors import AptoolError, counted, located
from aptool.files import Input
from aptool.progress import Bar
from aptool.scoring.run import Executor, Part, Record, read, write
from aptool.scoring.systems import Scorer, System

logger = logging.getLogger(__name__)

# Calls of an actor with a GPU at the same time: one reads, one scores, one writes.
THREADS = 3

# Restarts of an actor after the loss of its process or node, with its batches. Preemptions of nodes that Ray
# knows of do not count. Without a limit, a unit that always ends its process would be retried forever.
RESTARTS = 3

# Batches per actor if they had the size of the first one, and maximum number of units in a batch: Ray Data
# takes about 10 ms per batch.
SHARES = 4
MOST_UNITS = 64

# Estimated memory of a worker: a process with torch, and copies of the model's weights.
WORKER_BYTES = 512 << 20
MODEL_COPIES = 3

# Names of Ray Data's threads that call Ray.
RAY_DATA_THREADS = ("iter_threaded", "StreamingExecutor", "ray-data")


@dataclass
class ClusterExecutor(Executor):
    """Actors of a Ray cluster that write the parts of a run to shared storage."""

    cluster: Cluster
    workers: Workers = None  # as many as fit
    gpus_per_worker: float | None = None  # may be fractional; None is 1 if the cluster has GPUs
    _file: Input | None = None  # of the shared answers
    _each: Resources = field(default_factory=Resources)  # of a worker

    @override
    def open(self, system: System, units: Sequence[Unit], answers: Input | None) -> Scorer:
        """Open a system as workers do, but in this process; the weights of a model are on the CPU."""
        self._file = answers
        if system.has_network:
            return self._open_network(system, units)
        self._each = worker_resources(self.cluster, "cpu")._replace(memory=WORKER_BYTES)
        return system.open(units, read_answers(*answers) if answers is not None else None, "cpu")

    def _open_network(self, system: Any, units: Sequence[Unit]) -> Scorer:
        # The driver of other systems does not load PyTorch.
        from aptool.models.hub import pinned_name
        from aptool.models.model import load_model
        from aptool.scoring.model_system import CACHE_BYTES, ModelScorer, ModelSystem

        system = replace(system, folder=pinned_name(system.folder))
        if not isinstance(system, ModelSystem):
            from aptool.scoring.sentence_transformers import SentenceTransformersScorer, load_checkpoint

            checkpoint = load_checkpoint(system)
            each = self._reserve(system.device, checkpoint)
            return SentenceTransformersScorer(system, checkpoint, "cuda" if each.gpus else "cpu")
        model = load_model(system.folder)
        each = self._reserve(system.device, model.ranker)
        precision = "fp32" if system.precision == "auto" else system.precision
        if not each.gpus:
            system = replace(system, cache_bytes=min(CACHE_BYTES, self.cluster.memory(each) // 3))
        elif system.precision == "auto":  # one worker tries it for all workers
            arguments = Path.cwd(), system, units[:1], self._file
            precision = first_task(self.cluster, each, _try_precision, *arguments)
        return ModelScorer(system, model, "cuda" if each.gpus else "cpu", precision)

    def _reserve(self, device: str, network: Any) -> Resources:
        """Set and return the resources of a worker with a network."""
        each = worker_resources(self.cluster, device, self.gpus_per_worker)
        weights = sum(tensor.nbytes for tensor in network.state_dict().values())
        # The GPUs decide how many workers a node has.
        cpus = 0 if each.gpus else each.cpus
        self._each = each._replace(cpus=cpus, memory=WORKER_BYTES + MODEL_COPIES * weights)
        return self._each

    @override
    def run(self, missing: Sequence[Part], scorer: Scorer, bar: Bar) -> Generator[tuple[int, Record]]:
        if not missing:
            return
        cluster, each = self.cluster, self._each
        minimum, maximum = self.workers if isinstance(self.workers, tuple) else (self.workers, self.workers)
        first_task(cluster, each, host)
        room = max(cluster.capacity(each), 1)
        logger.info(cluster.describe(f"room for {counted(room, 'worker')}", each))
        batches = batches_of([part.unit.pairs for part in missing], min(room, maximum or room))
        most = min(len(batches), maximum or len(batches))
        least = min(most, minimum or 1)  # their number waits for nodes; an autoscaler sees it
        threads = THREADS if each.gpus else 1
        versions = versions_of("torch", "ray")
        rows = [{"indices": batch} for batch in batches]
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")  # has no successor yet
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(  # a task per row
            ScoreUnits,
            batch_size=1,
            fn_constructor_args=(
                *(Path.cwd(), versions, scorer.system, scorer.device, scorer.fingerprint),
                *(self._file, ray.put(list(missing))),
            ),
            compute=ray.data.ActorPoolStrategy(
                min_size=least,
                max_size=most,
                initial_size=max(least, min(room, most)),
                max_tasks_in_flight_per_actor=2 * threads,
                max_concurrent_calls_per_actor=threads,
                enable_true_multi_threading=True,
            ),
            num_cpus=each.cpus,
            num_gpus=each.gpus or None,
            memory=each.memory or None,
            max_restarts=RESTARTS,
            max_task_retries=-1,  # as long as the actor is restarted
        )
        dataset.set_name(f"aptool-score-{missing[0].record.parent.stem}")  # as the dashboard shows it
        _set_context(dataset.context)
        with ray_failures(cluster):
            try:
                for row in dataset.iter_rows():
                    for number, record in pickle.loads(row["records"]):
                        bar.update(record.pairs)
                        yield number, record
            finally:
                _join_threads()


def batches_of(pairs: Sequence[int], workers: int) -> list[list[int]]:
    """Divide units, given their pairs, into batches of decreasing size: a late start costs little."""
    batches: list[list[int]] = []
    remaining, room = sum(pairs), 0
    for number in np.argsort(-np.array(pairs), kind="stable").tolist():
        if pairs[number] > room or len(batches[-1]) == MOST_UNITS:
            batches.append([])
            room = remaining // (SHARES * max(workers, 1))
        batches[-1].append(number)
        room -= pairs[number]
        remaining -= pairs[number]
    return batches


class ScoreUnits:
    """An open system in an actor, which reads, scores and writes the units of a batch."""

    def __init__(
        self,
        start: Path,
        versions: dict[str, str],
        system: System,
        device: str,
        fingerprint: str,
        answers: Input | None,
        parts: Any,
    ) -> None:
        """Open a system; raise on a node that differs from the driver's.

        ``start`` is the base of relative paths, ``versions`` and ``fingerprint`` are those of the driver,
        ``parts`` is a reference to the parts of the run.
        """
        self._parts: list[Part] = ray.get(parts)
        try:
            check_worker(start, versions, self._parts[0].record.parent)
            self._scorer = system.open(device=device)
            if self._scorer.fingerprint != fingerprint:
                raise AptoolError("the model differs from the driver's: expected the same model folder")
            self._answers = read_answers(*answers) if answers is not None else None
        except AptoolError as error:
            raise located(error, f"node {host()}") from error
        self._scoring = threading.Lock()  # the other threads read and write meanwhile
        self._units = Counter("aptool_units", "Units that are scored and written")
        self._pairs = Counter("aptool_pairs", "Pairs of these units")

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        """Write the parts of a row; return their pickled records."""
        parts = [self._parts[index] for index in batch["indices"][0]]
        return {"records": [pickle.dumps([(part.number, self._write(part)) for part in parts])]}

    def _write(self, part: Part) -> Record:
        from aptool.models.device import memory_for

        unit = part.unit
        try:
            with memory_for(f"{unit.path}: {unit.position}", MEMORY_HINT):
                prepared = read(unit, self._scorer, self._answers)
                with self._scoring:
                    scores = prepared.work.score(lambda pairs: None)
                record = write(part, prepared, scores)
        except AptoolError as error:
            raise located(error, f"node {host()}") from error
        self._units.inc()
        self._pairs.inc(unit.pairs)
        return record


def _set_context(context: ray.data.DataContext) -> None:
    """Hide Ray Data's messages, raise the errors of actors, and lift the default limit on progress."""
    context.enable_progress_bars = context.print_on_execution_start = False
    context.raise_original_map_exception = True
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    if NO_PROGRESS_VARIABLE not in os.environ:
        context.execution_no_progress_timeout_s = -1  # a unit, or a wait for nodes, may take longer


def _join_threads() -> None:
    """Wait for Ray Data's threads: one that calls Ray after ``ray.shutdown`` aborts the process."""
    deadline = time.monotonic() + 10.0
    for thread in threading.enumerate():
        if thread.name.startswith(RAY_DATA_THREADS):
            thread.join(max(0.0, deadline - time.monotonic()))


def _try_precision(start: Path, system: System, units: Sequence[Unit], answers: Input | None) -> Any:
    """Pick the precision of a model on a worker with a GPU."""
    os.chdir(start)
    texts = read_answers(*answers) if answers is not None else None
    opened: Any = system.open(units, texts, "cuda").system
    return opened.precision
