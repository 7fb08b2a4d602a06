"""``aptool compare``: its table, JSON and shown questions, and one error line per mistake."""

import json

import pytest
from tiny import row, write_pools

# Four questions, each with a relevant answer `a` and a non-relevant answer `b`.
QRELS = "".join(f"q{number} 0 a 1\nq{number} 0 b 0\n" for number in range(1, 5))


def run_of(*hits, questions=4, tag="t"):
    """A run that ranks the relevant answer first for the questions in ``hits``, else second."""
    lines = []
    for number in range(1, questions + 1):
        first, second = ("a", "b") if number in hits else ("b", "a")
        lines += [f"q{number} Q0 {first} 1 2 {tag}\n", f"q{number} Q0 {second} 2 1 {tag}\n"]
    return "".join(lines)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with qrels, a baseline that is right on question 4, and a system that is right on 1 to 3."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.qrels").write_text(QRELS)
    (tmp_path / "dev.old.run").write_text(run_of(4, tag="old"))
    (tmp_path / "dev.new.run").write_text(run_of(1, 2, 3, tag="new"))
    return tmp_path


def test_table_by_hand(aptool):
    code, out, err = aptool("compare", "dev.old.run", "dev.new.run", "--measures", "P@1")

    assert code == 0
    assert err == ["--qrels dev.qrels (default)"]
    # Differences 1, 1, 1, -1: mean 1/2, standard deviation 1. Of the 16 sign assignments, 10 give a sum at
    # least as far from 0.
    words = [line.split() for line in out]
    assert words[0] == [
        *("questions", "old", "mean", "difference", "95%", "interval"),
        *("wins", "ties", "losses", "d", "p", "Holm"),
    ]
    assert words[1] == [
        *("P@1,", "new", "4", "0.2500", "0.7500", "+0.5000", *words[1][6:8]),
        *("3", "0", "1", "+0.50", "0.6250", "0.6250"),
    ]
    # A t-test of four pairs has power 0.8 for an effect of 2.128 standard deviations; P@1 is at most 1.
    assert out[2:6] == [
        "",
        "p: permutation test; Holm: corrected for 1 comparison",
        "minimum detectable difference (power 0.8, alpha 0.05): above 1 (P@1)",
        "P@1: new and old do not differ significantly (p = 0.6250)",
    ]


def test_significant_difference_is_reported_in_a_sentence(aptool, folder):
    (folder / "dev.qrels").write_text("".join(f"q{number} 0 a 1\n" for number in range(1, 9)))
    (folder / "dev.old.run").write_text(run_of(questions=8))
    (folder / "dev.new.run").write_text(run_of(*range(1, 9), questions=8))

    _, out, _ = aptool("compare", "dev.old.run", "dev.new.run", "--measures", "P@1,RR", "--top", 0)
    _, swapped, _ = aptool("compare", "dev.new.run", "dev.old.run", "--measures", "P@1", "--top", 0)

    # Eight differences with the same sign: p = 2/2^8 = 0.0078. Holm doubles it for two comparisons.
    assert out[-2:] == [
        "P@1: new is significantly better than old, by 1.0000 (p = 0.0156)",
        "MRR: new is significantly better than old, by 0.5000 (p = 0.0156)",
    ]
    assert swapped[-1] == "P@1: old is significantly worse than new, by 1.0000 (p = 0.0078)"


def test_json_holds_everything(aptool, folder):
    (folder / "dev.old2.run").write_text(run_of(4, tag="again"))
    runs = ("dev.old.run", "dev.new.run", "dev.old2.run")

    _, out, _ = aptool("compare", *runs, "--measures", "P@1", "--format", "json", "--top", 1)
    document = json.loads("\n".join(out))

    assert document["qrels"] == "dev.qrels"
    assert document["runs"] == {"old": "dev.old.run", "new": "dev.new.run", "old2": "dev.old2.run"}
    assert (document["confidence"], document["baseline"]) == (0.95, "old")
    new, old2 = document["comparisons"]
    low, high = new.pop("low"), new.pop("high")
    assert -1 < low < 0.5 < high <= 1
    assert new == {
        "system": "new",
        "measure": "P@1",
        "questions": 4,
        "baseline": 0.25,
        "mean": 0.75,
        "difference": 0.5,
        "wins": 3,
        "ties": 0,
        "losses": 1,
        "effect": 0.5,
        "detectable": pytest.approx(2.1279, abs=1e-4),
        "p": 0.625,
        "p_holm": 1.0,
        "t_test_p": pytest.approx(0.391, abs=5e-4),
        "t_test_p_holm": pytest.approx(0.782, abs=1e-3),
        "significant": False,
    }
    assert (old2["system"], old2["ties"], old2["p"]) == ("old2", 4, 1.0)
    changed, unchanged = document["deltas"]
    assert (changed["system"], changed["better"], changed["worse"]) == ("new", 3, 1)
    (gained,) = changed["gained"]
    assert gained == {
        "question_id": "q1",
        "before": 0.0,
        "after": 1.0,
        "question": None,
        "relevant": "a",
        "rank_before": 2,
        "rank_after": 1,
        "first_before": "b",
        "first_after": "a",
        **dict.fromkeys(["relevant_text", "first_before_text", "first_after_text"]),
    }
    assert (unchanged["gained"], unchanged["lost"]) == ([], [])


