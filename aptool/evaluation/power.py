"""Power of the two-sided paired t-test (Cohen, 1988), and mean and standard deviation over seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

ALPHA = 0.05
POWER = 0.8


def power(effect: float, questions: int, alpha: float = ALPHA) -> float:
    """The probability that the paired t-test is significant, by the noncentral t distribution.

    Args:
        effect: the true mean difference in standard deviations of the differences (Cohen's d_z).
        questions: number of pairs, at least 2.
        alpha: level of the test.
    """
    from scipy import stats

    degrees = questions - 1
    critical = stats.t.ppf(1 - alpha / 2, degrees)
    shift = abs(effect) * math.sqrt(questions)
    probability = stats.nct.sf(critical, degrees, shift) + stats.nct.cdf(-critical, degrees, shift)
    return float(min(1.0, probability)) if math.isfinite(probability) else 1.0


def detectable_effect(questions: int, alpha: float = ALPHA) -> float:
    """The smallest effect (Cohen's d_z) that the paired t-test detects with probability ``POWER``."""
    from scipy import optimize

    largest = 1.0
    while power(largest, questions, alpha) < POWER:
        largest *= 2
    root: float = optimize.brentq(lambda effect: power(effect, questions, alpha) - POWER, 0.0, largest)
    return root


class Spread(NamedTuple):
    """A measure over seeds."""

    mean: float
    sd: float  # sample standard deviation (n - 1); 0 for a single seed

    def text(self, seeds: int) -> str:
        """``mean ± sd`` with four decimals; the mean alone for a single seed."""
        return f"{self.mean:.4f} ± {self.sd:.4f}" if seeds > 1 else f"{self.mean:.4f}"


def mean_and_sd(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation of a measure, from one value per seed."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
