"""The public functions that evaluate, compare and fuse runs."""

import json
import subprocess
import sys

import polars as pl
import pytest

import aptool as library
from aptool import AptoolError, Qrels, Run

# The relevant answer of q1 has rank 2, that of q2 rank 1, and q3 is missing.
QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}, "q3": {"d": 1}}
RUN = {"q1": {"b": 2.0, "a": 1.0}, "q2": {"c": 1.0}, "q9": {"x": 1.0}}
BETTER = {"q1": {"a": 2.0, "b": 1.0}, "q2": {"c": 1.0}}


def test_measures_equal_values_computed_by_hand():
    result = library.evaluate(QRELS, RUN, ["AP", "RR", "P@1"])

    assert result.means == pytest.approx({"MAP": 0.5, "MRR": 0.5, "P@1": 1 / 3})
    assert (result.missing, result.extra) == (("q3",), ("q9",))
    assert result.per_question.columns == ["question_id", "candidates", "MAP", "MRR", "P@1"]
    assert result.per_question["MAP"].to_list() == [0.5, 1.0, 0.0]


def test_measures_can_be_one_name_or_the_default():
    assert list(library.evaluate(QRELS, RUN, "AP").means) == ["MAP"]
    assert list(library.evaluate(QRELS, RUN).means) == ["MAP", "MRR", "P@1"]


@pytest.mark.parametrize("measures", [[], [""], "", "AP(rel=x)", "xyzzy", ["MAP", "xyzzy"]])
def test_invalid_measures_are_refused(measures):
    for use in (library.evaluate, lambda qrels, run, names: library.compare(run, run, qrels, names)):
        with pytest.raises(AptoolError):
            use(QRELS, RUN, measures)


@pytest.mark.parametrize(
    "wrong", [None, 7, [], {}, {"q": 1}, {7.5: {"a": 1}}, "nowhere", {"q1": {"a": None}}]
)
def test_invalid_runs_and_qrels_are_refused(wrong):
    for use in (
        lambda: library.evaluate(wrong, RUN),
        lambda: library.evaluate(QRELS, wrong),
        lambda: library.compare(wrong, RUN, QRELS),
        lambda: library.compare(RUN, wrong, QRELS),
        lambda: library.compare(RUN, [RUN, wrong], QRELS),
        lambda: library.compare(RUN, RUN, wrong),
        lambda: library.fuse([RUN, wrong]),
    ):
        with pytest.raises(AptoolError):
            use()


def test_qrels_are_not_a_run():
    with pytest.raises(AptoolError, match=r"run: Qrels\(.*: expected a data frame"):
        library.evaluate(Qrels(QRELS), Qrels(QRELS))
    with pytest.raises(AptoolError, match=r"qrels: Run\(.*: expected a data frame"):
        library.evaluate(Run(RUN), Run(RUN))


def test_run_without_a_judged_question_is_refused():
    with pytest.raises(AptoolError, match="run 'mine': 'q9': expected at least one question of qrels"):
        library.evaluate(QRELS, Run({"q9": {"a": 1.0}}, tag="mine"))


@pytest.fixture
def runs(data, model):
    """A run of BM25, with reversed rankings for nine questions, and a run of a model; also as files."""
    scores = library.bm25_run(data.pools("dev")).to_dict()
    for question in sorted(scores)[:9]:
        scores[question] = {answer: -score for answer, score in scores[question].items()}
    bm25, ap = Run(scores, tag="bm25"), model.run(data.pools("dev"))
    bm25.save("bm25.run")
    ap.save("ap.run")
    return bm25, ap


def test_measures_equal_those_of_the_command(aptool, runs, data):
    finished = aptool("eval", "ap.run", "bm25.run", "--qrels", "data/wikiqa/dev.qrels", "--json")
    printed = json.loads("\n".join(finished.out))["runs"]

    for run, expected in zip(runs[::-1], printed, strict=True):
        result = library.evaluate(data.qrels("dev"), run, ["AP", "RR", "P@1"])
        assert dict(result.means) == expected["measures"]
        by_path = library.evaluate("data/wikiqa/dev.qrels", expected["run"], ["MAP", "MRR", "P@1"])
        assert list(by_path.means.values()) == list(expected["measures"].values())


