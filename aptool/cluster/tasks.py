"""Trials of an experiment matrix as Ray tasks.

Ray retries a task whose worker or node was lost, and the trial resumes from its checkpoint. All nodes see the
inputs and the output folder.
"""

import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from typing_extensions import override

from aptool.cluster.connection import Cluster, Resources, Wait
from aptool.cluster.workers import Versions, cause, check_worker, first_task, host
from aptool.environment import versions_of
from aptool.errors import AptoolError, counted, located
from aptool.experiments.matrix import Trial
from aptool.experiments.side_by_side import Ended, Processes, run_trial
from aptool.experiments.trial import Result, TrialRunner
from aptool.models.build import code_of

logger = logging.getLogger(__name__)

# Retries of a task whose worker was lost.
TRIAL_RETRIES = 8


class ClusterProcesses(Processes):
    """Trials as tasks: Ray starts them when resources are free, and again after the loss of a worker."""

    def __init__(self, cluster: Cluster, each: Resources, number: int | None = None) -> None:
        """Set the resources of a task, and the maximum number of parallel tasks (default: as many as fit)."""
        first_task(cluster, each, host)
        logger.info(cluster.describe(f"room for {counted(cluster.capacity(each), 'trial')}", each))
        self._room = Wait(cluster, 1, each)
        self._each = each
        self._number = number
        self._tasks: dict[Any, tuple[int, Trial]] = {}

    def __enter__(self) -> "ClusterProcesses":
        return self

    def __exit__(self, *raised: object) -> None:
        """Cancel the tasks that still run."""
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
        self._room.poll()
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
        check_worker(start, expected, runner.output)
    except AptoolError as error:
        return located(error, f"{trial}: node {host()}")
    return run_trial(trial, runner)
