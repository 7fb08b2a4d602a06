"""Intervals, paired tests and their power, against enumeration, published values and arithmetic by hand."""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptool.evaluation.significance import (
    bootstrap_interval,
    cohens_d,
    compare_paired,
    detectable_effect,
    holm,
    mean_and_sd,
    permutation_test,
    power,
    t_test,
)

# Student (1908): hours of sleep gained by ten patients with the second drug rather than the first.
SLEEP = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]

# Multiples of 1/60, such as reciprocal ranks up to 6 and their differences, exactly.
sixtieths = st.integers(-60, 60).map(lambda number: Fraction(number, 60))
measures = st.integers(0, 60).map(lambda number: number / 60)


def enumerated(differences):
    """The exact share of the sign assignments whose sum is at least as far from 0."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * difference for sign, difference in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return Fraction(sum(total >= observed for total in sums), len(sums))


@given(st.lists(sixtieths, min_size=1, max_size=9))
def test_permutation_test_is_enumeration(differences):
    p, exact = permutation_test([float(difference) for difference in differences])

    assert exact
    assert p == pytest.approx(float(enumerated(differences)), rel=1e-9)


def test_permutation_test_of_hundreds_of_zeros_and_ones_is_mcnemars_exact_test():
    differences = [1.0] * 25 + [-1.0] * 10 + [0.0] * 300

    # 25 or more heads or tails in 35 tosses.
    heads = Fraction(2 * sum(math.comb(35, k) for k in range(25, 36)), 2**35)
    assert permutation_test(differences) == (pytest.approx(float(heads), rel=1e-12), True)


def test_drawn_permutations_approximate_enumeration():
    differences = [(-1) ** (number % 3) * math.sqrt(number + 1) for number in range(12)]
    signs = np.array(list(itertools.product((1, -1), repeat=12)))
    truth = np.mean(np.abs(signs @ np.abs(differences)) >= abs(sum(differences)) - 1e-9)

    drawn = permutation_test(differences, permutations=4000, seed=3)

    assert not drawn.exact
    assert permutation_test(differences, permutations=4096).p == pytest.approx(truth)
    # Four standard errors of a share.
    assert drawn.p == pytest.approx(truth, abs=4 * math.sqrt(truth * (1 - truth) / 4000))


def test_drawn_permutations_depend_on_the_seed_and_not_on_the_order():
    generator = np.random.default_rng(5)
    differences = generator.normal(0.1, 1, 60)

    first = permutation_test(differences, seed=1)

    assert first == permutation_test(generator.permutation(differences), seed=1)
    # With forty different gains, a random draw is as far from 0 with probability 2/2^40: the observed signs
    # are one draw more.
    gains = [1 + number / 100 for number in range(40)]
    assert permutation_test(gains, permutations=999) == (1 / 1000, False)
    assert first.p != permutation_test(differences, seed=2).p
    assert first.p == pytest.approx(permutation_test(differences, seed=2).p, abs=0.01)


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [
        # Two-sided quantiles of Student's t as printed tables have them.
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (2.571, 5, 0.05),
        (2.228, 10, 0.05),
        (2.042, 30, 0.05),
        (1.980, 120, 0.05),
        (63.657, 1, 0.01),
        (3.169, 10, 0.01),
        (4.587, 10, 0.001),
        (3.373, 120, 0.001),
    ],
)
def test_t_test_against_printed_tables(t, degrees, p):
    def p_of(t):
        """The p-value of a sample with that t: values ±1 (and 0), shifted by t standard errors."""
        spread = np.resize([1.0, -1.0], degrees + 1)
        spread[2 * ((degrees + 1) // 2) :] = 0  # an odd one out, so that the mean is 0
        result = t_test(spread + t * spread.std(ddof=1) / math.sqrt(degrees + 1))
        assert result[:2] == (pytest.approx(t), degrees)
        return result.p

    # The tables print t with three decimals.
    assert p_of(t + 0.0005) <= p <= p_of(t - 0.0005)


def test_t_test_of_students_data():
    # As printed with the data in R: t = 4.0621, df = 9, p-value = 0.002833.
    t, degrees, p = t_test(SLEEP)

    assert (round(t, 4), degrees, round(p, 6)) == (4.0621, 9, 0.002833)
    assert cohens_d(SLEEP) == pytest.approx(t / math.sqrt(10))


@pytest.mark.parametrize("sample", [[0.0] * 17 + [1.0, 2.0, 4.0], SLEEP, [1 / (1 + n) for n in range(40)]])
def test_interval_is_bca_by_its_formula(sample):
    """Efron's formula with the closed form of a mean's acceleration, on other draws."""
    values = np.array(sample)
    means = np.random.default_rng(7).choice(values, (40_000, len(values))).mean(axis=1)
    normal = NormalDist()
    ties = np.isclose(means, values.mean(), rtol=1e-12)
    bias = normal.inv_cdf(float(((means < values.mean()) & ~ties).mean() + ties.mean() / 2))
    centred = values - values.mean()
    acceleration = (centred**3).sum() / (6 * (centred**2).sum() ** 1.5)
    shares = [normal.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in (-1.959964, 1.959964)]
    low, high = np.quantile(means, shares)

    # Both are drawn; without bias correction or acceleration the bounds are a tenth of the width off.
    assert bootstrap_interval(sample, resamples=40_000) == pytest.approx((low, high), abs=(high - low) / 40)


def test_all_zero_and_all_equal_differences():
    assert cohens_d([0.0, 0.0]) == 0
    assert t_test([0.0, 0.0]) == (0.0, 1, 1.0)
    assert permutation_test([0.0, 0.0]) == (1.0, True)
    assert cohens_d([-0.1, 0.2 - 0.3]) == -math.inf
    assert t_test([0.5, 0.5, 0.5]) == (math.inf, 2, 0.0)
    assert math.isnan(cohens_d([0.5]))
    assert t_test([0.5]).p == permutation_test([0.5]).p == 1
    # 2 / 2**2000 is below the smallest float.
    assert 0 < permutation_test([1.0] * 2000).p < 1e-300


def test_holm_by_hand():
    # In order: 4 · 0.005, 3 · 0.01, 2 · 0.03, 1 · 0.04 raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9, 0.4]) == [1.0, 1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_interval_of_equal_values_has_no_width():
    assert bootstrap_interval([0.25] * 7) == (0.25, 0.25)
    assert bootstrap_interval([0.5]) == (0.5, 0.5)
    # Differences of 1/3 to 1/2 and of 5/6 to 1, which are both 1/6.
    assert bootstrap_interval([1 / 2 - 1 / 3, 1 - 5 / 6]) == pytest.approx((1 / 6, 1 / 6))


@settings(max_examples=40)
@given(st.lists(st.tuples(measures, measures), min_size=1, max_size=40))
def test_swapping_the_systems_mirrors_everything(pairs):
    first, second = zip(*pairs, strict=True)

    paired, mirrored = compare_paired(first, second), compare_paired(second, first)

    assert 0 < paired.permutation.p <= 1
    assert paired.permutation == mirrored.permutation
    assert paired.t_test.p == pytest.approx(mirrored.t_test.p)
    assert (paired.wins, paired.ties, paired.losses) == (mirrored.losses, mirrored.ties, mirrored.wins)
    assert paired.wins + paired.ties + paired.losses == paired.questions == len(pairs)
    assert paired.wins == sum(after > before for before, after in pairs)
    assert (paired.baseline, paired.system) == (mirrored.system, mirrored.baseline)
    assert paired.difference == pytest.approx(-mirrored.difference)
    assert paired.interval == pytest.approx((-mirrored.interval.high, -mirrored.interval.low), abs=1e-12)
    assert paired.effect == pytest.approx(-mirrored.effect, nan_ok=True)


def test_values_equal_but_for_rounding_tie():
    paired = compare_paired([0.1 + 0.2, 0.5, 1.0], [0.3, 0.5, 0.25])

    assert (paired.wins, paired.ties, paired.losses) == (0, 2, 1)


@pytest.mark.parametrize(("effect", "questions"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_power_at_the_sample_sizes_of_textbooks(effect, questions):
    # G*Power, difference of two dependent means, two-sided, alpha .05, power .8: 199, 34 and 15 pairs.
    assert power(effect, questions - 1) < 0.8 <= power(effect, questions)
    assert power(detectable_effect(questions), questions) == pytest.approx(0.8, abs=1e-6)
    assert power(0.0, questions, alpha=0.01) == pytest.approx(0.01, abs=1e-9)
    assert power(-effect, questions) == power(effect, questions)


def test_mean_and_standard_deviation_by_hand():
    # 0.1, 0.2, 0.6: mean 0.3; squares of the deviations 0.04 + 0.01 + 0.09 = 0.14, halved 0.07.
    spread = mean_and_sd([0.1, 0.6, 0.2])

    assert spread == pytest.approx((0.3, 0.07**0.5))
    assert spread.text(seeds=3) == "0.3000 ± 0.2646"
    assert mean_and_sd([0.4]) == (0.4, 0.0)
    assert mean_and_sd([0.4]).text(seeds=1) == "0.4000"
