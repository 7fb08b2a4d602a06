"""The state of a training, from which it resumes, after an epoch or within an epoch."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.models.device import seed_generators
from aptool.training.process_group import ProcessGroup

# Seconds between two questions to the cluster whether a machine is about to be taken away.
NOTICE_SECONDS = 5.0


class EpochState(NamedTuple):
    """The state within an epoch, after some of its updates."""

    pairs: int  # pairs trained on
    updates: int
    losses: tuple[float, float]  # sum of the pairs' losses, and the number of nonzero losses
    train_seconds: float
    mining_seconds: float  # part of train_seconds
    sampling: Mapping[str, Any]  # state of the generator of negatives
    sampled: Tensor  # (n, 2 + k) question, positive and mined negatives of the next pairs
    dropout: list[list[Tensor]]  # per process: the states of torch's generators, CPU then GPU


class TrainingState(NamedTuple):
    """The state after an epoch, or within an epoch."""

    history: list[dict[str, Any]]  # one entry per complete epoch
    best_epoch: int  # 0 before the first epoch; with ``average_epochs``, the last epoch
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]  # of the best epoch, or the average of the last epochs so far
    optimizers: list[dict[str, Any]]  # state dicts
    within: EpochState | None = None  # state within the epoch after ``history``; None before its first update


class _Requests(NamedTuple):
    """The requests of process 0 after an update."""

    checkpoint: bool  # save a checkpoint
    poll: bool  # ask the cluster for a notice of preemption, which all processes do together


class CheckpointTimer:
    """When a checkpoint within an epoch is due: after an interval, on SIGTERM and on a notice of preemption.

    All processes call ``is_due`` after the same updates. An interval of 0 minutes is never.
    """

    def __init__(self, minutes: float, is_preempted: Callable[[], bool] | None = None) -> None:
        self._seconds = 60 * minutes
        self._is_preempted = is_preempted
        self._last_poll = time.monotonic()
        self._is_terminated = False
        self.restart()

    def is_due(self, group: ProcessGroup) -> bool:
        """Whether a checkpoint is due, the same in all processes."""
        requests: _Requests = group.broadcast(self._requests())
        if requests.poll and self._is_preempted is not None:
            self._last_poll = time.monotonic()
            return self._is_preempted() or requests.checkpoint
        return requests.checkpoint

    def _requests(self) -> _Requests:
        now = time.monotonic()
        checkpoint = self._is_terminated or 0 < self._seconds <= now - self._start
        return _Requests(checkpoint, poll=now - self._last_poll >= NOTICE_SECONDS)

    def restart(self) -> None:
        """Start the next interval."""
        self._start = time.monotonic()

    @contextlib.contextmanager
    def deferring_termination(self) -> Iterator[None]:
        """Defer a first SIGTERM until ``terminate`` or the end of the block; a second one acts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._handler = signal.getsignal(signal.SIGTERM)

        def defer(number: int, frame: FrameType | None) -> None:
            self._is_terminated = True
            signal.signal(signal.SIGTERM, self._handler)

        signal.signal(signal.SIGTERM, defer)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, self._handler)
            self.terminate()

    def terminate(self) -> None:
        """Act on a deferred SIGTERM, as the process would have without ``deferring_termination``."""
        if self._is_terminated:
            self._is_terminated = False
            signal.raise_signal(signal.SIGTERM)


def seed_dropout(device: torch.device, *entropy: int) -> None:
    """Seed dropout from (seed, epoch, rank) only, so that a resumed epoch repeats it."""
    seed_generators(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1), device)


def dropout_states(group: ProcessGroup, device: torch.device) -> list[list[Tensor]]:
    """Return the states of torch's generators in each process."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return group.gather(states)


def restore_dropout(states: list[Tensor], device: torch.device) -> None:
    """Set torch's generators in this process."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
