"""Upper bounds of runs: by hand and by their definition."""

import itertools

import polars as pl
import pytest

from aptool.evaluation.measures import candidate_limits, evaluate_frames

QRELS = pl.DataFrame(
    [("q1", "a", 2), ("q1", "b", 0), ("q1", "c", 1), ("q1", "z", 3), ("q1", "n", -1), ("q2", "z", 1)],
    schema=["question_id", "answer_id", "relevance"],
    orient="row",
)


def run_of(**orders):
    """A run that has the letters of each question in this order."""
    rows = [(q, answer, -float(rank)) for q, order in orders.items() for rank, answer in enumerate(order)]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


def test_limits_by_hand():
    run = run_of(q1="nxbca")
    result = candidate_limits(QRELS, run, ["AP", "RR@2", "P@3"])
    at_2 = candidate_limits(QRELS, run, ["AP", "P@3"], level=2)

    # Best: a, c, b. Of the relevant a, c and z of q1 the candidates lack z; q2 has none.
    assert (result.questions, result.without) == (2, 1)
    assert result.recall == pytest.approx(2 / 3 / 2)
    assert result.best == pytest.approx({"MAP": 2 / 3 / 2, "MRR@2": 1 / 2, "P@3": 2 / 3 / 2})
    assert (at_2.questions, at_2.without, at_2.recall) == (1, 0, 1 / 2 / 2)
    assert at_2.best == pytest.approx({"MAP": 1 / 2 / 2, "P@3": 1 / 3 / 2})


def test_no_order_exceeds_the_limits():
    names = ["AP", "RR@2", "nDCG", "nDCG@2", "P@2", "Rprec", "Bpref"]
    best = candidate_limits(QRELS, run_of(q1="abcnx"), names).best

    means = [
        evaluate_frames(QRELS, run_of(q1=order), names).means for order in itertools.permutations("abcnx")
    ]

    assert len(best) == len(names)
    assert best == pytest.approx({name: max(values[name] for values in means) for name in best})
