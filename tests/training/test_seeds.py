"""Several seeds of a recipe: mean and standard deviation, and the best seed."""

import pytest

from aptool.training.fit import Fit, summarize


def made(map_, mrr):
    return Fit(2, {"MAP": map_, "MRR": mrr}, [{}, {}], 10, 5, 0.1)


def test_mean_and_standard_deviation_by_hand():
    # 0.1, 0.2, 0.6: mean 0.3; squares of the deviations 0.04 + 0.01 + 0.09 = 0.14, halved 0.07.
    summary = summarize({4: made(0.1, 0.5), 5: made(0.6, 0.7), 6: made(0.2, 0.9)}, "MAP")

    assert summary.measures["MAP"] == pytest.approx((0.3, 0.07**0.5))
    assert summary.best == 5
    assert summarize(summary.fits, "MRR").best == 6


def test_one_seed_has_no_spread():
    assert summarize({0: made(0.4, 0.5)}, "MAP").measures["MAP"] == (0.4, 0.0)


def test_the_first_of_equal_seeds_is_the_best():
    assert summarize({0: made(0.3, 0.5), 1: made(0.4, 0.5), 2: made(0.4, 0.6)}, "MAP").best == 1
