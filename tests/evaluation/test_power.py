"""Power of the paired t-test against published tables and against simulation."""

import numpy as np
import pytest
from scipy import stats

from aptool.evaluation.power import detectable_effect, power, questions_needed


def test_the_sample_sizes_of_the_textbooks():
    # G*Power, difference of two dependent means, two-sided, alpha .05, power .8: 199, 34 and 15 pairs.
    assert [questions_needed(effect) for effect in (0.2, 0.5, 0.8)] == [199, 34, 15]


def test_an_effect_and_its_sample_size_belong_together():
    for questions in (5, 34, 243):
        effect = detectable_effect(questions)
        assert power(effect, questions) == pytest.approx(0.8, abs=1e-6)
        assert questions_needed(effect * 1.0001) == questions


def test_without_an_effect_the_power_is_alpha():
    assert power(0.0, 50, alpha=0.01) == pytest.approx(0.01, abs=1e-9)
    assert power(-0.4, 40) == power(0.4, 40)


def test_simulated_experiments_find_as_often():
    draws = np.random.default_rng(0).normal(0.3, 1, size=(20_000, 60))
    found = (stats.ttest_1samp(draws, 0, axis=1).pvalue <= 0.05).mean()

    assert power(0.3, 60) == pytest.approx(found, abs=0.012)  # four standard errors of the simulation


def test_what_cannot_be_asked():
    with pytest.raises(ValueError, match="1 questions"):
        power(0.5, 1)
    with pytest.raises(ValueError, match="effect of 0"):
        questions_needed(0.0)
    with pytest.raises(ValueError, match=r"power 0\.01: expected above alpha"):
        detectable_effect(10, wanted=0.01)
