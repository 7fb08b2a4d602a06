"""Run trials in parallel processes, on this machine or on a cluster.

A failed trial does not stop other trials; only fusions of its runs are left out.
"""

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from typing_extensions import override

from aptool.errors import AptoolError, error_with, located
from aptool.experiments.matrix import Trial, parts_of
from aptool.experiments.trial import Result, TrialRunner
from aptool.models.device import gpus_like, pick_device
from aptool.plugins import load_plugins
from aptool.progress import measures_line, progress

logger = logging.getLogger(__name__)

# Seconds between two polls of the processes.
POLL_SECONDS = 0.3


class Ended(NamedTuple):
    """The end of a trial, by its number."""

    trial: int
    outcome: list[Result] | AptoolError


class Processes(Protocol):
    """Processes that run trials, on this machine or on a cluster."""

    def has_room(self) -> bool:
        """Whether another trial can start now."""

    def start(self, number: int, trial: Trial, runner: TrialRunner) -> None:
        """Start a trial with a number."""

    def ended(self, timeout: float) -> list[Ended]:
        """Wait for trials that end, for at most ``timeout`` seconds."""


def run_trial(trial: Trial, runner: TrialRunner) -> list[Result] | AptoolError:
    """Run a trial in a worker process; return its results, or its error."""
    try:
        return runner.run(trial)
    except AptoolError as error:
        return located(error, str(trial))
    except OSError as error:
        if error.strerror is None:
            raise
        return AptoolError(f"{trial}: {error.filename or 'output'}: {error.strerror}")


def run_side_by_side(
    trials: Sequence[Trial], runner: TrialRunner, processes: Processes
) -> list[list[Result]]:
    """Run trials in parallel; return the results of each.

    A fusion starts when the fused trials are done. Trials with stored results are evaluated in this process.
    If a trial fails, its error is raised when all trials that do not depend on it are done.
    """
    stored = {number: runner.run(trial) for number, trial in enumerate(trials) if runner.is_done(trial)}
    numbers = {trial.key: number for number, trial in enumerate(trials)}
    needs = [[numbers[part.key] for part in parts_of(trial, runner.matrix.systems)] for trial in trials]
    schedule = _Schedule(trials, needs, stored)
    with progress("matrix", len(trials), "trials", len(stored)) as bar:
        while not schedule.is_over:
            while processes.has_room() and (number := schedule.next()) is not None:
                processes.start(number, trials[number], runner)
            bar.set_postfix_str(schedule.detail(), refresh=True)
            for ended in processes.ended(POLL_SECONDS):
                schedule.end(*ended)
                bar.update(1)
    schedule.raise_errors()
    return [schedule.done[number] for number in range(len(trials))]


class _Schedule:
    """The waiting, running, finished and failed trials of a matrix."""

    def __init__(
        self, trials: Sequence[Trial], needs: list[list[int]], stored: dict[int, list[Result]]
    ) -> None:
        self.done = stored
        self._trials = trials
        self._needs = needs  # numbers of the trials that each trial fuses
        self._waiting = [number for number in range(len(trials)) if number not in stored]
        self._running: list[int] = []
        self._failed: dict[int, AptoolError] = {}
        self._skipped = 0

    @property
    def is_over(self) -> bool:
        return not self._waiting and not self._running

    def next(self) -> int | None:
        """Start the next trial whose parts are done; return its number, or None if no trial can start."""
        for number in list(self._waiting):
            needs = self._needs[number]
            if any(need in self._failed for need in needs):
                self._waiting.remove(number)
                self._skipped += 1
            elif all(need in self.done for need in needs):
                self._waiting.remove(number)
                self._running.append(number)
                return number
        return None

    def end(self, number: int, outcome: list[Result] | AptoolError) -> None:
        """Record the end of a trial."""
        self._running.remove(number)
        if isinstance(outcome, AptoolError):
            self._failed[number] = outcome
            logger.info(f"failed: {outcome}")
        else:
            self.done[number] = outcome
            for result in outcome:
                name = f"{result.collection}: {result.system}, seed {result.seed}"
                logger.info(f"{name}: {measures_line(result.measures)}")

    def detail(self) -> str:
        """The running trials, for the progress bar."""
        running = [self._trials[number].system.name for number in self._running]
        more = f", {len(running) - 3} more" if len(running) > 3 else ""
        return f"running {', '.join(running[:3])}{more}"

    def raise_errors(self) -> None:
        """Raise the error of the first failed trial, if any."""
        if not self._failed:
            return
        first = self._failed[min(self._failed)]
        missing = len(self._failed) - 1 + self._skipped
        more = f" (and {missing} more without results)" if missing else ""
        raise error_with(first.exit_code, f"{first}{more}; all other trials finished")


