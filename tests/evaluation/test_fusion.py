"""Reciprocal rank fusion, CombSUM and CombMNZ by hand, and the latter two beside ranx."""

import itertools
from fractions import Fraction

import polars as pl
import pytest

from aptool.evaluation.fusion import NORMALIZATIONS, combine_scores, reciprocal_rank_fusion


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


def test_small_k_by_hand():
    fused = reciprocal_rank_fusion([run_of({"q": {"a": 2, "b": 1}}), run_of({"q": {"a": 1, "b": 2}})], k=0)

    # 1/1 + 1/2 for both; the tie goes to the higher id.
    assert fused.rows() == [("q", "b", 1.5), ("q", "a", 1.5)]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**600, 2.0**1020])
def test_scores_of_any_size_have_the_sums_of_ordinary_scores(normalization, scale):
    """Squares or differences of these scores overflow or vanish; normalized scores do not change."""
    scores = {"a": 3.0, "b": -1.5, "c": 0.25, "d": 3.5}
    ordinary = combine_scores([run_of({"q": scores})] * 2, normalization)
    scaled = combine_scores([run_of({"q": {a: s * scale for a, s in scores.items()}})] * 2, normalization)

    assert scaled.rows() == ordinary.rows()
    assert [row[1] for row in ordinary.rows()] == ["d", "a", "c", "b"]


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


def scores_of(fused):
    scores = {}
    for question_id, answer_id, score in fused.rows():
        scores.setdefault(question_id, {})[answer_id] = score
    return scores


def test_min_max_sums_by_hand():
    first = run_of({"q": {"a": 5, "b": 4, "c": 1}})  # 1, 3/4, 0
    second = run_of({"q": {"b": 0.3, "d": 0.1}})  # 1, 0

    sums = combine_scores([first, second], "min-max")
    products = combine_scores([first, second], "min-max", multiply=True)

    assert sums.rows() == [("q", "b", 1.75), ("q", "a", 1), ("q", "d", 0), ("q", "c", 0)]
    assert products.rows() == [("q", "b", 3.5), ("q", "a", 1), ("q", "d", 0), ("q", "c", 0)]


def test_z_scores_by_hand():
    first = run_of({"q": {"a": 7, "b": 3, "c": 5}})  # mean 5, variance 8/3
    second = run_of({"q": {"a": 1, "b": 3}})  # -1, 1

    sums = scores_of(combine_scores([first, second], "z-score"))["q"]

    expected = {"a": 1.5**0.5 - 1, "c": 0, "b": 1 - 1.5**0.5}
    assert sums == pytest.approx(expected)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_equal_scores_add_nothing(normalization):
    equal = run_of({"q": {"a": 0.1, "b": 0.1, "c": 0.1}, "r": {"x": -7}})

    assert set(combine_scores([equal, equal], normalization)["score"]) == {0.0}


# Figures of ranx 0.3.21 (`comb_sum`, `comb_mnz` after `min_max_norm`, `zmuv_norm`), rounded to 12 digits.
RANX_RUNS = [
    {"q1": {"a": 12.5, "b": 9.0, "c": 7.25, "d": -1.0}, "q2": {"a": 0.75, "e": 0.5}},
    {"q1": {"b": 0.9, "a": 0.2, "e": 0.15}, "q2": {"e": 0.3, "a": 0.3}},
    {"q1": {"c": 100.0, "d": 90.0, "e": 20.0, "b": 5.0}, "q2": {"f": 3.0}},
]
RANX = {
    ("min-max", False): {
        "q1": {
            "b": 1.740740740741,
            "c": 1.611111111111,
            "a": 1.066666666667,
            "d": 0.894736842105,
            "e": 0.157894736842,
        },
        "q2": {"a": 1.0, "e": 0.0, "f": 0.0},
    },
    ("z-score", False): {
        "q1": {
            "c": 1.171101707108,
            "b": 0.659798264083,
            "a": 0.489266288569,
            "d": -0.732712236025,
            "e": -1.587454023736,
        },
        "q2": {"a": 1.0, "f": 0.0, "e": -1.0},
    },
    ("min-max", True): {
        "q1": {
            "b": 5.222222222222,
            "c": 3.222222222222,
            "a": 2.133333333333,
            "d": 1.789473684211,
            "e": 0.315789473684,
        },
        "q2": {"a": 2.0, "e": 0.0, "f": 0.0},
    },
    ("z-score", True): {
        "q1": {
            "c": 2.342203414217,
            "b": 1.979394792249,
            "a": 0.978532577138,
            "d": -1.46542447205,
            "e": -3.174908047472,
        },
        "q2": {"a": 2.0, "f": 0.0, "e": -2.0},
    },
}


@pytest.mark.parametrize(("normalization", "multiply"), RANX)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_sums_agree_with_ranx_in_any_order_of_the_runs(normalization, multiply, order):
    """To compute the figures again: ``pip install ranx==0.3.21`` in an environment of its own, then

    ``ranx.fusion.comb_sum([ranx.normalization.min_max_norm(ranx.Run(run)) for run in RANX_RUNS]).to_dict()``
    """
    frames = [run_of(RANX_RUNS[number]) for number in order]

    fused = scores_of(combine_scores(frames, normalization, multiply=multiply))

    expected = RANX[normalization, multiply]
    assert fused.keys() == expected.keys()
    for question, scores in expected.items():
        assert fused[question] == pytest.approx(scores, abs=1e-11)
