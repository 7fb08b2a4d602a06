"""Independent jobs as Ray tasks: chunks of answers to encode, and trials of an experiment matrix.

Ray retries a task whose worker or node was lost: answers in the store are not encoded again, and a trial
resumes from its checkpoint. All nodes see the inputs, the model, and the store or the output folder.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from typing_extensions import override

from aptool.cluster.messages import cause, ray_failures
from aptool.cluster.nodes import Versions, check_versions, host
from aptool.cluster.resources import Cluster, Resources, log_missing_resources
from aptool.cluster.score import absolute_path, describe_workers
from aptool.environment import versions_of
from aptool.errors import AptoolError, counted, located
from aptool.experiments.matrix import Trial
from aptool.experiments.side_by_side import Ended, Processes, run_trial
from aptool.experiments.trial import Result, TrialRunner
from aptool.formats.location import is_remote, location
from aptool.models.build import code_of
from aptool.models.hub import pinned_name
from aptool.scoring.answer_store import MANIFEST
from aptool.scoring.encode import Chunk, Encoded, EncodeJob, encode_chunk

logger = logging.getLogger(__name__)

# Retries of a task whose worker was lost.
ENCODE_RETRIES = 4
TRIAL_RETRIES = 8

# Queued tasks per worker.
AHEAD = 2


class ClusterEncoding:
    """An ``EncodeBackend`` with one task per chunk."""

    def __init__(self, cluster: Cluster, each: Resources, workers: int | None = None) -> None:
        """Set the resources of a task, and the maximum number of parallel tasks (default: no limit)."""
        self._cluster = cluster
        self._each = each
        self._workers = workers

    def __call__(self, job: EncodeJob, chunks: Sequence[Chunk]) -> Iterator[Encoded]:
        """Yield the result of each chunk. After an error, the store keeps the completed chunks."""
        cluster, each = self._cluster, self._each
        room = cluster.check_room(1, each, self._workers)
        logger.info(describe_workers(cluster, self._workers, room, each))
        model = absolute_path(pinned_name(job.model))
        job = job._replace(model=model, store=absolute_path(job.store))
        task: Any = ray.remote(_encode).options(
            **each.options, max_retries=ENCODE_RETRIES, name="aptool encode"
        )
        device = "cuda" if each.gpus else "cpu"
        # The cluster may grow: Ray starts as many tasks as fit.
        limit = self._workers if self._workers is not None else AHEAD * max(room, len(cluster.nodes()))
        waiting = iter([_absolute(chunk) for chunk in chunks])
        running: list[Any] = []
        versions = tuple(versions_of("torch").items())
        try:
            with log_missing_resources(lambda: cluster.missing(1, each)):
                while True:
                    while len(running) < limit and (chunk := next(waiting, None)) is not None:
                        running.append(task.remote(job, chunk, device, versions))
                    if not running:
                        return
                    ended, running = ray.wait(running, num_returns=1)
                    with ray_failures(cluster.address):
                        encoded: Encoded = ray.get(ended[0])
                    yield encoded
        finally:
            for reference in running:
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.cancel(reference, force=True)


def _absolute(chunk: Chunk) -> Chunk:
    """A chunk with absolute paths, and no version of a local file: copies on nodes may have other times."""
    shared = absolute_path(chunk.shared) if chunk.shared is not None else None
    version = chunk.version if is_remote(chunk.path) else None
    return chunk._replace(path=absolute_path(chunk.path), version=version, shared=shared)


def _encode(job: EncodeJob, chunk: Chunk, device: str, expected: Versions) -> Encoded:
    """Encode a chunk on a worker."""
    try:
        check_versions(expected)
    except AptoolError as error:
        raise AptoolError(f"node {host()}: {error}") from error
    if not (location(job.store) / MANIFEST).is_file():
        raise AptoolError(
            f"{job.store}: not found on node {host()}: expected a store on storage that all nodes share"
        )
    return encode_chunk(job, chunk, device)


class ClusterProcesses(Processes):
    """Trials as tasks: Ray starts them when resources are free, and again after the loss of a worker."""

    def __init__(self, cluster: Cluster, each: Resources, number: int | None = None) -> None:
        """Set the resources of a task, and the maximum number of parallel tasks (default: as many as fit)."""
        room = cluster.check_room(1, each)
        logger.info(cluster.describe(f"room for {counted(room, 'trial')}", each))
        self._cluster = cluster
        self._each = each
        self._number = number
        self._tasks: dict[Any, tuple[int, Trial]] = {}
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> "ClusterProcesses":
        self._opened.enter_context(log_missing_resources(partial(self._cluster.missing, 1, self._each)))
        return self

    def __exit__(self, *raised: object) -> None:
        """Cancel the tasks that still run."""
        self._opened.close()
        for task in self._tasks:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(task, force=True)

    @override
    def has_room(self) -> bool:
        # Ray itself waits for resources.
        return self._number is None or len(self._tasks) < self._number

    @override
    def start(self, number: int, trial: Trial, runner: TrialRunner) -> None:
        runner = replace(runner, device="cuda" if self._each.gpus else "cpu")
        task = ray.remote(_run_trial).options(
            **self._each.options, max_retries=TRIAL_RETRIES, name=f"trial {trial}"
        )
        recipe = trial.system.recipe
        code = code_of(recipe) if recipe is not None else versions_of("torch")
        expected = tuple(code.items())
        reference = task.remote(trial, runner, Path.cwd(), expected)
        self._tasks[reference] = number, trial

    @override
    def ended(self, timeout: float) -> list[Ended]:
        tasks: list[Any] = []
        if self._tasks:
            tasks, _ = ray.wait(list(self._tasks), num_returns=1, timeout=timeout)
        ended = []
        for task in tasks:
            number, trial = self._tasks.pop(task)
            try:
                outcome = ray.get(task)
            except ray.exceptions.RayTaskError:
                raise  # a bug, not a lost worker
            except ray.exceptions.RayError as error:
                outcome = AptoolError(f"{trial}: {cause(error)}")
            ended.append(Ended(number, outcome))
        return ended


def _run_trial(
    trial: Trial, runner: TrialRunner, start: Path, expected: Versions
) -> list[Result] | AptoolError:
    """Run a trial on a worker, with the current folder of the driver."""
    try:
        check_versions(expected)
    except AptoolError as difference:
        return located(difference, f"{trial}: node {host()}")
    with contextlib.suppress(OSError):  # absolute paths need no current folder
        os.chdir(start)
    if isinstance(runner.output, Path) and not runner.output.is_dir():
        error = AptoolError(
            f"{start / runner.output}: not found on node {host()}: expected an output on storage that all "
            "nodes share"
        )
        return located(error, str(trial))
    return run_trial(trial, runner)