def test_comparisons_equal_those_of_the_command(aptool, runs, data):
    finished = aptool(
        *("compare", "bm25.run", "ap.run", "--qrels", "data/wikiqa/dev.qrels", "--format", "json"),
        *("--measures", "MAP,MRR"),
    )
    printed = json.loads("\n".join(finished.out))["comparisons"]

    comparison = library.compare(*runs, data.qrels("dev"), "AP")
    several = library.compare(runs[0], [runs[1]], data.qrels("dev"), ["AP", "RR"])

    assert [(other.system, other.measure) for other in several] == [("ap-cnn", "MAP"), ("ap-cnn", "MRR")]
    assert comparison.p == several[0].p == printed[0]["p"] < 0.05
    assert several[1].permutation_holm == printed[1]["p_holm"]
    assert list(comparison.interval) == [printed[0]["low"], printed[0]["high"]]
    assert (comparison.difference, comparison.effect) == (printed[0]["difference"], printed[0]["effect"])


def test_one_run_and_one_measure_give_one_comparison():
    comparison = library.compare(RUN, BETTER, QRELS, "P@1")

    assert (comparison.difference, comparison.p, comparison.paired.wins) == (pytest.approx(1 / 3), 1.0, 1)
    assert [type(comparison)] == [type(result) for result in library.compare(RUN, [BETTER], QRELS, "P@1")]
    assert len(library.compare(RUN, [BETTER, BETTER], QRELS, ["P@1", "AP"])) == 4
    assert len(library.compare(RUN, BETTER, QRELS, ["P@1"])) == 1


@pytest.mark.parametrize("tags", [("x", "x (1)", "x"), ("x", "x", "x (2)"), ("x (2)", "x", "x")])
def test_runs_with_equal_tags_are_all_compared_with_the_baseline(tags):
    # P@1 is 0 for the baseline, 1/3 for a run that ranks nothing relevant first in q1, and 2/3 for BETTER.
    runs = {"q1": {"b": 1.0}, "q2": {"x": 1.0}}, {"q1": {"b": 1.0}, "q2": {"c": 1.0}}, BETTER
    baseline, *systems = map(Run, runs, tags)

    comparisons = library.compare(baseline, systems, QRELS, "P@1")

    assert [comparison.paired.baseline for comparison in comparisons] == [0, 0]
    assert [comparison.difference for comparison in comparisons] == pytest.approx([1 / 3, 2 / 3])
    assert len({comparison.system for comparison in comparisons}) == 2


def test_runs_with_different_questions_are_not_compared():
    with pytest.raises(AptoolError, match="q2"):
        library.compare(RUN, {"q1": {"a": 1.0}}, QRELS)


def test_runs_are_compared_on_the_questions_that_both_rank():
    # Only q1 is in both runs: RUN ranks b first, the other run a.
    comparison = library.compare(RUN, {"q1": {"a": 1.0}}, QRELS, "P@1", on_common=True)

    assert (comparison.paired.questions, comparison.paired.baseline, comparison.difference) == (1, 0.0, 1.0)
    with pytest.raises(AptoolError, match=r"\(on-common\)$"):
        library.compare(RUN, {"q1": {"a": 1.0}}, QRELS, "P@1")
    with pytest.raises(AptoolError, match="no question of the qrels is in all of these runs"):
        library.compare(RUN, {"q3": {"d": 1.0}}, QRELS, "P@1", on_common=True)


def test_errors_name_the_file_of_a_run(tmp_path):
    Run({"q9": {"x": 1.0}}).save(tmp_path / "other.run")
    Qrels(QRELS).save(tmp_path / "dev.qrels")

    with pytest.raises(AptoolError, match=r"other\.run: 'q9': expected .* question of .*dev\.qrels"):
        library.evaluate(tmp_path / "dev.qrels", tmp_path / "other.run")


def test_measure_that_is_not_a_mean_is_not_compared():
    with pytest.raises(AptoolError, match="NumRel"):
        library.compare(RUN, BETTER, QRELS, "NumRel")


def test_fused_scores_equal_values_computed_by_hand(tmp_path):
    fused = library.fuse([Run(RUN), BETTER], k=60)

    assert fused.to_dict()["q1"] == pytest.approx({"b": 1 / 61 + 1 / 62, "a": 1 / 61 + 1 / 62})
    assert fused.to_dict()["q9"] == pytest.approx({"x": 1 / 61})
    fused.save(tmp_path / "fused.run")
    assert Run.load(tmp_path / "fused.run").tag == "fused"


@pytest.mark.parametrize("runs", [[], [RUN], ()])
def test_fusion_requires_two_runs(runs):
    with pytest.raises(AptoolError, match="expected at least two runs"):
        library.fuse(runs)


