"""The interface of the systems that score pools."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from aptool.formats.pools import PoolBatch


class System(ABC):
    """Scores every pair of pools in two steps, which may run on different machines."""

    fingerprint: str  # differs between any two systems whose scores may differ
    tag: str  # default tag of its runs: one word
    max_answer_tokens: int | None = None  # longer answers are truncated

    def prepare(self, pools: PoolBatch) -> Any:
        """The input of ``score``; uses little memory and no accelerator."""
        return pools

    @abstractmethod
    def score(self, prepared: Any) -> np.ndarray:
        """(pairs,) float32 finite scores of all pairs, in the order of the pools."""

    def score_reporting(self, prepared: Any, scored: Callable[[int], None]) -> np.ndarray:
        """The scores of ``score``; may call ``scored`` with the number of pairs of each scored block."""
        return self.score(prepared)

    def copies(self, most: int) -> "list[System]":
        """The system on each of at most ``most`` devices that share its work, itself first."""
        return [self]

    def truncated(self, prepared: Any) -> int:
        """Number of truncated answers."""
        return 0

    def describe(self) -> dict[str, Any]:
        """The system as plain values: ``name`` and its settings."""
        return {"name": self.tag}
