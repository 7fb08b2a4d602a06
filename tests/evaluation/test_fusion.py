"""Reciprocal rank fusion by hand."""

import itertools
from fractions import Fraction

import polars as pl
import pytest

from aptool.evaluation.fusion import reciprocal_rank_fusion


def run_of(rankings):
    rows = [(q, a, float(s)) for q, scores in rankings.items() for a, s in scores.items()]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


def test_two_runs_by_hand():
    first = run_of({"q1": {"a": 0.9, "b": 0.5, "c": 0.1}})  # a, b, c
    second = run_of({"q1": {"a": 3.0, "b": 900.0, "c": 7.0}})  # b, c, a

    fused = reciprocal_rank_fusion([first, second])

    # b: 1/62 + 1/61 = 0.0325224..., a: 1/61 + 1/63 = 0.0322664..., c: 1/63 + 1/62 = 0.0320020...
    assert fused.rows() == [
        ("q1", "b", pytest.approx(0.032522474881)),
        ("q1", "a", pytest.approx(0.032266458496)),
        ("q1", "c", pytest.approx(0.032002048131)),
    ]


def test_ties_are_broken_by_id():
    tied = run_of({"q": {"a": 1, "b": 1}})  # b, a

    assert reciprocal_rank_fusion([tied, tied], k=0).rows() == [("q", "b", 2.0), ("q", "a", 1.0)]


def test_candidates_get_nothing_from_runs_that_lack_them():
    first = run_of({"q1": {"a": 2, "b": 1}, "q2": {"x": 1}})
    second = run_of({"q1": {"b": 5}, "q3": {"y": 1}})

    fused = reciprocal_rank_fusion([first, second], k=1)

    # b: 1/(1+2) + 1/(1+1), a: 1/(1+1), x and y: 1/(1+1)
    assert fused.rows() == [
        ("q1", "b", pytest.approx(float(Fraction(5, 6)))),
        ("q1", "a", 0.5),
        ("q2", "x", 0.5),
        ("q3", "y", 0.5),
    ]


def test_fusion_does_not_depend_on_the_order_of_the_runs():
    # Candidates take every order of the ranks 1, 2, 3 in turn, so three tie exactly in any order of runs.
    runs = [
        run_of({"q": dict(zip("abc", scores, strict=True))}) for scores in ((3, 2, 1), (1, 3, 2), (2, 1, 3))
    ]

    results = [reciprocal_rank_fusion(list(order)) for order in itertools.permutations(runs)]

    assert results[0]["score"].n_unique() == 1
    assert all(result.equals(results[0]) for result in results)


def test_questions_have_the_order_of_the_first_run_that_has_them():
    first = run_of({"q2": {"a": 2, "b": 1}, "q1": {"a": 1}})
    second = run_of({"q3": {"c": 1}, "q1": {"b": 2}, "q2": {"b": 5}})

    fused = reciprocal_rank_fusion([first, second])

    assert fused["question_id"].unique(maintain_order=True).to_list() == ["q2", "q1", "q3"]
