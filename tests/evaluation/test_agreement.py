"""Agreement of two runs: by hand, by the definitions, and where it is known beforehand."""

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptool.evaluation.agreement import Agreement, agreement, mean_agreement, pairwise, rank_biased_overlap


def run_of(**orders):
    """A run that has the letters of each question in this order."""
    rows = [(q, answer, -float(place)) for q, order in orders.items() for place, answer in enumerate(order)]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


def figures(**values):
    return pl.DataFrame({"question_id": list(values), "AP": list(values.values())})


def test_by_hand():
    first, second = run_of(q1="abc", q2="ab", q3="a", x="ab"), run_of(q1="bac", q2="ab", q4="a", x="ba")
    tables = figures(q1=1.0, q2=0.5, q3=0.5, q4=0.0), figures(q1=0.5, q2=0.5, q3=0.0, q4=1.0)

    result = agreement((first, second), tables, "AP")

    # q1: two pairs in the same order, one in the other; q2 alike; x is not judged; q3 and q4 are in one only.
    assert result.tau == pytest.approx((1 / 3 + 1) / 2)
    # q1: shares 0, 1 and 1; what is common of three ranks weighs .9 ** 3 to the end.
    of_q1 = 0.9**3 + (0.1 / 0.9) * (0.9**2 + 0.9**3)
    assert result.overlap == pytest.approx((of_q1 + 1) / 2)
    # Deviations (.5, 0, 0, -.5) and (0, 0, -.5, .5): -.25 / sqrt(.5 * .5).
    assert result.correlation == pytest.approx(-0.5)


@given(st.permutations(range(8)))
def test_definitions(order):
    places = np.argsort(order) + 1
    ranks = np.arange(1, 9)
    # The infinite sum of the definition: both have all candidates from rank 8 on.
    shares = [len(set(range(d)) & set(order[:d])) / d for d in range(1, 9)]
    overlap = (1 - 0.9) * sum(0.9 ** (d - 1) * (shares[d - 1] if d <= 8 else 1.0) for d in range(1, 500))
    pairs = list(itertools.combinations(range(8), 2))
    tau = sum(1 if places[i] < places[j] else -1 for i, j in pairs) / len(pairs)

    letters = "abcdefgh"
    runs = run_of(q=letters), run_of(q="".join(letters[i] for i in order))
    table = figures(q=1.0)

    assert rank_biased_overlap(ranks, places, 8) == pytest.approx(overlap)
    assert agreement(runs, (table, table), "AP").tau == pytest.approx(tau)


def test_the_same_ranking_and_runs_with_nothing_in_common():
    table = figures(q1=1.0, q2=0.0)
    run, other = run_of(q1="abc", q2="ab"), run_of(q1="xyz", q2="uv")

    assert agreement((run, run), (table, table), "AP") == pytest.approx((1, 1, 1))
    assert agreement((run, other), (table, table), "AP") == (None, 0.0, pytest.approx(1))
    assert agreement((run, run_of(q3="a")), (table, figures(q1=1.0, q2=1.0)), "AP") == (None, None, None)


def test_every_pair_and_their_mean():
    runs = {"a": run_of(q="ab"), "b": run_of(q="ba"), "c": run_of(q="ab")}
    result = pairwise(runs, dict.fromkeys(runs, figures(q=1.0)), "AP")

    assert {pair: pair_agreement.tau for pair, pair_agreement in result.items()} == {
        ("a", "b"): -1,
        ("a", "c"): 1,
        ("b", "c"): -1,
    }
    assert mean_agreement(result.values()).tau == pytest.approx(-1 / 3)
    assert mean_agreement([Agreement(None, 0.5, None), Agreement(1.0, 0.0, None)]) == (1.0, 0.25, None)
