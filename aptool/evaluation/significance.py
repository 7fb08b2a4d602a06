"""Whether the difference between two systems is significant: confidence intervals and paired tests.

Every function takes one value per question. Random draws come from a seed, so equal input gives equal output.
No result depends on the order of the questions by more than rounding or the random draws, and none depends on
which of the two systems is called the baseline.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Values: TypeAlias = np.ndarray | Sequence[float]

# Of intervals; a test is significant at the level alpha = 1 - CONFIDENCE = 0.05.
CONFIDENCE = 0.95
# 10,000 resamples have five beyond each end of the widest interval. Below the lowest confidence, a difference
# that is likely to be due to chance would be called significant.
LOWEST_CONFIDENCE, HIGHEST_CONFIDENCE = 0.5, 0.999
RESAMPLES = 10_000
PERMUTATIONS = 100_000

# Random numbers held in memory at a time, so that memory does not grow with the number of draws.
_BATCH_VALUES = 1 << 21
# Values are compared relative to the largest one. Mathematically equal values differ by rounding; within this
# tolerance they count as equal.
_DIGITS = 12
_TOLERANCE = 1e-10


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Permutation(NamedTuple):
    """The outcome of a paired permutation test."""

    p: float  # two-sided, in (0, 1]
    exact: bool  # over all sign assignments, not over a sample of them


class TTest(NamedTuple):
    """The outcome of a paired t-test."""

    t: float
    degrees: int  # of freedom
    p: float  # two-sided


class Paired(NamedTuple):
    """A system against a baseline by one measure; differences are system minus baseline."""

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


def bootstrap_interval(
    values: Values, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The BCa bootstrap interval of a mean (Efron, 1987: bias-corrected and accelerated).

    The plain percentile interval is too narrow on the side of the long tail, and ranking measures are skewed:
    most questions score 1 or near 0. BCa corrects for that to second order.

    Args:
        values: (n,) one value per question, n at least 1. If all are equal, the interval has no width: the
            bootstrap cannot draw values that are not in the sample.
        confidence: coverage of the interval, above 0 and at most `HIGHEST_CONFIDENCE`.
        resamples: how many samples of n questions are drawn.
        seed: seed of the draws.

    Raises:
        ValueError: a value is not finite, there is none, or ``confidence`` is out of range.
    """
    return _bca((_column(values),), _mean, confidence, resamples, seed)


