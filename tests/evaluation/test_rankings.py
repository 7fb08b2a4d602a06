"""Reciprocal ranks with a cutoff by hand, and levels of relevance of all measures."""

import os
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from other_ids import have_other_ids

from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.errors import InputError
from aptool.evaluation.measures import evaluate_frames
from aptool.evaluation.names import printed_name


def qrels_of(judgements):
    rows = [(q, a, r) for q, judged in judgements.items() for a, r in judged.items()]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "relevance"], orient="row")


def run_of(rankings):
    rows = [(q, a, float(s)) for q, scores in rankings.items() for a, s in scores.items()]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


def measured(judged, scores, names, **options):
    """The measures of one question."""
    return dict(evaluate_frames(qrels_of({"q": judged}), run_of({"q": scores}), names, **options).means)


def test_rr_ignores_ranks_after_the_cutoff():
    scores = {"a": 4, "b": 3, "c": 2, "d": 1}

    result = measured({"c": 1, "d": 1}, scores, ["RR@1", "RR@2", "RR@3", "MRR@10", "RR"])

    assert result == {"MRR@1": 0, "MRR@2": 0, "MRR@3": 1 / 3, "MRR@10": 1 / 3, "MRR": 1 / 3}


def test_ties_at_the_cutoff_go_to_the_higher_id_in_bytes():
    # In order: é, a9, a10, as trec_eval has them; not the order of the lines, nor of numbers.
    scores = {"a10": 1, "é": 1, "a9": 1}

    assert measured({"a9": 1}, scores, ["RR@1", "RR@2"]) == {"MRR@1": 0, "MRR@2": 1 / 2}
    assert measured({"a10": 1}, scores, ["RR@2", "RR@3"]) == {"MRR@2": 0, "MRR@3": 1 / 3}
    assert measured({"a": 1, "z": 0}, {"a": 0.0, "z": -0.0}, ["RR@1"]) == {"MRR@1": 0}


def test_scores_are_compared_as_float64():
    assert measured({"a": 1}, {"a": 1.0, "z": 1 - 2**-53}, ["RR@1"]) == {"MRR@1": 1}


def test_missing_question_counts_0_and_extra_question_is_ignored():
    judgements = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 0}, "q4": {"d": 1}}
    rankings = {"q1": {"x": 2, "a": 1}, "q3": {"c": 1}, "q4": {"d": 1}, "q9": {"a": 1}}

    result = evaluate_frames(qrels_of(judgements), run_of(rankings), ["RR@10", "P@1"])

    assert result.per_question.rows() == [
        ("q1", 2, 1 / 2, 0.0),
        ("q2", 0, 0.0, 0.0),
        ("q3", 1, 0.0, 0.0),
        ("q4", 1, 1.0, 1.0),
    ]
    assert result.means == {"MRR@10": 3 / 8, "P@1": 1 / 4}
    assert (result.missing, result.extra) == (("q2",), ("q9",))


# Ranked in this order; relevance 1, 0, 2, unjudged, 3.
GRADED = {"a": 1, "b": 0, "c": 2, "e": 3, "n": -1}
GRADED_RUN = {"a": 9, "b": 8, "c": 7, "d": 6, "e": 5}
# At level 2, c (rank 3) and e (rank 5) are relevant.
AT_LEVEL_2 = {
    "MAP": (1 / 3 + 2 / 5) / 2,
    "MRR": 1 / 3,
    "MRR@2": 0,
    "P@3": 1 / 3,
    "R@3": 1 / 2,
    "Success@1": 0,
    "Rprec": 0,
    "MAP@3": (1 / 3) / 2,
    "SetP": 2 / 5,
    "SetR": 1,
    "NumRel": 2,
    "NumRelRet": 2,
    "NumRet": 5,
    # Both judged and not relevant, a and b, are above c and above e: 1 - 2/2 for each.
    "Bpref": 0,
}


def test_level_2_by_hand():
    assert measured(GRADED, GRADED_RUN, AT_LEVEL_2, level=2) == pytest.approx(AT_LEVEL_2)


def test_level_of_a_measure_overrides_the_level_of_the_evaluation():
    names = ["AP", "AP(rel=2)", "RR(rel=2)", "P(rel=3)@5", "RR(rel=3)@5", "NumRel(rel=3)"]

    result = measured(GRADED, GRADED_RUN, names)
    raised = measured(GRADED, GRADED_RUN, names, level=3)

    assert result == pytest.approx(
        {
            "MAP": (1 + 2 / 3 + 3 / 5) / 3,
            "MAP(rel=2)": AT_LEVEL_2["MAP"],
            "MRR(rel=2)": 1 / 3,
            "P(rel=3)@5": 1 / 5,
            "MRR(rel=3)@5": 1 / 5,
            "NumRel(rel=3)": 1,
        }
    )
    assert raised == pytest.approx({**result, "MAP": 1 / 5})


