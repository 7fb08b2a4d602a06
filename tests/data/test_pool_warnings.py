"""Warnings about pools on which scores mean little: of an import, `data check` and `eval`."""

import pytest

from aptool.data.writing import PoolCounts

ONE_CANDIDATE = "1 of 2 questions have a single candidate, so no order can be wrong"
NONE_RELEVANT = "1 of 2 questions have no relevant candidate: any model scores 0 there"
# Two questions with three candidates.
ALL_RELEVANT = (
    "all {} candidates are relevant, so no order can be wrong: training takes negatives from "
    "other questions; to evaluate, draw pools with `aptool data folds` or --add-candidates"
)
# Nothing is trained on the pools of a run.
ALL_RELEVANT_OF_RUN = (
    "all {}, so no order can be wrong: draw pools with `aptool data folds` or --add-candidates"
)
SMALL_OF_LEVELS = "mean pool size 4.0 candidates: a random order already scores high"
SMALL = "mean pool size 1.5 candidates: a random order already scores high"


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([(5, 1), (5, 4)], []),
        ([(9, 1), (1, 1)], [ONE_CANDIDATE]),
        ([(5, 0), (5, 1)], [NONE_RELEVANT]),
        ([(5, 5), (5, 5)], [ALL_RELEVANT.format(10)]),
        # As in a list of frequently asked questions.
        ([(1, 1), (2, 2)], [ALL_RELEVANT.format(3)]),
        ([(5, 0), (5, 0)], ["none of the 10 candidates is relevant"]),
        ([(1, 0), (2, 1)], [ONE_CANDIDATE, NONE_RELEVANT, SMALL]),
    ],
)
def test_each_warning_is_one_line(pools, expected):
    """A pool is its number of candidates and of relevant candidates."""
    counts = PoolCounts()
    for candidates, relevant in pools:
        counts.add(candidates, relevant)
    assert counts.warnings == expected


def warnings(finished):
    assert finished.code == 0, finished.err
    return [line.partition("warning: ")[2] for line in finished.err if "warning: " in line]


def test_import_check_and_eval_warn_of_the_same_pools(aptool, tmp_path):
    # The repeated row is one candidate: "who?" has a single one.
    rows = ("question,answer,label", "who?,me,1", "who?,me,1", "why?,yes,0", "why?,no,0")
    (tmp_path / "a.csv").write_text("\n".join(rows))
    (tmp_path / "a.run").write_text(
        "test-Q0 Q0 test-Q0-0 1 1 x\ntest-Q1 Q0 test-Q1-0 1 2 x\ntest-Q1 Q0 test-Q1-1 2 1 x\n"
    )
    expected = [ONE_CANDIDATE, NONE_RELEVANT, SMALL]
    out = tmp_path / "out"

    imported = aptool("data", "import", "table", f"test={tmp_path / 'a.csv'}", "--output", out)
    checked = aptool("data", "check", out)
    evaluated = aptool("eval", tmp_path / "a.run", "--qrels", out / "test.qrels")

    assert warnings(imported) == warnings(checked) == warnings(evaluated) == expected
    # Without qrels, only the sizes of the pools are known.
    assert warnings(aptool("data", "check", out / "test.pools.parquet")) == [ONE_CANDIDATE, SMALL]


# Three candidates with the grades 1, 2 and 2, and an answer of grade 3 that the run lacks.
ALL_FROM_1 = ALL_RELEVANT_OF_RUN.format("3 candidates are relevant")
SMALL_OF_LEVELS_3 = SMALL_OF_LEVELS.replace("4.0", "3.0")
NONE_FROM_3 = "none of the 3 candidates is relevant at level 3"


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        ("MAP", [ALL_FROM_1]),
        ("MAP(rel=3)", [NONE_FROM_3, SMALL_OF_LEVELS_3]),
        ("MAP,P(rel=2)@1", [ALL_FROM_1, SMALL_OF_LEVELS_3]),
    ],
)
def test_warnings_of_an_evaluation_use_the_levels_of_its_measures(aptool, tmp_path, measures, expected):
    (tmp_path / "a.qrels").write_text("q 0 a 1\nq 0 b 2\nq 0 c 2\nq 0 missed 3\n")
    (tmp_path / "a.run").write_text("q Q0 a 1 3 x\nq Q0 b 2 2 x\nq Q0 c 3 1 x\n")
    options = ("--qrels", tmp_path / "a.qrels", "--measures", measures)
    assert warnings(aptool("eval", tmp_path / "a.run", *options)) == expected


def test_gaps_of_several_runs_are_logged_once(aptool, tmp_path):
    (tmp_path / "a.qrels").write_text("q 0 a 1\np 0 a 1\n")
    runs = [tmp_path / f"{name}.run" for name in "abc"]
    for run in runs:
        run.write_text("q Q0 a 1 2 x\n" + "q Q0 b 2 1 x\n" * (run.name != "c.run"))

    for command in ("eval", "compare"):
        finished = aptool(command, *runs, "--qrels", tmp_path / "a.qrels")

        gaps = [line for line in finished.err if "missing" in line or "not judged" in line]
        shown = list("abc") if command == "compare" else list(map(str, runs))
        first, second = (", ".join(names) for names in (shown, shown[:2]))
        unjudged = "candidates not judged or judged below 0, counted as not relevant: 1 (q b)"
        assert gaps == [
            f"{first}: questions missing from the run, counted as 0: 1 of 2 (p)",
            f"{second}: {unjudged}",
        ]