def test_tests_in_each_group_of_questions(aptool, folder):
    """Relevant answers of 1, 1, 15 and 15 words; groups up to 2, 4, ..., 14 and 15 words."""
    answers = {"q1": "one", "q2": "one", "q3": "x " * 15, "q4": "x " * 15}
    rows = [row(name, "?", (("a", text), ("b", "no"))) for name, text in answers.items()]
    write_pools(folder / "dev.pools.parquet", rows)
    runs = ("compare", "dev.old.run", "dev.new.run", "--measures", "P@1", "--by", "length", "--top", 0)

    _, out, err = aptool(*runs)
    _, document, _ = aptool(*runs, "--format", "json")

    words = [line.split() for line in out]
    assert words[1][:5] == ["P@1,", "new", "4", "0.2500", "0.7500"]
    # Two gains of two questions, p = 2/4; Holm for 8 groups.
    first = ["up", "to", "2", "words", "(few)", "2", "0.0000", "1.0000", "+1.0000", "[1.0000,", "1.0000]"]
    assert words[2] == [*first, "2", "0", "0", "0.5000", "1.0000"]
    assert words[9][:9] == ["up", "to", "15", "words", "(few)", "4", "0.2500", "0.7500", "+0.5000"]
    assert "p: permutation test; Holm: corrected for 1 comparison, in groups for 8" in out
    assert "--by length: groups with under 10 questions, marked (few): 8" in err
    groups = [entry["group"] for entry in json.loads("\n".join(document))["comparisons"]]
    assert groups == [None, *(f"up to {most} words" for most in (*range(2, 16, 2), 15))]


def test_questions_with_the_largest_differences_are_shown_with_their_texts(aptool, folder):
    texts = {"q1": "why\x1b[31m so\nred?", "q2": "what " * 60, "q3": "which", "q4": "שלום 🙂 <b>"}
    candidates = (("a", "the relevant one"), ("b", "another one"))
    write_pools(folder / "dev.pools.parquet", [row(name, text, candidates) for name, text in texts.items()])

    _, out, err = aptool("compare", "dev.old.run", "dev.new.run", "--measures", "MRR", "--top", 2)

    assert err == ["--qrels dev.qrels (default)", "--pools dev.pools.parquet (default)"]
    shown = out[out.index("MRR: largest gains of new over old: 2 of 3") :]
    assert shown[1:4] == [
        "  q1  0.5000 → 1.0000  why\\x1b[31m so red?",
        "      relevant, rank 2 → 1: a  the relevant one",
        "      first in old: b  another one",
    ]
    assert len(shown[4]) == 110
    assert shown[4].endswith("what what w…")
    assert shown[8:] == [
        "MRR: largest losses of new over old: 1",
        "  q4  1.0000 → 0.5000  שלום 🙂 <b>",
        "      relevant, rank 1 → 2: a  the relevant one",
        "      first in new: b  another one",
    ]


def test_runs_that_miss_questions(aptool, folder):
    (folder / "dev.qrels").write_text(QRELS + "q5 0 a 1\n")

    code, out, err = aptool("compare", "dev.old.run", "dev.new.run", "--measures", "P@1", "--format", "json")

    (entry,) = json.loads("\n".join(out))["comparisons"]
    assert (code, entry["mean"], entry["ties"]) == (0, 3 / 5, 1)
    assert err[1:] == ["old, new: questions missing from the run, counted as 0: 1 of 5 (q5)"]
    (folder / "dev.new.run").write_text(run_of(1, 2, 3, questions=2))
    code, out, err = aptool("compare", "dev.old.run", "dev.new.run")
    assert (code, out) == (1, [])
    expected = "lacks 2 questions of dev.old.run (q3, q4); expected the same questions"
    assert err[1:] == [f"aptool: dev.new.run: {expected}"]
    code, _, err = aptool("compare", "dev.new.run", "dev.old.run")
    assert code == 1
    assert "dev.old.run: has 2 that dev.new.run lacks (q3, q4)" in err[1]


def test_different_candidates_are_reported(aptool, folder):
    (folder / "dev.new.run").write_text(run_of(1, 2, 3) + "q2 Q0 c 3 0 t\n")

    _, _, err = aptool("compare", "dev.old.run", "dev.new.run")

    assert err[-1] == "new: ranks different candidates than old for 1 question (q2)"


