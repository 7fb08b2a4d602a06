"""Figures of one system over several seeds: what of a figure is the system, and what is chance."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """A measure over seeds.

    Attributes:
        mean: over all seeds.
        sd: standard deviation of a sample (n - 1); 0 of a single seed.
    """

    mean: float
    sd: float

    def text(self, seeds: int) -> str:
        """``mean ± sd`` with four decimals; of a single seed the figure alone."""
        return f"{self.mean:.4f} ± {self.sd:.4f}" if seeds > 1 else f"{self.mean:.4f}"


def mean_and_sd(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation of a measure's values, one for each seed.

    Raises:
        statistics.StatisticsError: there is no value.
    """
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
