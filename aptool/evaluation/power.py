"""Power: how large a difference the questions at hand could show, before anyone looks for one.

A test that finds nothing says little where only a large difference could have been found. The figures are
those of the two-sided paired t-test, by the noncentral t distribution (Cohen, 1988).
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

ALPHA = 0.05
POWER = 0.8


def power(effect: float, questions: int, alpha: float = ALPHA) -> float:
    """The probability that the paired t-test finds a difference.

    Args:
        effect: the true mean difference in standard deviations of the differences (Cohen's d_z).
        questions: how many pairs; at least 2.
        alpha: level of the test.

    Raises:
        ValueError: there are fewer than two questions, or alpha is no probability.
    """
    from scipy import stats

    if questions < 2 or not 0 < alpha < 1:
        raise ValueError(f"{questions} questions, alpha {alpha}: expected at least 2, and between 0 and 1")
    degrees = questions - 1
    critical = stats.t.ppf(1 - alpha / 2, degrees)
    shift = abs(effect) * math.sqrt(questions)
    found = stats.nct.sf(critical, degrees, shift) + stats.nct.cdf(-critical, degrees, shift)
    return float(min(1.0, found)) if math.isfinite(found) else 1.0


def detectable_effect(questions: int, alpha: float = ALPHA, wanted: float = POWER) -> float:
    """The smallest effect that the paired t-test finds with probability ``wanted``.

    Returns:
        Cohen's d_z; times the standard deviation of the differences it is a difference of means.

    Raises:
        ValueError: as ``power``; or ``wanted`` is not above alpha and below 1.
    """
    from scipy import optimize

    if not alpha < wanted < 1:
        raise ValueError(f"power {wanted}: expected above alpha ({alpha}) and below 1")
    largest = 1.0
    while power(largest, questions, alpha) < wanted:
        largest *= 2
    root: float = optimize.brentq(lambda effect: power(effect, questions, alpha) - wanted, 0.0, largest)
    return root


def questions_needed(effect: float, alpha: float = ALPHA, wanted: float = POWER) -> int:
    """How many questions the paired t-test needs to find an effect with probability ``wanted``.

    Raises:
        ValueError: the effect is 0, which no number of questions can show.
    """
    if not effect:
        raise ValueError("an effect of 0 cannot be found")
    few, many = 1, 2
    while power(effect, many, alpha) < wanted:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if power(effect, middle, alpha) >= wanted else (middle, many)
    return many


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