@pytest.mark.parametrize(
    "options", [{"k": -1}, {"k": float("nan")}, {"method": "sum"}, {"normalization": "z"}]
)
def test_invalid_options_of_fusion_are_refused(options):
    with pytest.raises(AptoolError, match=next(iter(options))):
        library.fuse([RUN, BETTER], **options)


def test_bm25_run_has_the_scores_of_the_baseline(data):
    from aptool.data.pools import list_units, read_pools
    from aptool.scoring.systems import Bm25, WordCounts
    from aptool.text.words import unicode_words

    (unit,) = list_units([data.path / "dev.pools.parquet"])
    pools = read_pools(unit)
    counts = WordCounts.of(pools.answers.to_pylist(), unicode_words)
    scores = Bm25(counts=counts).open().score(pools)

    run = library.bm25_run(data.pools("dev"))

    assert run.tag == "bm25"
    pairs = zip(pools.pair_question.tolist(), pools.answer_ids.to_pylist(), scores.tolist(), strict=True)
    ids = pools.question_ids.to_pylist()
    assert {(ids[q], a): score for q, a, score in pairs} == {
        (q, a): score for q, answers in run.to_dict().items() for a, score in answers.items()
    }


def test_level_has_the_meaning_of_trec_eval():
    # At level 2 only c of q2 is relevant.
    result = library.evaluate(QRELS, RUN, ["AP", "AP(rel=1)", "RR@10", "NumRel"], level=2)

    assert result.means == pytest.approx({"MAP": 1 / 3, "MAP(rel=1)": 0.5, "MRR@10": 1 / 3, "NumRel": 1})
    assert library.compare(RUN, BETTER, QRELS, "RR@1", level=2).difference == 0
    for level in (3, 0):
        with pytest.raises(AptoolError, match="level"):
            library.evaluate(QRELS, RUN, level=level)


def test_comparison_has_the_detectable_difference():
    # Differences 1, 0, 0: the standard deviation is 3 ** -0.5. 80% of simulated tests detect 3.264 of it.
    comparison = library.compare(RUN, BETTER, QRELS, "P@1")

    assert comparison.deviation == pytest.approx(3**-0.5)
    assert comparison.detectable() == pytest.approx(3.26 * 3**-0.5, rel=2e-3)
    assert library.compare(RUN, RUN, QRELS, "P@1").detectable() is None


BY = {"q1": "law", "q2": "health", "q3": "law"}


def test_groups_come_from_a_dict_a_frame_a_file_or_pools(tmp_path):
    frame = pl.DataFrame({"qid": list(BY), "domain": list(BY.values()), "other": [1, 2, 3]})
    frame.write_csv(tmp_path / "groups.csv")
    by_hand = {"health": 1.0, "law": 0.25}

    for by, groups in (
        (BY, None),
        ("domain", frame),
        ("domain", frame.lazy()),
        ("domain", frame.to_pandas()),
        ("domain", tmp_path / "groups.csv"),
    ):
        result = library.evaluate(QRELS, RUN, "MAP", by=by, groups=groups).groups
        assert {name: group.means["AP"] for name, group in result.items()} == by_hand

    pools = library.Pools(
        {"q1": ("Who is it?", {"a": "A", "b": "B"}), "q2": ("When?", {"c": "C"})},
    )
    result = library.evaluate(QRELS, RUN, "MAP", by="type", groups=pools)
    assert {name: group.means["MAP"] for name, group in result.groups.items()} == {"who": 0.5, "when": 1.0}
    assert result.ungrouped == ("q3",)


@pytest.mark.parametrize(
    ("by", "groups", "message"),
    [
        (7, None, "by: 7: expected a dict"),
        ({1: "law"}, None, "by: 1: expected question ids"),
        ({"q77": "law"}, None, "no question of the qrels is in a group"),
        ({}, None, "by: column 'group': no value"),
        (BY, BY, "groups: not allowed if by is a dict"),
        ("domain", None, "groups: None: expected a data frame, a list of dicts"),
        ("domain", pl.scan_csv("nowhere.csv"), "expected a frame that polars reads"),
        ("domain", pl.LazyFrame({"qid": ["q1"]}).select("domain"), "expected a frame that polars reads"),
        (None, BY, "by: None: expected a dict"),
    ],
)
def test_invalid_groups_are_refused(by, groups, message):
    with pytest.raises(AptoolError) as error:
        library.evaluate(QRELS, RUN, by=by, groups=groups)

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_runs_are_evaluated_without_loading_torch():
    code = (
        "import sys, aptool; aptool.evaluate; print(*(name in sys.modules for name in ('polars', 'torch')))"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert finished.stdout.split() == ["True", "False"]
