"""Whether a difference between two systems is real: intervals and paired tests, question by question.

Everything here takes one value a question and needs no more than numpy. What is drawn at random is drawn
from a seed, so equal input gives equal output; no result depends on the order of the questions by more than
rounding or the luck of the draw, and none on which of the two systems is called the baseline.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np

Values: TypeAlias = np.ndarray | Sequence[float]

CONFIDENCE = 0.95
# With 10,000 resamples, no more than this can be told apart at the ends.
HIGHEST_CONFIDENCE = 0.999
RESAMPLES = 10_000
PERMUTATIONS = 100_000

# Random numbers held at a time, so that memory does not grow with the number of draws.
_AT_ONCE = 1 << 21
# Differences are measured in parts of the largest one. Values equal on paper differ by rounding; closer than
# this they count as equal.
_DIGITS = 12
_ROUNDING = 1e-10
# A bound that is not met in practice: a million degrees of freedom take some hundred terms.
_MOST_TERMS = 1_000_000


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Permutation(NamedTuple):
    """The outcome of a paired permutation test."""

    p: float  # two-sided, in (0, 1]
    exact: bool  # over all assignments of signs, not over a sample of them


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

    The plain percentile interval is too narrow on the side of the long tail, and measures of ranking are
    skewed: most questions score 1 or near 0. BCa corrects for that to second order at no cost, as the
    jackknife values of a mean have a closed form.

    Args:
        values: (n,) one value a question, n at least 1. If all are equal the interval has no width: the
            bootstrap knows nothing of values that it has not seen.
        confidence: the wanted coverage, above 0 and at most `HIGHEST_CONFIDENCE`.
        resamples: how many samples of n questions are drawn.
        seed: of the draws.
    """
    sample = _column(values)
    if not 0 < confidence <= HIGHEST_CONFIDENCE:
        raise ValueError(f"confidence is {confidence}, not above 0 and at most {HIGHEST_CONFIDENCE}")
    if np.ptp(sample) == 0:
        return Interval(float(sample[0]), float(sample[0]))
    mean = sample.mean()
    means = np.concatenate([sample[rows].mean(axis=1) for rows in _resampled(len(sample), resamples, seed)])
    near = np.abs(means - mean) <= _ROUNDING * np.ptp(sample)
    below = (np.count_nonzero((means < mean) & ~near) + np.count_nonzero(near) / 2) / resamples
    normal = NormalDist()
    bias = normal.inv_cdf(min(max(below, 0.5 / resamples), 1 - 0.5 / resamples))
    centred = sample - mean
    acceleration = (centred**3).sum() / (6 * (centred**2).sum() ** 1.5)
    tail = normal.inv_cdf((1 + confidence) / 2)
    shares = [normal.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in (-tail, tail)]
    low, high = np.quantile(means, shares)
    return Interval(float(low), float(high))


