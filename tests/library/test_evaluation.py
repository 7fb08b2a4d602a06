"""The public functions that evaluate, compare and fuse runs."""

import json

import pytest

import aptool as library
from aptool import AptoolError, Qrels, Run

# The relevant answer of q1 has rank 2, that of q2 rank 1, and q3 is missing.
QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}, "q3": {"d": 1}}
RUN = {"q1": {"b": 2.0, "a": 1.0}, "q2": {"c": 1.0}, "q9": {"x": 1.0}}
BETTER = {"q1": {"a": 2.0, "b": 1.0}, "q2": {"c": 1.0}}


@pytest.mark.parametrize(
    "wrong", [None, 7, [], {}, {"q": 1}, {7.5: {"a": 1}}, "nowhere", {"q1": {"a": None}}]
)
def test_invalid_runs_and_qrels_are_refused(wrong):
    for use in (
        lambda: library.evaluate(wrong, RUN),
        lambda: library.evaluate(QRELS, wrong),
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


def test_figures_equal_those_of_the_commands(aptool, data, model):
    """A run of BM25, with reversed rankings for nine questions, and a run of a model; also as files."""
    scores = library.bm25_run(data.pools("dev")).to_dict()
    for question in sorted(scores)[:9]:
        scores[question] = {answer: -score for answer, score in scores[question].items()}
    bm25, ap = Run(scores, tag="bm25"), model.run(data.pools("dev"))
    bm25.save("bm25.run")
    ap.save("ap.run")
    given = ("bm25.run", "ap.run", "--qrels", "data/wikiqa/dev.qrels", "--measures", "MAP,MRR")
    evaluated = json.loads("\n".join(aptool("eval", *given, "--json").out))["runs"]
    compared = json.loads("\n".join(aptool("compare", *given, "--format", "json").out))["comparisons"]

    for run, entry in zip((bm25, ap), evaluated, strict=True):
        assert library.evaluate(data.qrels("dev"), run, ["AP", "RR"]).means == entry["measures"]
        by_path = library.evaluate("data/wikiqa/dev.qrels", entry["run"], ["MAP", "MRR"])
        assert by_path.means == entry["measures"]
    rows = library.compare(bm25, [ap], data.qrels("dev"), ["AP", "RR"]).to_polars().to_dicts()
    assert [(row["system"], row["measure"]) for row in rows] == [("ap-cnn", "MAP"), ("ap-cnn", "MRR")]
    assert rows[0]["p"] < 0.05
    assert [{**row, "system": "ap"} for row in rows] == compared  # named by the file


@pytest.mark.parametrize("tags", [("x", "x (1)", "x"), ("x", "x", "x")])
def test_several_runs_are_compared_with_the_baseline(tags):
    # P@1 is 0 for the baseline, 1/3 for a run that ranks nothing relevant first in q1, and 2/3 for BETTER.
    runs = {"q1": {"b": 1.0}, "q2": {"x": 1.0}}, {"q1": {"b": 1.0}, "q2": {"c": 1.0}}, BETTER
    baseline, *systems = map(Run, runs, tags)

    comparisons = library.compare(baseline, systems, QRELS, ["P@1", "MRR"])[:2]

    assert [(row.system, row.baseline) for row in comparisons] == [(tag, 0) for tag in tags[1:]]
    assert [row.difference for row in comparisons] == pytest.approx([1 / 3, 2 / 3])
    # Differences 0, 1, 0 and 1, 1, 0: the standard deviation is 3 ** -0.5.
    # 80% of simulated tests detect 3.264 of it.
    assert [row.detectable for row in comparisons] == pytest.approx([3.26 * 3**-0.5] * 2, rel=2e-3)
    (same,) = library.compare(baseline, baseline, QRELS, "P@1")
    assert (same.detectable, same.p, same.significant) == (None, 1.0, False)


@pytest.mark.parametrize(
    ("runs", "k", "message"),
    [
        ([], 60, "at least two runs"),
        ([RUN], 60, "at least two runs"),
        ([RUN, BETTER], -1, "k -1"),
        ([RUN] * 2, float("nan"), "k nan"),
    ],
)
def test_mistakes_of_fusion_are_refused(runs, k, message):
    with pytest.raises(AptoolError, match=message):
        library.fuse(runs, k=k)


def test_bm25_run_has_the_scores_of_the_baseline(data):
    from aptool.data.pools import list_units, read_pools
    from aptool.scoring.systems import Bm25
    from aptool.text.bm25 import WordCounts

    (unit,) = list_units([data.path / "dev.pools.parquet"])
    pools = read_pools(unit)
    counts = WordCounts.of(pools.answers.to_pylist())
    scores = Bm25(counts=counts).open().score(pools)

    run = library.bm25_run(data.pools("dev"))

    assert run.tag == "bm25"
    pairs = zip(pools.pair_question.tolist(), pools.answer_ids.to_pylist(), scores.tolist(), strict=True)
    ids = pools.question_ids.to_pylist()
    assert {(ids[q], a): score for q, a, score in pairs} == {
        (q, a): score for q, answers in run.to_dict().items() for a, score in answers.items()
    }
