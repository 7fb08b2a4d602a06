"""Trials of an experiment matrix in parallel, as tasks of a Ray cluster."""

import contextlib
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from aptool.cluster.messages import BoardPost, cause, start_board, take_messages
from aptool.cluster.resources import LINE_SECONDS, Cluster, Resources, count
from aptool.cluster.worker import Versions, check_versions, host, versions
from aptool.errors import AptoolError, UsageError
from aptool.experiments.matrix import Trial
from aptool.experiments.side_by_side import Event, run_trial
from aptool.experiments.trial import TrialRunner
from aptool.relay import WorkerError

logger = logging.getLogger(__name__)

# Retries of a trial whose worker was lost; it resumes from its checkpoint.
RESTARTS = 8


class ClusterProcesses:
    """A task per trial; Ray starts them as they fit, and again when their worker is lost.

    All nodes see the collections and share the output folder.
    """

    def __init__(self, cluster: Cluster, each: Resources, number: int | None = None) -> None:
        """Prepare tasks with the resources ``each``, at most ``number`` at a time; None is as many as fit."""
        if cluster.through_client:
            raise UsageError(
                f"--cluster {cluster.address}: experiments cannot be driven through Ray's client: expected "
                "host:port, or `ray job submit -- aptool matrix ... --cluster`"
            )
        room = cluster.check_room(None, each)
        logger.info(
            f"cluster {cluster.address}: room for {count(room, 'trial')} with {each} each; Ray's logs are in "
            f"{cluster.logs}"
        )
        self._cluster = cluster
        self._line_at = time.monotonic() + LINE_SECONDS
        self._each = each
        self._number = number
        self._board = start_board()
        self._tasks: dict[Any, tuple[int, Trial]] = {}

    def __enter__(self) -> "ClusterProcesses":
        return self

    def __exit__(self, *raised: object) -> None:
        """Ends the tasks that still run."""
        for task in self._tasks:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(task, force=True)

    def has_room(self) -> bool:
        """See ``Processes.has_room``; Ray itself waits for resources."""
        return self._number is None or len(self._tasks) < self._number

    def start(self, number: int, trial: Trial, runner: TrialRunner) -> None:
        """See ``Processes.start``."""
        runner = replace(runner, device="cuda" if self._each.gpus else "cpu")
        task = ray.remote(_run_trial).options(
            **self._each.options, max_retries=RESTARTS, name=f"trial {trial}"
        )
        reference = task.remote(trial, runner, Path.cwd(), BoardPost(self._board, number), versions())
        self._tasks[reference] = number, trial

    def events(self, timeout: float) -> list[Event]:
        """See ``Processes.events``."""
        ended_tasks: list[Any] = []
        if time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            if missing := self._cluster.missing(1, self._each):
                logger.info(missing)
        if self._tasks:
            ended_tasks, _ = ray.wait(list(self._tasks), num_returns=1, timeout=timeout)
        # A task posts all of its messages before it ends.
        events = [Event(*message) for message in take_messages(self._board) if message[1] != "end"]
        for task in ended_tasks:
            number, trial = self._tasks.pop(task)
            try:
                kind, value = ray.get(task)
            except ray.exceptions.RayTaskError:
                raise  # a fault of the program
            except ray.exceptions.RayError as error:
                kind, value = "error", WorkerError(1, f"{trial}: {cause(error)}")
            events.append(Event(number, kind, value))
        return events


def _run_trial(
    trial: Trial, runner: TrialRunner, start: Path, post: BoardPost, expected: Versions
) -> tuple[str, Any]:
    """Run a trial on a worker; relative paths start from the folder of the driver."""
    try:
        check_versions(expected)
    except AptoolError as difference:
        return "error", WorkerError.of(difference, f"{trial}: node {host()}")
    with contextlib.suppress(OSError):  # absolute paths work without the folder
        os.chdir(start)
    if isinstance(runner.output, Path) and not runner.output.is_dir():
        error = AptoolError(
            f"{start / runner.output}: not found on node {host()}: expected an output on storage that all "
            "nodes share"
        )
        return "error", WorkerError.of(error, str(trial))
    try:
        return run_trial(trial, runner, post)
    finally:
        post.flush()
