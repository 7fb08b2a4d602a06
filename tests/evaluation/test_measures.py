"""The measures against numbers printed by the trec_eval program and against their definitions."""

import math
import os
import random
import re
from pathlib import Path

import polars as pl
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from other_ids import have_other_ids

from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.errors import InputError
from aptool.evaluation.measures import averages, evaluate_frames
from aptool.evaluation.names import measure_names, parse_measures

# Ties, a missing and an extra question, a question without positives, negative and graded relevance,
# scores 1e-8 apart, exponent notation.
QRELS = """\
q1 0 a1 1
q1 0 a2 0
q1 0 a3 1
q2 0 b1 1
q3 0 c1 0
q3 0 c2 0
q4 0 d1 1
q5 0 e1 2
q5 0 e2 1
q5 0 e3 -1
q10 0 f1 1
q9 0 g1 1
"""
RUN = """\
q1 Q0 a1 1 0.5 t
q1 Q0 a2 2 0.5 t
q1 Q0 a3 3 0.5 t
q1 Q0 a4 4 0.25 t
q2 Q0 b0 1 0.30000001 t
q2 Q0 b1 2 0.3 t
q3 Q0 c1 1 2 t
q3 Q0 c2 2 1 t
q5 Q0 e3 1 9.5 t
q5 Q0 e2 2 9.25 t
q5 Q0 e1 3 -1e-3 t
q5 Q0 e9 4 -2 t
q10 Q0 f10 1 1.0 t
q10 Q0 f9 2 1.0 t
q10 Q0 f1 3 1.0 t
q77 Q0 z1 1 1.0 t
"""
MEASURES = ("NumRel", "NumRelRet", "MAP", "MRR", "P@1", "nDCG")
# trec_eval 10.0-rc3 with -q -c. Without -c this version prints the same lines for q1, q10, q2, q3 and ends at
# q4, the first question that the run lacks.
PER_QUESTION = {
    "q1": (2, 2, 0.8333, 1.0000, 1.0000, 0.9197),
    "q10": (1, 1, 0.3333, 0.3333, 0.0000, 0.5000),
    "q2": (1, 1, 0.5000, 0.5000, 0.0000, 0.6309),
    "q3": (0, 0, 0.0000, 0.0000, 0.0000, 0.0000),
    "q4": (1, 0, 0.0000, 0.0000, 0.0000, 0.0000),
    "q5": (2, 2, 0.5833, 0.5000, 0.0000, 0.6199),
    "q9": (1, 0, 0.0000, 0.0000, 0.0000, 0.0000),
}
ALL = {"NumQ": 7, "NumRel": 8, "NumRelRet": 6, "MAP": 0.3214, "MRR": 0.3333, "P@1": 0.1429, "nDCG": 0.3815}


# What trec_eval 9.0.4 prints for `GRADED` and `GRADED_RUN` with -c: with -l 1, with -l 2.
PRINTED = {
    name: values
    for name, *values in map(
        str.split, Path(__file__).with_name("trec_eval_levels.tsv").read_text(encoding="utf-8").splitlines()
    )
}
OF_FAMILIES = {
    "map": "MAP",
    "recip_rank": "MRR",
    "ndcg": "nDCG",
    "Rprec": "Rprec",
    "bpref": "Bpref",
    "infAP": "infAP",
    "set_P": "SetP",
    "set_recall": "SetR",
    "set_F": "SetF",
    "set_map": "SetAP",
    "num_q": "NumQ",
    "num_rel": "NumRel",
    "num_ret": "NumRet",
    "num_rel_ret": "NumRelRet",
    "P": "P@",
    "recall": "R@",
    "ndcg_cut": "nDCG@",
    "map_cut": "MAP@",
    "success": "Success@",
}
# trec_eval's name -> ours
TREC_EVAL = {
    name: measure_names(OF_FAMILIES[family] + cutoff)[0]
    for name in PRINTED
    for family, cutoff in [re.fullmatch(r"(.+?)_?([\d.]*)", name).groups()]
}


