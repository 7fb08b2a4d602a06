"""The state of a training, from which it resumes, after an epoch or within an epoch."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.training.process_group import ProcessGroup


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


class CheckpointTimer:
    """The time until the next checkpoint within an epoch; 0 minutes is never."""

    def __init__(self, minutes: float) -> None:
        self._seconds = 60 * minutes
        self.restart()

    @property
    def due(self) -> bool:
        """Whether the interval has passed since the last checkpoint."""
        return 0 < self._seconds <= time.monotonic() - self._start

    def restart(self) -> None:
        """Start the next interval."""
        self._start = time.monotonic()


def seed_dropout(*entropy: int) -> None:
    """Seed dropout from (seed, epoch, rank) only, so that a resumed epoch repeats it."""
    torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1))


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
