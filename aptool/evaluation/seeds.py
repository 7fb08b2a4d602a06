"""Mean and standard deviation of a measure over training seeds."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """A measure over seeds.

    Attributes:
        mean: mean over all seeds.
        sd: sample standard deviation (n - 1); 0 for a single seed.
    """

    mean: float
    sd: float

    def text(self, seeds: int) -> str:
        """``mean ± sd`` with four decimals; the mean alone for a single seed."""
        return f"{self.mean:.4f} ± {self.sd:.4f}" if seeds > 1 else f"{self.mean:.4f}"


def mean_and_sd(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation of a measure, from one value per seed.

    Raises:
        statistics.StatisticsError: there is no value.
    """
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