def qrels_of(judgements):
    rows = [(q, a, r) for q, judged in judgements.items() for a, r in judged.items()]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "relevance"], orient="row")


def run_of(rankings):
    rows = [(q, a, float(s)) for q, scores in rankings.items() for a, s in scores.items()]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.qrels").write_text(QRELS)
    (folder / "small.run").write_text(RUN)
    return read_qrels(folder / "small.qrels"), read_run(folder / "small.run").frame


def test_values_equal_trec_eval(small):
    result = evaluate_frames(*small, ("NumQ", *MEASURES))

    assert result.per_question["question_id"].to_list() == list(PER_QUESTION)
    for row in result.per_question.drop("candidates", "NumQ").iter_rows():
        assert row[1:] == pytest.approx(PER_QUESTION[row[0]], abs=5.1e-5)
    assert result.means == pytest.approx(ALL, abs=5.1e-5)
    # Without -c, trec_eval averages over the questions that both have: (5/6 + 1/3 + 1/2 + 0 + 7/12) / 5.
    assert averages(result.per_question.filter(pl.col("candidates") > 0))["MAP"] == pytest.approx(0.45)


def test_missing_and_extra_questions_are_listed(small):
    result = evaluate_frames(*small)

    assert result.missing == ("q4", "q9")
    assert result.extra == ("q77",)
    # No line for a4, b0, e9, f10, f9; the line of e3 says that it was not judged.
    assert result.unjudged.rows() == [
        ("q1", "a4"),
        ("q10", "f10"),
        ("q10", "f9"),
        ("q2", "b0"),
        ("q5", "e3"),
        ("q5", "e9"),
    ]
    assert result.per_question["candidates"].to_list() == [4, 3, 2, 2, 0, 4, 0]


@pytest.mark.parametrize(
    ("a", "z", "p"),
    [(1.0, 1 - 1e-8, 1), (1.0, 1 - 2**-53, 1), (1e300, 1e299, 1), (1e-299, 1e-300, 1), (0.0, -0.0, 0)],
)
def test_scores_are_compared_as_float64(a, z, p):
    # As float32 these are ties, which go to "z".
    qrels, run = qrels_of({"q": {"a": 1, "z": 0}}), run_of({"q": {"a": a, "z": z}})

    assert evaluate_frames(qrels, run, ["P@1"]).means["P@1"] == p


def test_negative_judgements_count_as_unjudged():
    # q1 comes first, so that anything kept from it would show in q2.
    judgements = {"q1": {"a": 3, "b": 2}, "q2": {"a": -7, "b": -1}}
    run = run_of({"q1": {"a": 1, "b": 2}, "q2": {"a": 2, "b": 1, "c": 0}})
    result = evaluate_frames(qrels_of(judgements), run, list(TREC_EVAL.values()))

    second = result.per_question.row(1, named=True)
    for name in ("NumRel", "MAP", "nDCG", "Bpref", "infAP", "R@5", "SetF"):
        assert second[name] == 0
    assert second["NumRet"] == 3
    assert result.unjudged.rows() == [("q2", "a"), ("q2", "b"), ("q2", "c")]


IDS = st.sampled_from(["a", "b", "a10", "a9", "Z", "é", "c", "d"])
POOLS = st.dictionaries(IDS, st.sampled_from([0.0, 1.0, 1.0 + 1e-9, -1.0, 1e-30]), min_size=1)
LABELS = st.dictionaries(IDS, st.integers(-2, 3), min_size=1)


