"""Intervals of all kinds of means, correction over all comparisons, and differences by question."""

import polars as pl
import pytest

from aptool.evaluation.compare import compare_tables, question_deltas, ranked_answers
from aptool.evaluation.measures import mean_intervals


def table(**measures):
    ids = [f"q{number}" for number in range(1, 1 + len(next(iter(measures.values()))))]
    return pl.DataFrame({"question_id": ids, **measures})


def run_of(rankings):
    """A run from question id -> answer ids, the best first."""
    rows = [(q, a, -float(rank)) for q, answers in rankings.items() for rank, a in enumerate(answers)]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


def qrels_of(relevant):
    rows = [(q, a, 1) for q, answers in relevant.items() for a in answers]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "relevance"], orient="row")


def test_interval_of_a_sum_is_that_of_the_mean_times_the_questions():
    values = [1.0, 2.0, 2.0, 5.0]
    both = mean_intervals(table(NumRelRet=values, MAP=values))

    assert both["NumRelRet"] == pytest.approx([4 * bound for bound in both["MAP"]])


def test_holm_is_over_all_systems_and_measures():
    before = table(P_1=[0.0] * 6, map=[0.5] * 6)
    better = table(P_1=[1.0] * 6, map=[0.5] * 6)
    mixed = table(P_1=[0.0] * 6, map=[0.75] * 6)

    result = {
        (comparison.measure, comparison.system): comparison
        for comparison in compare_tables(before, [("b", better), ("c", mixed)], ["P_1", "map"])
    }

    assert list(result) == [("P_1", "b"), ("P_1", "c"), ("map", "b"), ("map", "c")]
    # 2 of 64 for the two that changed everywhere, times 4 comparisons, and 3, raised to the former.
    assert result["P_1", "b"].p == pytest.approx(1 / 32)
    assert result["P_1", "b"].p_holm == pytest.approx(4 / 32)
    assert result["map", "c"].p_holm == pytest.approx(4 / 32)
    assert result["P_1", "c"].p_holm == result["map", "b"].p_holm == 1


def test_questions_are_paired_by_id():
    before = table(P_1=[1.0, 0.0, 0.0])
    shuffled = before[[2, 0, 1]]

    (comparison,) = compare_tables(before, [("b", shuffled)], ["P_1"])

    assert comparison.ties == 3


def test_groups_are_compared_as_all_questions_are():
    before, after = table(P_1=[0.0] * 6 + [1.0] * 4), table(P_1=[1.0] * 10)
    rows = [(f"q{number}", "first", 1) for number in range(1, 7)]
    rows += [(f"q{number}", "late", 2) for number in range(5, 10)]
    groups = pl.DataFrame(rows, schema=["question_id", "group", "position"], orient="row")

    first, late = compare_tables(before, [("b", after)], ["P_1"], groups)

    # Six gains: p = 2/2^6, times 2 groups; two gains of five questions: p = 2/2^2.
    assert (first.group, first.questions, first.difference, first.wins) == ("first", 6, 1, 6)
    assert (first.p, first.p_holm) == (pytest.approx(1 / 32), pytest.approx(1 / 16))
    assert (late.group, late.questions, late.baseline, late.wins) == ("late", 5, 3 / 5, 2)
    assert late.p == late.p_holm == pytest.approx(1 / 2)
    (alone,) = compare_tables(before[:6], [("b", after[:6])], ["P_1"])
    assert (alone.low, alone.high, alone.p) == (first.low, first.high, first.p)


def test_deltas_are_ordered_by_size_and_then_id():
    before = table(map=[0.5, 0.2, 1.0, 0.3, 0.1 + 0.2, 0.3, 0.1])
    after = table(map=[1.0, 0.2, 0.5, 0.9, 0.3, 0.6, 0.4])

    better, worse = question_deltas(before, after, "map")

    # q2 did not change, and q5 by rounding only, by which q7 changed more than q6.
    assert better.select("question_id", "change").rows() == [
        ("q4", pytest.approx(0.6)),
        ("q1", 0.5),
        ("q6", pytest.approx(0.3)),
        ("q7", pytest.approx(0.3)),
    ]
    assert worse.select("question_id", "change").rows() == [("q3", -0.5)]


def test_ranked_answers_are_those_of_both_runs_and_the_relevant_ones():
    relevant = {"q": ["r", "new", "gone"], "other": ["r"]}
    before = run_of({"q": ["x", "r", "old"], "unlisted": ["z"]})
    after = run_of({"q": ["r", "x", "new"], "other": ["z"]})
    deltas = pl.DataFrame({"question_id": ["q"]})

    answers = ranked_answers(deltas, qrels_of(relevant), (before, after))

    names = ["answer_id", "is_relevant", "rank_before", "rank_after", "score_before", "score_after"]
    assert set(answers["question_id"]) == {"q"}
    assert answers.select(names).rows() == [
        ("r", True, 2, 1, -1.0, 0.0),
        ("x", False, 1, 2, 0.0, -1.0),
        ("new", True, None, 3, None, -2.0),
        ("gone", True, None, None, None, None),
        ("old", False, 3, None, -2.0, None),
    ]
