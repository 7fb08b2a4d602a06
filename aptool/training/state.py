"""The state of a training: all that resuming needs, after an epoch or after some updates of one.

What an epoch samples follows from the seed and its number. Within an epoch the generators have moved on, so a
state there holds theirs too, and the rows that were sampled and mined but not yet trained on.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.training.process_group import ProcessGroup


class EpochState(NamedTuple):
    """The state within an epoch, after some of its updates.

    Attributes:
        pairs: number of (question, positive answer) pairs that were trained on.
        updates: number of updates.
        losses: sum of the pairs' losses, and the number of nonzero ones.
        train_seconds: duration so far.
        mining_seconds: of which mining took.
        sampling: the state of the generator of negatives.
        sampled: (n, 2 + k) question, positive and mined negatives of the next pairs, perhaps none.
        dropout: the states of torch's generators of each process: of the CPU and, on a GPU, of that too.
    """

    pairs: int
    updates: int
    losses: tuple[float, float]
    train_seconds: float
    mining_seconds: float
    sampling: Mapping[str, Any]
    sampled: Tensor
    dropout: list[list[Tensor]]


class TrainingState(NamedTuple):
    """The state after an epoch, or within the next one.

    Attributes:
        history: one entry a complete epoch.
        best_epoch: the epoch with the best dev figure, 0 before the first; with ``average_epochs``, the last.
        weights: the current state dict.
        best_weights: the state dict of the best epoch, or the average of the last epochs so far.
        optimizers: the state dict of each optimizer.
        within: the state within the epoch after the last of ``history``; None before its first update.
    """

    history: list[dict[str, Any]]
    best_epoch: int
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]
    within: EpochState | None = None


class CheckpointTimer:
    """Says when the next state within an epoch is due.

    Args:
        minutes: between two states; 0 is never.
    """

    def __init__(self, minutes: float) -> None:
        self._seconds = 60 * minutes
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether so many minutes have passed since the last state."""
        return 0 < self._seconds <= time.monotonic() - self._since

    def restart(self) -> None:
        """A state has just been saved."""
        self._since = time.monotonic()


def seed_dropout(*facts: int) -> None:
    """Seeds dropout from these numbers only (seed, epoch, rank), so that a resumed epoch repeats it."""
    torch.manual_seed(int(np.random.SeedSequence(facts).generate_state(1, np.uint64)[0] >> 1))


def dropout_states(group: ProcessGroup, device: torch.device) -> list[list[Tensor]]:
    """The states of torch's generators of each process of a group."""
    own = [torch.get_rng_state()]
    if device.type == "cuda":
        own.append(torch.cuda.get_rng_state(device))
    return group.gather(own)


def restore_dropout(states: list[Tensor], device: torch.device) -> None:
    """Sets torch's generators of this process."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