def gap_interval(
    first: Values,
    second: Values,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The BCa bootstrap interval of the difference of two means over different questions, second minus first.

    Args:
        first: (n,) one value per question, n at least 2.
        second: (m,) one value per question of another set, such as another split; m at least 2.
        confidence: as in `bootstrap_interval`.
        resamples: how many pairs of samples are drawn.
        seed: seed of the draws.

    Raises:
        ValueError: as `bootstrap_interval`.
    """
    return _bca((_column(first), _column(second)), _difference, confidence, resamples, seed)


def permutation_test(differences: Values, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Permutation:
    """The paired permutation test (Fisher's randomisation test): is the mean difference 0?

    Under the null hypothesis each question's difference is as likely to have the other sign. The p-value is
    the share of all sign assignments whose sum is at least as far from 0 as the observed one. Ties do not
    affect it, and equal differences are counted rather than enumerated: for measures of 0 or 1 such as P_1
    the test is therefore always exact, and is McNemar's exact test.

    Args:
        differences: (n,) one per question, n at least 1.
        permutations: the test is exact if there are at most this many distinct sums; otherwise this many
            assignments are drawn, and the observed one is counted among them (Davison and Hinkley, 1997), so
            that p is never 0.
        seed: seed of the draws.

    Raises:
        ValueError: a difference is not finite, or there is none.
    """
    column = _column(differences)
    sizes = np.abs(column)
    if not sizes.max():
        return Permutation(1.0, True)
    sizes = np.round(sizes / sizes.max(), _DIGITS)
    observed = abs(float((np.sign(column) * sizes).sum()))
    sizes = np.sort(sizes[sizes > 0])  # so that the draws do not depend on the order of the questions
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
    """The paired t-test, two-sided: is the mean difference 0?

    Its p-value assumes normally distributed means, which holds well for hundreds of questions and badly for
    ten. A single question has p = 1; equal differences other than 0 have t = ±inf and p = 0.

    Args:
        differences: (n,) one per question, n at least 1.

    Raises:
        ValueError: a difference is not finite, or there is none.
    """
    from scipy.stats import ttest_1samp

    column = _column(differences)
    degrees = len(column) - 1
    effect = cohens_d(column)
    if effect == 0 or not math.isfinite(effect):
        return TTest(effect, degrees, 0.0 if math.isinf(effect) else 1.0)
    found = ttest_1samp(column, 0.0)
    return TTest(float(found.statistic), degrees, float(found.pvalue))


def cohens_d(differences: Values) -> float:
    """Cohen's d of paired samples: the mean difference in standard deviations of the differences (d_z).

    0 if all differences are 0, ±inf if all are equal but not 0, nan for a single question.
    """
    column = _column(differences)
    if not column.any():
        return 0.0
    if len(column) == 1:
        return math.nan
    mean = math.fsum(column) / len(column)
    if np.ptp(column) <= _TOLERANCE * np.abs(column).max():
        return math.copysign(math.inf, mean)
    return mean / math.sqrt(math.fsum((column - mean) ** 2) / (len(column) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values for multiple tests (Holm, 1979), in the order given.

    Rejecting the hypotheses whose corrected p is at most α keeps the family-wise error rate at most α,
    whatever the dependence among the tests.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def is_significant(p: float, confidence: float = CONFIDENCE) -> bool:
    """Whether a corrected p-value is significant at the level α = 1 - ``confidence``: p at most α."""
    return p <= 1 - confidence


def compare_paired(
    baseline: Values,
    system: Values,
    *,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Paired:
    """Compares two systems by one measure: means, interval, effect size and both tests.

    Args:
        baseline: (n,) the measure of each question, n at least 1.
        system: (n,) the same for the other system, in the same order of questions.
        confidence: coverage of the interval of the mean difference.
        permutations: see `permutation_test`.
        seed: seed of the bootstrap and of the permutations.

    Raises:
        ValueError: the lengths differ, a value is not finite, or there is none.
    """
    before, after = _column(baseline), _column(system)
    if len(before) != len(after):
        raise ValueError(f"{len(before)} and {len(after)} values cannot be paired")
    differences = after - before
    scale = max(np.abs(before).max(), np.abs(after).max())
    differences[np.abs(differences) <= _TOLERANCE * scale] = 0.0
    return Paired(
        questions=len(differences),
        baseline=math.fsum(before) / len(before),
        system=math.fsum(after) / len(after),
        difference=math.fsum(differences) / len(differences),
        interval=bootstrap_interval(differences, confidence=confidence, seed=seed),
        wins=int(np.count_nonzero(differences > 0)),
        ties=int(np.count_nonzero(differences == 0)),
        losses=int(np.count_nonzero(differences < 0)),
        effect=cohens_d(differences),
        permutation=permutation_test(differences, permutations=permutations, seed=seed),
        t_test=t_test(differences),
    )


def _mean(sample: np.ndarray, axis: int) -> Any:
    return sample.mean(axis=axis).round(_DIGITS)


def _difference(first: np.ndarray, second: np.ndarray, axis: int) -> Any:
    return (second.mean(axis=axis) - first.mean(axis=axis)).round(_DIGITS)


def _bca(
    samples: tuple[np.ndarray, ...],
    statistic: Callable[..., Any],
    confidence: float,
    resamples: int,
    seed: int,
) -> Interval:
    """The BCa interval of a statistic of one sample, or of several that are drawn from independently."""
    from scipy.stats import bootstrap

    if not 0 < confidence <= HIGHEST_CONFIDENCE:
        raise ValueError(f"confidence is {confidence}, not above 0 and at most {HIGHEST_CONFIDENCE}")
    # In units of the largest value, means that are equal but for rounding are equal to `_DIGITS` decimals;
    # the bias correction counts how many resampled means equal the sample's.
    unit = max(np.abs(sample).max() for sample in samples) or 1.0
    scaled = tuple(sample / unit for sample in samples)
    if all(np.ptp(sample) <= _TOLERANCE for sample in scaled):
        value = float(statistic(*scaled, axis=-1) * unit)
        return Interval(value, value)
    found = bootstrap(
        scaled,
        statistic,
        n_resamples=resamples,
        batch=max(1, _BATCH_VALUES // max(map(len, samples))),
        vectorized=True,
        confidence_level=confidence,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low * unit), float(found.high * unit))


def _column(values: Values) -> np.ndarray:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or not len(column) or not np.isfinite(column).all():
        raise ValueError(f"{values!r}: expected one finite value per question")
    return column


def _all_sums(groups: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every sum of ±differences, and the share of all sign assignments that give it.

    Of c differences of one size, j are negative in C(c, j) of 2^c assignments.
    """
    sums, shares = np.zeros(1), np.ones(1)
    for size, count in zip(groups.tolist(), counts.tolist(), strict=True):
        own = size * (count - 2 * np.arange(count + 1))
        ways = np.array([math.comb(count, negative) / 2**count for negative in range(count + 1)])
        sums = np.add.outer(sums, own).ravel()
        shares = np.multiply.outer(shares, ways).ravel()
    return sums, shares


def _drawn_sums(sizes: np.ndarray, permutations: int, seed: int) -> Iterator[np.ndarray]:
    """Sums of ±differences with signs drawn at random, ``permutations`` in all, in blocks."""
    generator = np.random.default_rng(seed)
    width = -(-len(sizes) // 8)  # eight signs a byte
    for count in _blocks(permutations, len(sizes)):
        bits = np.frombuffer(generator.bytes(count * width), dtype=np.uint8).reshape(count, width)
        positive = np.unpackbits(bits, axis=1, count=len(sizes))
        yield 2 * (positive @ sizes) - sizes.sum()


def _blocks(total: int, width: int) -> Iterator[int]:
    """Sizes of the batches, of rows of ``width`` values, that add up to ``total`` rows."""
    most = max(1, _BATCH_VALUES // width)
    for start in range(0, total, most):
        yield min(most, total - start)
