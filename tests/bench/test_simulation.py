"""The simulation of clusters, for cases that can be computed by hand."""

import math

from bench.simulation import Costs, Scenario, new_answers, simulate

# A unit of 100 pairs takes 1 s of scoring; other costs are 0.
PLAIN = Costs(
    pair=0.01, answer=0.0, unit=0.0, start=5.0, driver=0.0, merge=0.0, pair_read=0, pair_written=0, spread=0.0
)


def seconds(costs=PLAIN, **scenario):
    usual = {"pairs": 800, "pairs_in_unit": 100, "answers": 0, "workers": 2}
    return simulate(costs, Scenario(**usual | scenario)).seconds


def test_units_are_divided_among_workers():
    """Eight units of a second: 8, 4 and 2 s on 1, 2 and 4 workers, after 5 s; three workers need 3 rounds."""
    assert seconds(workers=1) == 13
    assert seconds(workers=2) == 9
    assert seconds(workers=4) == 7
    assert seconds(workers=3) == 8
    # More workers than units change nothing.
    assert seconds(workers=8) == seconds(workers=100) == 6


def test_driver_hands_out_one_unit_after_another():
    """The driver takes 1 s per unit: 8 s for eight units, and 1 s to score the last unit."""
    costs = Costs(**{**vars(PLAIN), "driver": 1.0})

    assert seconds(costs, workers=4) == 5 + 8 + 1
    assert math.isclose(simulate(costs, Scenario(800, 100, 0, 4)).driver, 8 / 14)


def test_storage_bandwidth_is_shared():
    """800 pairs with 2 bytes each take 16 s at 100 bytes per second, for any number of workers."""
    costs = Costs(**{**vars(PLAIN), "pair": 0.0, "pair_read": 1, "pair_written": 1, "storage": 100.0})
    simulated = simulate(costs, Scenario(800, 100, 0, 100, merged_by_driver=False))

    assert simulated.seconds == 5 + 16


def test_merge_comes_last():
    """800 pairs of 2 bytes at one second per byte."""
    costs = Costs(**{**vars(PLAIN), "merge": 1.0, "pair_written": 2, "storage": 1e12})

    assert math.isclose(seconds(costs, workers=2), 9 + 1600, rel_tol=1e-9)
    assert math.isclose(seconds(costs, workers=2, merged_by_driver=False), 9, rel_tol=1e-9)


def test_each_answer_is_new_to_a_worker_once():
    assert math.isclose(new_answers(50, 0, 1e9), 50)
    assert math.isclose(new_answers(50, 1e9, 1e9), 0, abs_tol=1e-9)
    # Two halves have as many new answers as the whole.
    assert math.isclose(new_answers(50, 0, 30) + new_answers(50, 30, 30), new_answers(50, 0, 60))
    assert new_answers(math.inf, 123, 30) == 30


def test_failures_cost_time_but_no_unit():
    simulated = simulate(PLAIN, Scenario(80_000, 100, 0, 4, failures=360.0))

    assert simulated.lost > 0
    assert simulated.seconds > simulate(PLAIN, Scenario(80_000, 100, 0, 4)).seconds
