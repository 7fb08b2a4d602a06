"""Confidence intervals, paired significance tests and their power, and spread over seeds.

Intervals and tests take one value per question. Random draws come from a seed. The order of the questions
matters only for rounding and for the random draws; swapping the two systems mirrors every result.
"""

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Values: TypeAlias = np.ndarray | Sequence[float]

CONFIDENCE = 0.95  # coverage of intervals
ALPHA = 1 - CONFIDENCE  # tests are significant up to this p-value
POWER = 0.8  # of the power analysis (Cohen, 1988)
RESAMPLES = 10_000
PERMUTATIONS = 100_000

# Random numbers in memory at a time.
_BATCH_VALUES = 1 << 21
# Values within this tolerance, relative to the largest value, count as equal: they differ by rounding.
_DIGITS = 12
_TOLERANCE = 1e-10


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Permutation(NamedTuple):
    """The result of a paired permutation test."""

    p: float  # two-sided, in (0, 1]
    exact: bool  # whether p is over all sign assignments instead of a sample


class TTest(NamedTuple):
    """The result of a paired t-test."""

    t: float
    degrees: int  # of freedom
    p: float  # two-sided


class Paired(NamedTuple):
    """A system compared with a baseline by one measure; differences are system minus baseline."""

    questions: int
    baseline: float  # mean
    system: float  # mean
    difference: float  # mean
    interval: Interval  # of the mean difference
    wins: int
    ties: int
    losses: int
    effect: float  # Cohen's d of the differences
    permutation: Permutation
    t_test: TTest