class _Worker:
    """A process that runs trials one after the other."""

    def __init__(self, slot: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, remote = context.Pipe()
        self.process = context.Process(target=_main, args=(remote, Path.cwd(), threads, slot), daemon=True)
        self.process.start()
        remote.close()  # so that the connection closes when the process ends
        self.slot = slot
        self.trial: tuple[int, Trial] | None = None  # the running trial and its number; None if idle


def automatic_jobs(device: str) -> int:
    """The number of parallel trials: one per GPU of a device such as ``cuda``, on a CPU one per core."""
    picked = pick_device(device)
    return torch.get_num_threads() if picked.type == "cpu" else len(gpus_like(picked))


class LocalProcesses(Processes):
    """Up to ``number`` processes, started on demand and reused.

    They share torch's threads of this process, and get GPUs in turn.
    """

    def __init__(self, number: int) -> None:
        self._free = list(range(number))
        self._threads = max(1, torch.get_num_threads() // number)
        self._workers: list[_Worker] = []

    def __enter__(self) -> "LocalProcesses":
        return self

    def __exit__(self, *raised: object) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.process.kill()  # training would defer SIGTERM until a checkpoint
        for worker in self._workers:
            worker.process.join()

    @override
    def has_room(self) -> bool:
        return bool(self._free) or any(worker.trial is None for worker in self._workers)

    @override
    def start(self, number: int, trial: Trial, runner: TrialRunner) -> None:
        worker = next((worker for worker in self._workers if worker.trial is None), None)
        if worker is None:
            worker = _Worker(self._free.pop(0), self._threads)
            self._workers.append(worker)
        worker.trial = number, trial
        with contextlib.suppress(OSError):  # an idle process has ended; `ended` reports it
            worker.connection.send((trial, runner))

    @override
    def ended(self, timeout: float) -> list[Ended]:
        busy = {worker.connection: worker for worker in self._workers if worker.trial is not None}
        ended = []
        for connection in multiprocessing.connection.wait(list(busy), timeout):
            worker = busy[connection]  # type: ignore[index]
            assert worker.trial is not None
            number, trial = worker.trial
            try:
                outcome = worker.connection.recv()
            except (EOFError, OSError):
                outcome = self._lost(worker, trial)
            if isinstance(outcome, str):  # the traceback of a bug
                raise RuntimeError(f"{trial}\n{outcome}")
            worker.trial = None
            ended.append(Ended(number, outcome))
        return ended

    def _lost(self, worker: _Worker, trial: Trial) -> AptoolError:
        """The error of a process that ended early, such as by the out-of-memory killer."""
        worker.process.join()
        self._workers.remove(worker)
        self._free.append(worker.slot)
        code = worker.process.exitcode or 0
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return AptoolError(f"{trial}: its process ended early ({reason}); expected enough memory for --jobs")


def _main(connection: Connection, start: Path, threads: int, slot: int) -> None:
    """Run trials until the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chdir(start)  # multiprocessing starts processes in the program's initial folder
    torch.set_num_threads(threads)
    load_plugins()
    while True:
        trial, runner = connection.recv()
        try:
            if pick_device(runner.device) == torch.device("cuda"):
                runner = replace(runner, device=f"cuda:{slot % torch.cuda.device_count()}")
            connection.send(run_trial(trial, runner))
        except Exception:
            connection.send(traceback.format_exc())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
