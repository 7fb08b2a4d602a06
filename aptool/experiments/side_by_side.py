"""Run trials in parallel processes, on this machine or on a cluster.

A failed trial does not stop other trials; only fusions of its runs are left out.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

import torch
from typing_extensions import override

from aptool.errors import AptoolError, error_with, located
from aptool.experiments.matrix import Trial
from aptool.experiments.trial import Result, TrialRunner
from aptool.models.device import pick_device
from aptool.plugins import load_plugins
from aptool.progress import measures_line, progress

logger = logging.getLogger(__name__)

# Seconds between two polls of the processes.
POLL_SECONDS = 0.3

Outcome: TypeAlias = list[Result] | AptoolError


class Processes(AbstractContextManager[object], Protocol):
    """Processes that run trials, on this machine or on a cluster; a ``with`` block ends them."""

    number: int | None  # of trials at the same time; None for as many as fit

    def submit(self, trial: Trial, runner: TrialRunner) -> "Future[Outcome]":
        """Start a trial."""

    def problem(self, error: BaseException) -> str:
        """Describe the loss of a trial's process; raise any other error."""


def run_trial(trial: Trial, runner: TrialRunner) -> Outcome:
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
    done = {number: runner.run(trial) for number, trial in enumerate(trials) if runner.is_done(trial)}
    numbers = {trial.key: number for number, trial in enumerate(trials)}
    needs = [{numbers[part.key] for part in trial.parts} for trial in trials]
    waiting = [number for number in range(len(trials)) if number not in done]
    running: dict[Future[Outcome], int] = {}
    failed: dict[int, AptoolError] = {}
    with progress("matrix", len(trials), "trials", len(done)) as bar:
        while waiting or running:
            waiting = [number for number in waiting if not needs[number] & failed.keys()]
            for number in [number for number in waiting if needs[number] <= done.keys()]:
                if processes.number is None or len(running) < processes.number:
                    waiting.remove(number)
                    running[processes.submit(trials[number], runner)] = number
            names = ", ".join(trials[number].system.name for number in list(running.values())[:3])
            bar.set_postfix_str(f"{len(running)} running: {names}", refresh=True)
            for future in wait(running, POLL_SECONDS, FIRST_COMPLETED).done:
                number = running.pop(future)
                bar.update(1)
                error = future.exception()
                if error is None:
                    outcome = future.result()
                else:
                    outcome = AptoolError(f"{trials[number]}: {processes.problem(error)}")
                if isinstance(outcome, AptoolError):
                    failed[number] = outcome
                    logger.info(f"failed: {outcome}")
                    continue
                done[number] = outcome
                for result in outcome:
                    name = f"{result.collection}: {result.system}, seed {result.seed}"
                    logger.info(f"{name}: {measures_line(result.measures)}")
    if failed:
        first = failed[min(failed)]
        missing = len(trials) - len(done) - 1
        more = f" (and {missing} more without results)" if missing else ""
        raise error_with(first.exit_code, f"{first}{more}; all other trials finished")
    return [done[number] for number in range(len(trials))]


def automatic_jobs(device: str) -> int:
    """The number of parallel trials: one per GPU of a device such as ``cuda``, on a CPU one per core."""
    picked = pick_device(device)
    if picked.type == "cpu":
        return torch.get_num_threads()
    return torch.cuda.device_count() if picked.index is None else 1


class LocalProcesses(Processes):
    """Up to ``number`` processes, started on demand and reused.

    They share torch's threads of this process, and get GPUs in turn.
    """

    def __init__(self, number: int) -> None:
        self.number: int = number
        self._threads = max(1, torch.get_num_threads() // number)
        self._others = set(multiprocessing.active_children())
        self._open()

    def _open(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self.number, context, _start_worker, (Path.cwd(), self._threads))

    @override
    def __exit__(self, *raised: object) -> None:
        for process in {*multiprocessing.active_children()} - self._others:
            process.kill()  # training would defer SIGTERM until a checkpoint
        self._pool.shutdown(cancel_futures=True)

    @override
    def submit(self, trial: Trial, runner: TrialRunner) -> Future[Outcome]:
        try:
            return self._pool.submit(_run_on_gpu, trial, runner)
        except BrokenProcessPool:  # a killed process ends the others of its pool
            self._open()
            return self._pool.submit(_run_on_gpu, trial, runner)

    @override
    def problem(self, error: BaseException) -> str:
        if isinstance(error, BrokenProcessPool):
            return "its process ended early; expected enough memory for --jobs"
        raise error


def _start_worker(folder: Path, threads: int) -> None:
    """Prepare a process for trials; it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chdir(folder)  # multiprocessing starts processes in the program's initial folder
    torch.set_num_threads(threads)
    load_plugins()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_on_gpu(trial: Trial, runner: TrialRunner) -> Outcome:
    """Run a trial, with one of several GPUs: processes have consecutive numbers."""
    if pick_device(runner.device) == torch.device("cuda"):
        number = int(multiprocessing.current_process().name.rpartition("-")[2])
        runner = replace(runner, device=f"cuda:{number % torch.cuda.device_count()}")
    return run_trial(trial, runner)