@settings(deadline=None, max_examples=150)
@given(
    pools=st.dictionaries(st.sampled_from(["q1", "q2", "q3"]), POOLS, min_size=1),
    labels=st.dictionaries(st.sampled_from(["q1", "q2", "q3"]), LABELS, min_size=1),
)
def test_measures_follow_their_definitions(pools, labels):
    if have_other_ids(labels, pools):
        return
    expected = {}
    for question, judged in labels.items():
        ranked = sorted(
            pools.get(question, {}).items(), key=lambda item: (item[1], item[0].encode()), reverse=True
        )
        hits = [rank for rank, (answer, _) in enumerate(ranked, 1) if judged.get(answer, 0) > 0]
        positives = sum(relevance > 0 for relevance in judged.values())
        precisions = [number / rank for number, rank in enumerate(hits, 1)]
        expected[question] = (
            sum(precisions) / positives if positives else 0.0,
            1 / hits[0] if hits else 0.0,
            float(1 in hits),
            sum(rank <= 3 for rank in hits) / 3,
            float(bool(hits) and hits[0] <= 5),
            sum(rank <= 2 for rank in hits) / positives if positives else 0.0,
            float(len(ranked)),
        )
    names = ("MAP", "MRR", "P@1", "P@3", "Success@5", "R@2", "NumRet")

    result = evaluate_frames(qrels_of(labels), run_of(pools), names)

    for question, _, *values in result.per_question.iter_rows():
        assert values == pytest.approx(expected[question], abs=1e-12)
    total = len(expected)
    assert result.means["MAP"] == pytest.approx(math.fsum(row[0] for row in expected.values()) / total)
    assert result.means["NumRet"] == sum(row[-1] for row in expected.values())
    assert result.missing == tuple(sorted(labels.keys() - pools.keys()))
    assert result.extra == tuple(sorted(pools.keys() - labels.keys()))


def test_real_run_equals_trec_eval():
    data = os.environ.get("APTOOL_DATA")
    if not data:
        pytest.skip("APTOOL_DATA does not name the folder of real data")
    folder = Path(data) / "trec_eval"
    qrels, run = read_qrels(folder / "wikiqa-dev.qrels"), read_run(folder / "wikiqa-dev-bm25.run").frame
    printed = (folder / "wikiqa-dev-bm25.trec_eval10.complete.txt").read_text().splitlines()
    expected = {
        (TREC_EVAL | {"P_1": "P@1"})[name]: float(value) for name, _, value in map(str.split, printed)
    }

    result = evaluate_frames(qrels, run, expected)

    assert {name: result.means[name] for name in expected} == pytest.approx(expected, abs=5.1e-5)
    # Half of the questions left out of the run: the same sum over as many questions.
    kept = random.Random(1).sample(sorted(set(qrels["question_id"])), 148)
    half = evaluate_frames(qrels, run.filter(pl.col("question_id").is_in(kept)))
    measured = result.per_question.filter(pl.col("question_id").is_in(kept))
    assert half.means["MAP"] == pytest.approx(measured["MAP"].sum() / 296)
    assert len(half.missing) == 148


# A question with labels up to 3, ties, an unjudged candidate, and a relevant answer that was not retrieved.
GRADED = {
    "q1": {"a": 3, "b": 2, "c": 1, "d": 0, "e": -1, "z": 2},
    "q2": {"a": 1, "b": 1},
    "q3": {"a": 0, "b": 2, "c": 2},
    "q4": {"a": 2},
}
GRADED_RUN = {
    "q1": {"d": 5.0, "a": 4.0, "x": 4.0, "c": 3.0, "b": 2.0, "e": 1.0},
    "q2": {"a": 2.0, "c": 1.0},
    "q3": {"c": 0.5, "b": 0.5, "a": 0.5},
    "q4": {"b": 2.0, "a": 1.0},
}


def at_level(name, level):
    """The name of a measure at a level, such as P(rel=2)@5; the same name if it has no levels."""
    family, at, cutoff = name.partition("@")
    has_level = family not in ("nDCG", "NumQ", "NumRet")
    return f"{family}(rel={level}){at}{cutoff}" if has_level else name


