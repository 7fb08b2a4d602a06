"""Batches of units of decreasing size."""

import pytest


@pytest.fixture
def score():
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from aptool.cluster import score

    return score


def test_batches_start_with_the_largest_units_and_shrink(score):
    """Of 80 pairs, two workers get an eighth at a time: 10, then 8, ..."""
    pairs = [1] * 10 + [30] + [2] * 20

    batches = score.batches_of(pairs, 2)

    assert batches[0] == [10]  # more than a share
    assert [sum(pairs[number] for number in batch) for batch in batches[1:5]] == [6, 4, 4, 4]
    assert [len(batch) for batch in batches[-3:]] == [1, 1, 1]
    assert sorted(number for batch in batches for number in batch) == list(range(len(pairs)))


def test_batches_have_a_maximum_of_units(score):
    assert {len(batch) for batch in score.batches_of([1] * 10_000, 1)[:9]} == {score.MOST_UNITS}
    # 2,000 units for two workers: few rows, because the driver has a fixed cost per row.
    assert len(score.batches_of([5_000] * 2_000, 2)) < 100