def test_ndcg_does_not_depend_on_the_level():
    names = ["nDCG", "nDCG@3"]

    assert measured(GRADED, GRADED_RUN, names, level=3) == measured(GRADED, GRADED_RUN, names)


def test_relevant_answers_of_a_missing_question_are_counted_at_the_level():
    qrels = qrels_of({"q1": {"a": 2}, "q2": {"a": 2, "b": 1, "c": 3}})

    assert evaluate_frames(qrels, run_of({"q1": {"a": 1}}), ["NumRel"], level=2).means == {"NumRel": 3}


@pytest.mark.parametrize(("names", "level"), [(["AP"], 4), (["AP(rel=4)"], 1), (["RR(rel=4)@10", "MAP"], 2)])
def test_a_level_above_every_relevance_is_refused(names, level):
    with pytest.raises(InputError) as error:
        measured(GRADED, GRADED_RUN, names, level=level, qrels_name="x.qrels")

    assert str(error.value) == (
        "x.qrels: column 'relevance': none from 4 on; "
        "expected a relevance level of at most 3, the highest relevance in it"
    )


IDS = st.sampled_from(["a", "b", "a10", "a9", "Z", "é", "c", "d"])
POOLS = st.dictionaries(IDS, st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-9, -1.0, 1e-30]), min_size=1)
LABELS = st.dictionaries(IDS, st.integers(-2, 3), min_size=1)
QUESTIONS = st.sampled_from(["q1", "q2", "q3"])
PAIRS = {
    "RR@8": "RR",  # no pool has more than eight candidates
    "AP(rel=1)": "AP",
    "P(rel=1)@3": "P@3",
    "RR(rel=1)@100": "RR",
}


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(QUESTIONS, POOLS, min_size=1), st.dictionaries(QUESTIONS, LABELS, min_size=1))
def test_equivalent_measures_have_equal_values(pools, labels):
    if have_other_ids(labels, pools) or max(max(judged.values()) for judged in labels.values()) < 1:
        return
    qrels, run = qrels_of(labels), run_of(pools)

    result = evaluate_frames(qrels, run, [*PAIRS, *PAIRS.values()])

    assert result.per_question.equals(
        evaluate_frames(qrels, run, [*PAIRS, *PAIRS.values()], level=1).per_question
    )
    for name, same in PAIRS.items():
        assert (
            result.per_question[printed_name(name)].to_list()
            == result.per_question[printed_name(same)].to_list()
        )
        assert result.means[name] == result.means[same]


BINARY = ("MAP", "MRR", "P@3", "R@2", "Success@1", "Bpref", "Rprec", "NumRel", "SetF", "infAP")


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(QUESTIONS, POOLS, min_size=1), st.dictionaries(QUESTIONS, LABELS, min_size=1))
def test_level_2_is_level_1_of_labels_from_2_on(pools, labels):
    if have_other_ids(labels, pools) or max(max(judged.values()) for judged in labels.values()) < 2:
        return
    binary = {
        question: {answer: min(label, 0) if label < 2 else 1 for answer, label in judged.items()}
        for question, judged in labels.items()
    }
    names = [*BINARY, "RR@2"]

    result = evaluate_frames(qrels_of(labels), run_of(pools), names, level=2)

    assert result.per_question.equals(evaluate_frames(qrels_of(binary), run_of(pools), names).per_question)


def test_measures_of_a_real_run_equal_ir_measures():
    ir_measures = pytest.importorskip("ir_measures")
    data = os.environ.get("APTOOL_DATA")
    if not data:
        pytest.skip("APTOOL_DATA does not name the folder of real data")
    folder = Path(data) / "trec_eval"
    qrels, run = read_qrels(folder / "wikiqa-dev.qrels"), read_run(folder / "wikiqa-dev-bm25.run").frame
    names = ["AP", "RR", "P@1", "R@3", "nDCG@10", "Success@5", "AP@3", "Rprec", "Bpref", "SetF", "NumRel"]
    expected = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in names],
        [ir_measures.Qrel(*row) for row in qrels.iter_rows()],
        [ir_measures.ScoredDoc(*row) for row in run.iter_rows()],
    )

    means = evaluate_frames(qrels, run, names).means

    by_name = {str(measure): value for measure, value in expected.items()}
    assert {name: means[name] for name in by_name} == pytest.approx(by_name)
