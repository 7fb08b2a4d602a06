"""Trials side by side, each in a process of its own: the scheduling, wherever the processes are.

A trial that fails does not stop the others; only those that need its runs are left out.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from aptool.errors import AptoolError, error_with
from aptool.experiments.matrix import SystemSpec
from aptool.experiments.plan import Trial, parts_of
from aptool.experiments.trial import Result, TrialRunner
from aptool.progress import epoch_line, get_progress
from aptool.relay import Post, WorkerError, relayed_to

logger = logging.getLogger(__name__)

# Seconds between two looks at what the processes have sent.
POLL_SECONDS = 0.3


class Event(NamedTuple):
    """A message of a trial's process; its last one has the kind ``results`` or ``error``.

    Attributes:
        trial: the trial's number.
        kind: one of ``relay.Post``, ``results`` with the results, or ``error`` with a ``WorkerError``.
    """

    trial: int
    kind: str
    value: Any


class Processes(Protocol):
    """Processes that run trials, on this machine or elsewhere."""

    def has_room(self) -> bool:
        """Whether one more trial can be started now."""

    def start(self, number: int, trial: Trial, runner: TrialRunner) -> None:
        """Starts a trial, whose events have this number."""

    def events(self, timeout: float) -> list[Event]:
        """What the processes have sent, after at most so many seconds."""


def run_trial(trial: Trial, runner: TrialRunner, post: Post) -> tuple[str, list[Result] | WorkerError]:
    """Runs a trial in a worker process; its messages are posted.

    Returns:
        The kind and the value of the last event.
    """
    try:
        with relayed_to(post):
            return "results", runner.run(trial)
    except AptoolError as error:
        return "error", WorkerError.of(error, str(trial))
    except OSError as error:
        if error.strerror is None:
            raise
        return "error", WorkerError(1, f"{trial}: {error.filename or 'output'}: {error.strerror}")


def run_side_by_side(
    trials: Sequence[Trial], runner: TrialRunner, processes: Processes
) -> list[list[Result]]:
    """The results of each trial; a trial starts when those whose runs it needs are done.

    Trials whose results are stored are evaluated in this process.

    Raises:
        AptoolError: trials failed; the others are done.
    """
    stored = {number: runner.run(trial) for number, trial in enumerate(trials) if runner.is_done(trial)}
    schedule = _Schedule(trials, stored, runner.matrix.systems)
    with get_progress().task("matrix") as update:
        while not schedule.is_over:
            while processes.has_room() and (number := schedule.next()) is not None:
                processes.start(number, trials[number], runner)
            for event in processes.events(POLL_SECONDS):
                schedule.receive(event)
            update(len(schedule.done), len(trials), "trials", schedule.detail())
    schedule.raise_errors()
    return [schedule.done[number] for number in range(len(trials))]


class _Schedule:
    """Which trials wait, run, are done and have failed."""

    def __init__(
        self,
        trials: Sequence[Trial],
        stored: Mapping[int, list[Result]],
        systems: Mapping[str, SystemSpec],
    ) -> None:
        self.done = dict(stored)
        self._trials = trials
        self._waiting = [number for number in range(len(trials)) if number not in stored]
        self._running: dict[int, str] = {}  # with what is known of their progress
        self._failed: dict[int, WorkerError] = {}
        numbers = {trial.key: number for number, trial in enumerate(trials)}
        self._needs = [[numbers[one.key] for one in parts_of(trial, systems)] for trial in trials]
        self._skipped = 0

    @property
    def is_over(self) -> bool:
        return not self._waiting and not self._running

    def next(self) -> int | None:
        """Takes the next trial that can start; None if there is none now."""
        for number in list(self._waiting):
            needs = self._needs[number]
            if any(need in self._failed for need in needs):
                self._waiting.remove(number)
                self._skipped += 1
            elif all(need in self.done for need in needs):
                self._waiting.remove(number)
                self._running[number] = ""
                return number
        return None

    def receive(self, event: Event) -> None:
        """Shows a message, or records the end of a trial."""
        number, kind, value = event
        if kind == "log":
            logger.info(value)
        elif kind == "epoch":
            logger.info(f"{self._trials[number]}: {epoch_line(value)}")
        elif kind == "progress":
            name, done, total, *_ = value
            self._running[number] = f" {name} {done / total:.0%}" if total else f" {name}"
        elif kind == "results":
            del self._running[number]
            self.done[number] = value
        elif kind == "error":
            del self._running[number]
            self._failed[number] = value
            logger.info(f"failed: {value.line}")

    def detail(self) -> str:
        """The trials that run, for the bar."""
        running = [f"{self._trials[number].system.name}{state}" for number, state in self._running.items()]
        more = f", {len(running) - 3} more" if len(running) > 3 else ""
        return f"running {', '.join(running[:3])}{more}"

    def raise_errors(self) -> None:
        """Raises the error of the first trial that failed, if any did."""
        if not self._failed:
            return
        first = self._failed[min(self._failed)]
        others = len(self._failed) - 1 + self._skipped
        more = f" (and {others} more without results)" if others else ""
        raise error_with(first.exit_code, f"{first.line}{more}; all other trials are done and kept")
