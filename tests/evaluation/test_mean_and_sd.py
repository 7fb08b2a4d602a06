"""Mean and standard deviation over seeds, by hand."""

import pytest

from aptool.evaluation.power import mean_and_sd


def test_mean_and_standard_deviation_by_hand():
    # 0.1, 0.2, 0.6: mean 0.3; squares of the deviations 0.04 + 0.01 + 0.09 = 0.14, halved 0.07.
    spread = mean_and_sd([0.1, 0.6, 0.2])

    assert spread == pytest.approx((0.3, 0.07**0.5))
    assert spread.text(seeds=3) == "0.3000 ± 0.2646"


def test_one_seed_has_no_deviation():
    assert mean_and_sd([0.4]) == (0.4, 0.0)
    assert mean_and_sd([0.4]).text(seeds=1) == "0.4000"
