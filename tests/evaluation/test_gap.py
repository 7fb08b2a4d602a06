"""The gap between two splits: by hand, and its interval against that of the normal distribution."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from aptool.evaluation.limits import split_gaps
from aptool.evaluation.measures import evaluate
from aptool.evaluation.significance import gap_interval


def evaluation(*hits):
    """A split whose questions have the relevant answer first (1) or second (0)."""
    rows = [(f"q{n}", *one) for n, hit in enumerate(hits) for one in (("a", float(hit)), ("b", 0.5))]
    qrels = pl.DataFrame([(f"q{n}", "a", 1) for n in range(len(hits))], schema=_QRELS, orient="row")
    run = pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")
    return evaluate(qrels, run, ["P@1", "RR", "NumRel"])


_QRELS = ["question_id", "answer_id", "relevance"]


def test_by_hand():
    result = split_gaps(evaluation(1, 1, 1, 0), evaluation(1, 0), ["P@1", "MRR", "NumRel"])

    assert list(result) == ["P@1", "MRR"]  # a number of answers is no figure of a system
    assert result["P@1"][:3] == (0.75, 0.5, -0.25)
    assert result["MRR"][:3] == (0.875, 0.75, -0.125)
    low, high = result["P@1"].interval
    assert -1 <= low < -0.25 < high <= 1


def test_a_single_question_has_no_interval_and_equal_figures_one_without_width():
    assert split_gaps(evaluation(1, 1), evaluation(0), ["P@1"])["P@1"] == (1.0, 0.0, -1.0, None)
    assert split_gaps(evaluation(1, 1), evaluation(0, 0), ["P@1"])["P@1"].interval == (-1.0, -1.0)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_interval_of_many_questions_is_that_of_the_normal_distribution(confidence):
    draws = np.random.default_rng(1)
    dev, test = draws.normal(0.6, 0.2, 400), draws.normal(0.5, 0.1, 900)
    error = math.sqrt(dev.var() / 400 + test.var() / 900)

    low, high = gap_interval(dev, test, confidence=confidence)

    expected = stats.norm.interval(confidence, test.mean() - dev.mean(), error)
    assert (low, high) == pytest.approx(expected, abs=0.05 * error)
    assert gap_interval(test, dev, confidence=confidence) == pytest.approx((-high, -low), abs=0.1 * error)
