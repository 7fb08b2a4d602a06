"""Power of the paired t-test against published tables and against simulation."""

import numpy as np
import pytest
from scipy import stats

from aptool.evaluation.power import detectable_effect, power


@pytest.mark.parametrize(("effect", "questions"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_sample_sizes_of_the_textbooks(effect, questions):
    # G*Power, difference of two dependent means, two-sided, alpha .05, power .8: 199, 34 and 15 pairs.
    assert power(effect, questions - 1) < 0.8 <= power(effect, questions)


@pytest.mark.parametrize("questions", [5, 34, 243])
def test_the_detectable_effect_has_power_80_percent(questions):
    assert power(detectable_effect(questions), questions) == pytest.approx(0.8, abs=1e-6)


def test_without_an_effect_the_power_is_alpha():
    assert power(0.0, 50, alpha=0.01) == pytest.approx(0.01, abs=1e-9)
    assert power(-0.4, 40) == power(0.4, 40)


def test_simulated_experiments_find_as_often():
    draws = np.random.default_rng(0).normal(0.3, 1, size=(20_000, 60))
    result = (stats.ttest_1samp(draws, 0, axis=1).pvalue <= 0.05).mean()

    assert power(0.3, 60) == pytest.approx(result, abs=0.012)  # four standard errors of the simulation