def test_tables_for_other_programs(aptool, folder):
    runs = ("compare", "BM_25=dev.old.run", "new=dev.new.run")

    _, csv, _ = aptool(*runs, "--measures", "P@1", "--format", "csv")
    _, latex, _ = aptool(*runs, "--measures", "P@1,MRR", "--format", "latex")

    entry = dict(zip(*(line.split(",") for line in csv), strict=True))
    assert entry["system"] == "new"
    figures = ("baseline", "mean", "p", "wins", "detectable")
    assert [float(entry[name]) for name in figures] == [0.25, 0.75, 0.625, 3, pytest.approx(2.1279, abs=1e-4)]
    assert latex == [
        r"\begin{tabular}{lrrrrrr}",
        r"\toprule",
        r"system & P@1 & $\Delta$ & p & MRR & $\Delta$ & p \\",
        r"\midrule",
        r"BM\_25 & 0.2500 &  &  & 0.6250 &  &  \\",
        r"new & 0.7500 & +0.5000 & 1.0000 & 0.8750 & +0.2500 & 1.0000 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_runs_are_named_by_the_part_in_which_paths_differ(aptool, folder):
    for system, hits in (("qa-cnn", (4,)), ("ap-cnn", (1, 2))):
        (folder / "runs" / system).mkdir(parents=True)
        (folder / "runs" / system / "test.run").write_text(run_of(*hits))

    _, out, _ = aptool("compare", "runs/qa-cnn/test.run", "runs/ap-cnn/test.run", "--qrels", "dev.qrels")

    assert any(line.startswith("MAP: ap-cnn and qa-cnn do not differ") for line in out)


TWO = ["dev.old.run", "dev.new.run"]
WRONG = {
    "one run": (TWO[:1], 2, "1 run given; expected at least 2"),
    "a run twice": (TWO[:1] * 2, 2, "dev.old.run: given more than once"),
    "a name twice": (["a=dev.old.run", "a=dev.new.run"], 2, "a: given more than once"),
    "a sum": ([*TWO, "--measures", "MAP,NumRet"], 2, "NumRet: not means over questions"),
    "no such pools": ([*TWO, "--pools", "x.parquet"], 1, "x.parquet: file not found"),
    "unused pools": ([*TWO, "--pools", "x", "--top", "0"], 2, "--pools: requires --by, or --top"),
    "no pools of groups": ([*TWO, "--by", "length"], 2, "no dev.pools.parquet in the folder of the qrels"),
    "run as pools": ([*TWO, "--pools", "dev.old.run"], 1, "a readable Parquet file"),
}


@pytest.mark.parametrize(("arguments", "exit_code", "expected"), WRONG.values(), ids=WRONG.keys())
def test_mistakes_are_one_line(aptool, arguments, exit_code, expected):
    code, out, err = aptool("compare", *arguments, "--qrels", "dev.qrels")

    assert (code, out, len(err)) == (exit_code, [], 1)
    assert expected in err[0]


def test_relevant_answer_uses_the_level_of_the_measure(aptool, folder):
    (folder / "dev.qrels").write_text("q1 0 a 1\nq1 0 b 2\nq1 0 c 0\nq2 0 a 2\n")
    for tag, order in (("old", "acb"), ("new", "abc")):
        lines = [f"q1 Q0 {answer} 1 {-rank} {tag}\n" for rank, answer in enumerate(order)]
        (folder / f"dev.{tag}.run").write_text("".join([*lines, f"q2 Q0 a 1 1 {tag}\n"]))

    given = ("compare", "dev.old.run", "dev.new.run", "--top", "1", "--format", "json")
    _, out, _ = aptool(*given, "--measures", "AP(rel=2)")

    assert json.loads("\n".join(out))["deltas"][0]["gained"][0]["relevant"] == "b"


def test_equal_differences_have_no_effect_size_and_no_t_test(aptool, folder):
    (folder / "dev.qrels").write_text("q1 0 a 1\n")

    code, out, _ = aptool("compare", "dev.old.run", "dev.new.run", "--measures", "P@1")
    _, document, _ = aptool("compare", "dev.old.run", "dev.new.run", "--measures", "P@1", "--format", "json")

    assert code == 0
    assert json.loads("\n".join(document))["comparisons"][0]["effect"] is None
    # With one question, both sign assignments are equally far from 0, so p = 1.
    figures = ["1", "0.0000", "1.0000", "+1.0000", "[1.0000,", "1.0000]", "1", "0", "0", "1.0000", "1.0000"]
    assert out[1].split() == ["P@1,", "new", *figures]
    assert out[4].startswith("all questions have the same difference")
    assert "nan" not in "".join(out)
