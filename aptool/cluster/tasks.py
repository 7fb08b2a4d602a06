"""Trials of an experiment matrix as Ray tasks.

Ray retries a task whose worker or node was lost, and the trial resumes from its checkpoint. All nodes see the
inputs and the output folder.
"""

import contextlib
import logging
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from typing_extensions import override

from aptool.cluster.connection import Cluster, Resources
from aptool.cluster.workers import cause, check_worker, first_task, host
from aptool.environment import versions_of
from aptool.errors import AptoolError, counted, located
from aptool.experiments.matrix import Trial
from aptool.experiments.side_by_side import Outcome, Processes, run_trial
from aptool.experiments.trial import TrialRunner
from aptool.models.build import code_of

logger = logging.getLogger(__name__)

# Retries of a task whose worker was lost.
TRIAL_RETRIES = 8


class ClusterProcesses(Processes):
    """Trials as tasks: Ray starts them when resources are free, and again after the loss of a worker."""

    def __init__(self, cluster: Cluster, each: Resources, number: int | None = None) -> None:
        """Set the resources of a task, and the maximum number of parallel tasks (default: as many as fit)."""
        self._cluster, self._each, self.number = cluster, each, number
        self._tasks: list[Any] = []

    @override
    def __enter__(self) -> None:
        first_task(self._cluster, self._each, host)
        room = f"room for {counted(self._cluster.capacity(self._each), 'trial')}"
        logger.info(self._cluster.describe(room, self._each))

    @override
    def __exit__(self, *raised: object) -> None:
        for task in self._tasks:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(task, force=True)  # does nothing if it has ended

    @override
    def submit(self, trial: Trial, runner: TrialRunner) -> Future[Outcome]:
        each = self._each
        function = ray.remote(_run_trial).options(
            num_cpus=each.cpus, num_gpus=each.gpus, max_retries=TRIAL_RETRIES, name=f"trial {trial}"
        )
        recipe = trial.system.recipe
        code = code_of(recipe) if recipe is not None else versions_of("torch")
        runner = replace(runner, device="cuda" if each.gpus else "cpu")
        self._tasks.append(function.remote(trial, runner, Path.cwd(), code))
        future: Future[Outcome] = self._tasks[-1].future()
        return future

    @override
    def problem(self, error: BaseException) -> str:
        if isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RayTaskError):
            return cause(error)
        raise error  # a bug, not a lost worker


def _run_trial(trial: Trial, runner: TrialRunner, start: Path, expected: dict[str, str]) -> Outcome:
    """Run a trial on a worker, with the current folder of the driver."""
    try:
        check_worker(start, expected, runner.output)
    except AptoolError as error:
        return located(error, f"{trial}: node {host()}")
    return run_trial(trial, runner)
