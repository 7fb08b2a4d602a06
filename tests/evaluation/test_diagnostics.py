"""Upper bounds and agreement of runs: by hand and by their definitions."""

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptool.evaluation.diagnostics import (
    Agreement,
    agreement,
    candidate_limits,
    mean_agreement,
    pairwise,
    rank_biased_overlap,
)
from aptool.evaluation.measures import evaluate

QRELS = pl.DataFrame(
    [("q1", "a", 2), ("q1", "b", 0), ("q1", "c", 1), ("q1", "z", 3), ("q1", "n", -1), ("q2", "z", 1)],
    schema=["question_id", "answer_id", "relevance"],
    orient="row",
)


def run_of(**orders):
    """A run that has the letters of each question in this order."""
    rows = [(q, answer, -float(rank)) for q, order in orders.items() for rank, answer in enumerate(order)]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


def table_of(**values):
    return pl.DataFrame({"question_id": list(values), "AP": list(values.values())})


def test_limits_by_hand():
    run = run_of(q1="nxbca")
    result = candidate_limits(QRELS, run, ["AP", "RR@2", "P@3", "Judged@3"])
    at_2 = candidate_limits(QRELS, run, ["AP", "P@3"], level=2)

    # Best: a, c, b. Of the relevant a, c and z of q1 the candidates lack z; q2 has none.
    assert (result.questions, result.without) == (2, 1)
    assert result.recall == pytest.approx(2 / 3 / 2)
    assert result.best == pytest.approx(
        {"MAP": 2 / 3 / 2, "MRR@2": 1 / 2, "P@3": 2 / 3 / 2, "Judged@3": 1 / 2}
    )
    assert (at_2.questions, at_2.without, at_2.recall) == (1, 0, 1 / 2 / 2)
    assert at_2.best == pytest.approx({"MAP": 1 / 2 / 2, "P@3": 1 / 3 / 2})


def test_no_order_exceeds_the_limits():
    names = ["AP", "RR@2", "nDCG", "nDCG@2", "P@2", "RBP(p=.8)", "Rprec", "Judged@2", "Bpref"]
    best = candidate_limits(QRELS, run_of(q1="abcnx"), names).best

    means = [evaluate(QRELS, run_of(q1=order), names).means for order in itertools.permutations("abcnx")]

    assert len(best) == len(names)
    assert best == pytest.approx({name: max(values[name] for values in means) for name in best})


def test_agreement_by_hand():
    first, second = run_of(q1="abc", q2="ab", q3="a", x="ab"), run_of(q1="bac", q2="ab", q4="a", x="ba")
    tables = table_of(q1=1.0, q2=0.5, q3=0.5, q4=0.0), table_of(q1=0.5, q2=0.5, q3=0.0, q4=1.0)

    result = agreement((first, second), tables, "AP")

    # q1: two pairs in the same order, one reversed. q2: equal. x is not judged; q3, q4: in one run only.
    assert result.tau == pytest.approx((1 / 3 + 1) / 2)
    # q1: shares 0, 1 and 1; the share at the last rank has the weight .9 ** 3 of all later ranks.
    of_q1 = 0.9**3 + (0.1 / 0.9) * (0.9**2 + 0.9**3)
    assert result.overlap == pytest.approx((of_q1 + 1) / 2)
    # Deviations (.5, 0, 0, -.5) and (0, 0, -.5, .5): -.25 / sqrt(.5 * .5).
    assert result.correlation == pytest.approx(-0.5)


@given(st.permutations(range(8)))
def test_agreement_follows_the_definitions(order):
    other_ranks = np.argsort(order) + 1
    ranks = np.arange(1, 9)
    # The infinite sum of the definition: both rankings have all candidates from rank 8 on.
    shares = [len(set(range(d)) & set(order[:d])) / d for d in range(1, 9)]
    overlap = (1 - 0.9) * sum(0.9 ** (d - 1) * (shares[d - 1] if d <= 8 else 1.0) for d in range(1, 500))
    pairs = list(itertools.combinations(range(8), 2))
    tau = sum(1 if other_ranks[i] < other_ranks[j] else -1 for i, j in pairs) / len(pairs)

    letters = "abcdefgh"
    runs = run_of(q=letters), run_of(q="".join(letters[i] for i in order))
    table = table_of(q=1.0)

    assert rank_biased_overlap(ranks, other_ranks, 8) == pytest.approx(overlap)
    assert agreement(runs, (table, table), "AP").tau == pytest.approx(tau)


def test_agreement_of_equal_and_of_disjoint_runs():
    table = table_of(q1=1.0, q2=0.0)
    run, other = run_of(q1="abc", q2="ab"), run_of(q1="xyz", q2="uv")

    assert agreement((run, run), (table, table), "AP") == pytest.approx((1, 1, 1))
    assert agreement((run, other), (table, table), "AP") == (None, 0.0, pytest.approx(1))
    assert agreement((run, run_of(q3="a")), (table, table_of(q1=1.0, q2=1.0)), "AP") == (None, None, None)


def test_every_pair_and_their_mean():
    runs = {"a": run_of(q="ab"), "b": run_of(q="ba"), "c": run_of(q="ab")}
    result = pairwise(runs, dict.fromkeys(runs, table_of(q=1.0)), "AP")

    assert {pair: pair_agreement.tau for pair, pair_agreement in result.items()} == {
        ("a", "b"): -1,
        ("a", "c"): 1,
        ("b", "c"): -1,
    }
    assert mean_agreement(result.values()).tau == pytest.approx(-1 / 3)
    assert mean_agreement([Agreement(None, 0.5, None), Agreement(1.0, 0.0, None)]) == (1.0, 0.25, None)