def bootstrap_interval(values: Values, *, resamples: int = RESAMPLES) -> Interval:
    """The 95% BCa bootstrap interval of a mean (Efron, 1987); BCa suits the skewed values of measures.

    ``values`` is (n,), one value per question; equal values give an interval of width 0.
    """
    from scipy.stats import bootstrap

    column = np.asarray(values, dtype=np.float64)
    # The bias correction counts resampled means equal to the sample mean; scaling makes rounding absolute.
    unit = np.abs(column).max() or 1.0
    scaled = column / unit
    if np.ptp(scaled) <= _TOLERANCE:
        value = float(_mean(scaled, axis=-1) * unit)
        return Interval(value, value)
    interval = bootstrap(
        (scaled,),
        _mean,
        n_resamples=resamples,
        batch=max(1, _BATCH_VALUES // len(scaled)),
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(float(interval.low * unit), float(interval.high * unit))


def permutation_test(differences: Values, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Permutation:
    """The paired permutation test (Fisher's randomization test): is the mean difference 0?

    The p-value is the share of sign assignments whose sum is at least as far from 0 as the observed sum.
    Equal differences are counted, not enumerated; for binary measures, such as P@1, this is McNemar's test.
    The test is exact if there are at most ``permutations`` distinct sums. Otherwise this many sign
    assignments are drawn and the observed one is added (Davison and Hinkley, 1997), so p is never 0.
    """
    column = np.asarray(differences, dtype=np.float64)
    sizes = np.abs(column)
    if not sizes.max():
        return Permutation(1.0, True)
    sizes = np.round(sizes / sizes.max(), _DIGITS)
    observed = abs(float((np.sign(column) * sizes).sum()))
    sizes = np.sort(sizes[sizes > 0])  # makes the draws independent of the order of the questions
    threshold = observed - _TOLERANCE * sizes.sum()
    groups, counts = np.unique(sizes, return_counts=True)
    if math.prod(int(count) + 1 for count in counts) <= permutations:
        sums, shares = _all_sums(groups, counts)
        p = math.fsum(shares[np.abs(sums) >= threshold])
        return Permutation(min(max(p, sys.float_info.min), 1.0), True)
    extreme = sum(
        int(np.count_nonzero(np.abs(sums) >= threshold)) for sums in _drawn_sums(sizes, permutations, seed)
    )
    return Permutation((1 + extreme) / (1 + permutations), False)


def t_test(differences: Values) -> TTest:
    """The two-sided paired t-test: is the mean difference 0?

    One question gives p = 1; equal differences other than 0 give t = ±inf and p = 0.
    """
    from scipy.stats import ttest_1samp

    column = np.asarray(differences, dtype=np.float64)
    degrees = len(column) - 1
    effect = cohens_d(column)
    if effect == 0 or not math.isfinite(effect):
        return TTest(effect, degrees, 0.0 if math.isinf(effect) else 1.0)
    result = ttest_1samp(column, 0.0)
    return TTest(float(result.statistic), degrees, float(result.pvalue))


def cohens_d(differences: Values) -> float:
    """Cohen's d of paired samples (d_z): the mean difference in standard deviations of the differences.

    0 if all differences are 0, ±inf if they are equal but not 0, nan for one question.
    """
    column = np.asarray(differences, dtype=np.float64)
    if not column.any():
        return 0.0
    if len(column) == 1:
        return math.nan
    mean = math.fsum(column) / len(column)
    if np.ptp(column) <= _TOLERANCE * np.abs(column).max():
        return math.copysign(math.inf, mean)
    return mean / math.sqrt(math.fsum((column - mean) ** 2) / (len(column) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values for multiple tests (Holm, 1979), in the given order."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def compare_paired(baseline: Values, system: Values, *, permutations: int = PERMUTATIONS) -> Paired:
    """Compare two systems by one measure, from its (n,) values for the same questions in the same order."""
    before, after = np.asarray(baseline, dtype=np.float64), np.asarray(system, dtype=np.float64)
    differences = after - before
    scale = max(np.abs(before).max(), np.abs(after).max())
    differences[np.abs(differences) <= _TOLERANCE * scale] = 0.0
    return Paired(
        questions=len(differences),
        baseline=math.fsum(before) / len(before),
        system=math.fsum(after) / len(after),
        difference=math.fsum(differences) / len(differences),
        interval=bootstrap_interval(differences),
        wins=int(np.count_nonzero(differences > 0)),
        ties=int(np.count_nonzero(differences == 0)),
        losses=int(np.count_nonzero(differences < 0)),
        effect=cohens_d(differences),
        permutation=permutation_test(differences, permutations=permutations),
        t_test=t_test(differences),
    )


def power(effect: float, questions: int, alpha: float = ALPHA) -> float:
    """The probability that the paired t-test is significant, by the noncentral t distribution.

    ``effect`` is the true mean difference in standard deviations of the differences (Cohen's d_z).
    """
    from scipy import stats

    degrees = questions - 1
    critical = stats.t.ppf(1 - alpha / 2, degrees)
    shift = abs(effect) * math.sqrt(questions)
    probability = stats.nct.sf(critical, degrees, shift) + stats.nct.cdf(-critical, degrees, shift)
    return float(min(1.0, probability)) if math.isfinite(probability) else 1.0


def detectable_effect(questions: int) -> float:
    """The smallest effect (Cohen's d_z) that the paired t-test detects with probability ``POWER``."""
    from scipy import optimize

    largest = 1.0
    while power(largest, questions) < POWER:
        largest *= 2
    root: float = optimize.brentq(lambda effect: power(effect, questions) - POWER, 0.0, largest)
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


def _mean(sample: np.ndarray, axis: int) -> Any:
    return sample.mean(axis=axis).round(_DIGITS)


def _all_sums(groups: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every sum of ±differences, and its share of the sign assignments.

    Of c differences of one size, j are negative in C(c, j) of 2^c assignments.
    """
    sums, shares = np.zeros(1), np.ones(1)
    for size, count in zip(groups.tolist(), counts.tolist(), strict=True):
        partial_sums = size * (count - 2 * np.arange(count + 1))
        ways = np.array([math.comb(count, negative) / 2**count for negative in range(count + 1)])
        sums = np.add.outer(sums, partial_sums).ravel()
        shares = np.multiply.outer(shares, ways).ravel()
    return sums, shares


def _drawn_sums(sizes: np.ndarray, permutations: int, seed: int) -> Iterator[np.ndarray]:
    """``permutations`` sums of ±differences with random signs, in batches."""
    generator = np.random.default_rng(seed)
    width = -(-len(sizes) // 8)  # eight signs per byte
    most = max(1, _BATCH_VALUES // len(sizes))
    for start in range(0, permutations, most):
        count = min(most, permutations - start)
        bits = np.frombuffer(generator.bytes(count * width), dtype=np.uint8).reshape(count, width)
        positive = np.unpackbits(bits, axis=1, count=len(sizes))
        yield 2 * (positive @ sizes) - sizes.sum()
