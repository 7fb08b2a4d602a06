"""Processes of this machine that run trials of a matrix side by side."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from aptool.experiments.plan import Trial
from aptool.experiments.side_by_side import Event, run_trial
from aptool.experiments.trial import TrialRunner
from aptool.models.device import pick_device
from aptool.plugins import load_plugins
from aptool.relay import WorkerError


class _Worker:
    """A process that runs one trial after the other."""

    def __init__(self, slot: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_main, args=(there, Path.cwd(), threads, slot), daemon=True)
        self.process.start()
        there.close()  # so that the end of the process is the end of the connection
        self.slot = slot
        self.trial: tuple[int, Trial] | None = None  # with its number; None while it has nothing to do


class LocalProcesses:
    """At most N processes at a time, started as they are needed and kept for further trials.

    The threads that torch has in this process are shared out among them, and the GPUs dealt out in turn.
    """

    def __init__(self, number: int) -> None:
        """Prepares N slots."""
        self._free = list(range(number))
        self._threads = max(1, torch.get_num_threads() // number)
        self._workers: list[_Worker] = []

    def __enter__(self) -> "LocalProcesses":
        return self

    def __exit__(self, *raised: object) -> None:
        """Ends all processes."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()

    def has_room(self) -> bool:
        """See ``Processes.has_room``."""
        return bool(self._free) or any(worker.trial is None for worker in self._workers)

    def start(self, number: int, trial: Trial, runner: TrialRunner) -> None:
        """See ``Processes.start``."""
        worker = next((worker for worker in self._workers if worker.trial is None), None)
        if worker is None:
            worker = _Worker(self._free.pop(0), self._threads)
            self._workers.append(worker)
        worker.trial = number, trial
        with contextlib.suppress(OSError):  # it has ended while it had nothing to do; ``events`` notices
            worker.connection.send((trial, runner))

    def events(self, timeout: float) -> list[Event]:
        """See ``Processes.events``."""
        busy = {worker.connection: worker for worker in self._workers if worker.trial is not None}
        found = []
        for connection in multiprocessing.connection.wait(list(busy), timeout):
            worker = busy[connection]  # type: ignore[index]
            assert worker.trial is not None
            number, trial = worker.trial
            try:
                kind, value = worker.connection.recv()
            except (EOFError, OSError):
                kind, value = "error", self._lost(worker, trial)
            if kind == "fault":
                raise RuntimeError(f"{trial}\n{value}")
            if kind in ("results", "error"):
                worker.trial = None
            found.append(Event(number, kind, value))
        return found

    def _lost(self, worker: _Worker, trial: Trial) -> WorkerError:
        """The error of a process that ended early, such as one that was killed for its memory."""
        worker.process.join()
        self._workers.remove(worker)
        self._free.append(worker.slot)
        code = worker.process.exitcode or 0
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        line = f"{trial}: its process was lost ({reason}): expected memory for so many --jobs"
        return WorkerError(1, line)


def _main(connection: Connection, start: Path, threads: int, slot: int) -> None:
    """Runs trials as they come, until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chdir(start)  # multiprocessing starts processes in the folder that the program was started in
    torch.set_num_threads(threads)
    load_plugins()
    lock = threading.Lock()

    def post(kind: str, value: Any) -> None:
        with lock:
            connection.send((kind, value))

    while True:
        trial, runner = connection.recv()
        try:
            if pick_device(runner.device) == torch.device("cuda"):
                runner = replace(runner, device=f"cuda:{slot % torch.cuda.device_count()}")
            post(*run_trial(trial, runner, post))
        except Exception:
            post("fault", traceback.format_exc())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