@pytest.mark.parametrize("level", [1, 2])
def test_measures_at_a_level_equal_pytrec_eval_and_trec_eval(level):
    """The questions are ranked, and their scores are far apart, or equal, in float32."""
    evaluator = pytrec_eval.RelevanceEvaluator(GRADED, set(TREC_EVAL), relevance_level=level)
    theirs = evaluator.evaluate(GRADED_RUN)
    printed = {ours: float(PRINTED[name][level - 1]) for name, ours in TREC_EVAL.items()}
    if level == 2:
        # With -c this version adds up the labels from 1 on whatever the level; without, it prints 6 here.
        assert printed["NumRel"] == 9
        printed["NumRel"] = 6

    names = [at_level(ours, level) for ours in printed]
    result = evaluate_frames(qrels_of(GRADED), run_of(GRADED_RUN), names)

    for row in result.per_question.iter_rows(named=True):
        expected = theirs[row["question_id"]]
        for name, ours in TREC_EVAL.items():
            assert row[at_level(ours, level)] == pytest.approx(expected[name], abs=1e-12), name
    assert theirs["q2"]["map"] == (1 / 2 if level == 1 else 0)
    assert list(result.means.values()) == pytest.approx(list(printed.values()), abs=5.1e-5)
    assert {measure.trec_eval for measure in parse_measures(names)} == set(TREC_EVAL)


def test_neither_the_order_of_lines_nor_other_calls_matter(small):
    qrels, run = small
    names = list(TREC_EVAL.values())
    first = evaluate_frames(qrels, run, names)
    for seed in range(3):
        evaluate_frames(*small, ["P@2", "nDCG@7"])
        shuffled = evaluate_frames(
            qrels.sample(fraction=1, shuffle=True, seed=seed),
            run.sample(fraction=1, shuffle=True, seed=seed),
            names,
        )
        assert shuffled.per_question.equals(first.per_question)
        assert shuffled.means == first.means
    assert {name: evaluate_frames(*small, [name]).means[name] for name in names} == first.means


def test_cutoffs_and_levels_by_hand():
    # Ranked c, b, a, d; one judgement is negative. The run lacks the second question.
    qrels = qrels_of({"q": {"a": 3, "b": 1, "n": -1}, "r": {"a": 2, "b": 1}})
    run = run_of({"q": {"a": 2, "b": 3, "c": 4, "d": 1}})
    names = ["RR@1", "RR@2", "MRR@10", "RR(rel=2)", "MRR(rel=2)@2", "AP", "AP(rel=3)", "NumRel(rel=2)"]

    result = evaluate_frames(qrels, run, names)

    assert result.per_question.row(0)[2:] == pytest.approx(
        (0, 1 / 2, 1 / 2, 1 / 3, 0, (1 / 2 + 2 / 3) / 2, 1 / 3, 1)
    )
    assert result.per_question.row(1)[2:] == (0, 0, 0, 0, 0, 0, 0, 1)
    assert (result.means["MRR@2"], result.means["NumRel(rel=2)"]) == (1 / 4, 2)


@pytest.mark.parametrize(
    ("run", "relevance", "measure", "message"),
    [
        ({"q77": {"a": 1.0}}, 1, "MAP", "'q77': expected at least one question of x.qrels, such as 'q1'"),
        (
            {"q1": {"7": 1.0}},
            1,
            "MAP",
            "question 'q1': '7': expected at least one answer of x.qrels, such as 'D1'",
        ),
        ({"q1": {"D1": 1.0}}, 2**40, "MAP", "expected at most 1000000"),
        ({"q1": {"D1": 1.0}}, 3, "RR(rel=4)@10", "none from 4 on; expected a relevance level of at most 3"),
    ],
)
def test_runs_and_qrels_that_do_not_match_are_refused(run, relevance, measure, message):
    qrels = qrels_of({"q1": {"D1": relevance, "D2": 0}, "q2": {"D3": 1}})

    with pytest.raises(InputError) as error:
        evaluate_frames(qrels, run_of(run), ["MAP", measure], run_name="x.run", qrels_name="x.qrels")

    assert message in str(error.value)