def permutation_test(differences: Values, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Permutation:
    """The paired permutation test (Fisher's randomisation test): is the mean difference 0?

    If both systems were one, each question's difference could as well have had the other sign. The p-value
    is the share of all assignments of signs whose sum is as far from 0 as the one seen. Questions that tie
    count for nothing, and equal differences are counted and not enumerated: for measures of 0 or 1 such as
    P_1 the test is therefore always exact, and is McNemar's exact test.

    Args:
        differences: (n,) one a question, n at least 1.
        permutations: where there are no more different sums than this, the test is exact; otherwise so many
            assignments are drawn and the one seen is counted among them (Davison and Hinkley, 1997), so that
            p is never 0.
        seed: of the draws.
    """
    column = _column(differences)
    sizes = np.abs(column)
    if not sizes.max():
        return Permutation(1.0, True)
    sizes = np.round(sizes / sizes.max(), _DIGITS)
    seen = abs(float((np.sign(column) * sizes).sum()))
    sizes = np.sort(sizes[sizes > 0])  # so that the draws do not depend on the order of the questions
    reached = seen - _ROUNDING * sizes.sum()
    groups, counts = np.unique(sizes, return_counts=True)
    if math.prod(int(count) + 1 for count in counts) <= permutations:
        sums, shares = _all_sums(groups, counts)
        p = math.fsum(shares[np.abs(sums) >= reached])
        return Permutation(min(max(p, sys.float_info.min), 1.0), True)
    as_far = sum(
        int(np.count_nonzero(np.abs(sums) >= reached)) for sums in _drawn_sums(sizes, permutations, seed)
    )
    return Permutation((1 + as_far) / (1 + permutations), False)


def t_test(differences: Values) -> TTest:
    """The paired t-test, two-sided: is the mean difference 0?

    Its p-value rests on means being normally distributed, which holds well for hundreds of questions and
    badly for ten. One question gives no p-value but 1; equal differences that are not 0 give t = ±inf.
    """
    column = _column(differences)
    degrees = len(column) - 1
    effect = cohens_d(column)
    if math.isnan(effect):
        return TTest(math.nan, degrees, 1.0)
    t = effect * math.sqrt(len(column))
    return TTest(t, degrees, t_tails(t, degrees))


def cohens_d(differences: Values) -> float:
    """Cohen's d of paired samples: the mean difference in standard deviations of the differences (d_z).

    0 if there is no difference at all, ±inf if all differences are one value but 0, nan for one question.
    """
    column = _column(differences)
    if not column.any():
        return 0.0
    if len(column) == 1:
        return math.nan
    mean = math.fsum(column) / len(column)
    if np.ptp(column) <= _ROUNDING * np.abs(column).max():
        return math.copysign(math.inf, mean)
    return mean / math.sqrt(math.fsum((column - mean) ** 2) / (len(column) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values for there being several (Holm, 1979), in the order given.

    Rejecting what comes out at most α keeps the chance of even one false rejection at most α, whatever the
    dependence among the tests.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for done, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - done) * p_values[index]))
        corrected[index] = highest
    return corrected


def compare_paired(
    baseline: Values,
    system: Values,
    *,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Paired:
    """Everything that is said of two systems by one measure.

    Args:
        baseline: (n,) the measure of each question, n at least 1.
        system: (n,) of the same questions in the same order.
        confidence: of the interval of the mean difference.
        permutations: see `permutation_test`.
        seed: of the interval and of the permutations.
    """
    before, after = _column(baseline), _column(system)
    if len(before) != len(after):
        raise ValueError(f"{len(before)} and {len(after)} values cannot be paired")
    differences = after - before
    scale = max(np.abs(before).max(), np.abs(after).max())
    differences[np.abs(differences) <= _ROUNDING * scale] = 0.0
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


def t_tails(t: float, degrees: float) -> float:
    """How much of Student's t distribution lies beyond ±t.

    This is the regularised incomplete beta function I_x(ν/2, 1/2) at x = ν/(ν + t²) (Abramowitz and Stegun,
    26.5.27), here by its continued fraction (26.5.8), which keeps its relative precision far into the tail.
    """
    if math.isinf(t) or not t:
        return float(not t)
    a, b = degrees / 2, 0.5
    log_x, log_rest = -math.log1p(t * t / degrees), -math.log1p(degrees / t / t)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * log_x + b * log_rest
    x = math.exp(log_x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) / a * _beta_fraction(x, a, b)
    return 1 - math.exp(log_front) / b * _beta_fraction(math.exp(log_rest), b, a)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """1/(1 + d_1/(1 + d_2/(1 + ...))) of the incomplete beta function, by Lentz's method."""
    least = sys.float_info.min
    value = upper = 1.0
    lower = 0.0
    for step in range(1, _MOST_TERMS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / ((1 + term * lower) or least)
        upper = (1 + term / upper) or least
        change = upper * lower
        value *= change
        if abs(change - 1) < 1e-15:
            break
    return 1 / value


def _column(values: Values) -> np.ndarray:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or not len(column) or not np.isfinite(column).all():
        raise ValueError(f"{values!r}: not one finite value a question")
    return column


def _resampled(size: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks of (some, size) rows drawn with replacement, ``resamples`` in all."""
    generator = np.random.default_rng(seed)
    for count in _blocks(resamples, size):
        yield generator.integers(size, size=(count, size), dtype=np.int32)


def _all_sums(groups: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every sum of ±differences, and the share of all assignments of signs that give it.

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
    """How many rows of ``width`` to hold at a time, until ``total`` have been held."""
    most = max(1, _AT_ONCE // width)
    for start in range(0, total, most):
        yield min(most, total - start)
