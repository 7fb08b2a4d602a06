"""``aptool eval``: its tables, JSON and files, and one error line per mistake."""

import gzip
import json
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest
from tiny import row, write_pools

QRELS = "q1 0 a 1\nq1 0 b 0\nq2 0 a 0\nq2 0 b 1\n"
# Reciprocal ranks 1 and 1/2: MRR is 3/4. With one relevant answer per question, MAP is equal to MRR.
RUN = "q1 Q0 a 1 2 bm25\nq1 Q0 b 2 1 bm25\nq2 Q0 a 1 2.5 bm25\nq2 Q0 b 2 1.5 bm25\n"
PERFECT = "q1 Q0 a 1 2 perfect\nq2 Q0 b 1 1 perfect\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with dev.qrels and dev.run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.qrels").write_text(QRELS)
    (tmp_path / "dev.run").write_text(RUN)
    return tmp_path


@pytest.fixture
def aptool(aptool, folder):
    """Run a command of aptool, without the warnings about small pools."""

    def run(*arguments):
        finished = aptool(*arguments)
        return finished._replace(err=[line for line in finished.err if ": warning: " not in line])

    return run


def test_table_of_one_run(aptool):
    code, out, err = aptool("eval", "dev.run", "--qrels", "dev.qrels")

    assert code == 0
    assert [line.split() for line in out] == [
        ["run", "questions", "MAP", "MRR", "P@1"],
        ["dev.run", "2", "0.7500", "0.7500", "0.5000"],
    ]
    assert err == []


def test_each_run_is_a_row(aptool, folder):
    (folder / "perfect.run").write_text(PERFECT)

    code, out, err = aptool(
        "eval", "dev.run", "perfect.run", "--qrels", "dev.qrels", "--measures", "P@1,NumRet"
    )

    assert (code, err) == (0, [])
    assert [line.split() for line in out[1:]] == [
        ["dev.run", "2", "0.5000", "4"],
        ["perfect.run", "2", "1.0000", "2"],
    ]
    # Columns are aligned on the right.
    assert len({len(line) for line in out}) == 1


def test_many_measures_become_rows(aptool):
    _, out, _ = aptool(
        "eval",
        "dev.run",
        "--qrels",
        "dev.qrels",
        "--measures",
        "P@1,P@2,P@3,P@5,P@10,R@1,R@5,R@10,MAP,MRR, Success@1 Success@5",
    )

    assert out[0].split() == ["measure", "dev.run"]
    cells = dict(line.split() for line in out[1:])
    assert len(cells) == 13  # questions and twelve measures
    # One relevant candidate per question, so P@5 = 1/5.
    assert (cells["P@5"], cells["P@1"], cells["Success@5"]) == ("0.2000", "0.5000", "1.0000")


def test_table_on_a_terminal_has_the_same_values_and_plain_names(aptool, folder, monkeypatch):
    (folder / "[red]dev.run").write_text(RUN)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")

    code, out, _ = aptool("eval", "[red]dev.run", "--qrels", "dev.qrels")

    assert code == 0
    assert ["[red]dev.run", "2", "0.7500", "0.7500", "0.5000"] in [line.split() for line in out]


@pytest.mark.parametrize(
    ("run", "qrels"),
    [
        ("dev.run", "dev.qrels"),
        ("test.ap-cnn.run", "test.qrels"),
        ("test.ap-cnn.run", "test.ap-cnn.qrels"),
        ("test.run.gz", "test.qrels.gz"),
        ("scores", "scores.qrels"),
    ],
)
def test_qrels_next_to_the_run_are_used_and_logged(aptool, folder, run, qrels):
    data = folder / "data"
    data.mkdir()
    for name, text in ((run, RUN), (qrels, QRELS)):
        content = text.encode()
        (data / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    code, out, err = aptool("eval", f"data/{run}")

    assert code == 0
    assert out[1].split()[2] == "0.7500"
    assert err == [f"--qrels data/{qrels} (default)"]


def test_missing_qrels_are_one_line(aptool, folder):
    (folder / "test.ap-cnn.run").write_text(RUN)

    code, out, err = aptool("eval", "test.ap-cnn.run")

    assert code == 2
    assert out == []
    assert len(err) == 1
    assert "no test.ap-cnn.qrels or test.qrels in its folder; pass --qrels FILE" in err[0]


def test_missing_qrels_of_a_run_without_a_name_are_one_line(aptool, folder):
    (folder / ".run").write_text(RUN)

    assert aptool("eval", ".run") == (2, [], ["aptool: .run: no qrels in its folder; pass --qrels FILE"])


def test_runs_with_different_qrels_are_refused(aptool, folder):
    (folder / "test.run").write_text(RUN)
    (folder / "test.qrels").write_text(QRELS)

    code, _, err = aptool("eval", "dev.run", "test.run")

    assert code == 2
    assert len(err) == 1
    assert "dev.qrels, test.qrels" in err[0]


def test_gaps_are_logged_on_stderr_with_five_examples(aptool, folder):
    (folder / "dev.qrels").write_text(QRELS + "".join(f"q{i} 0 a 1\n" for i in range(3, 10)))
    (folder / "dev.run").write_text(RUN + "z Q0 a 1 1 t\nq1 Q0 new 3 0 t\n")

    code, out, err = aptool("eval", "dev.run", "--qrels", "dev.qrels")

    assert code == 0
    # (1 + 1/2) / 9
    assert out[1].split()[:3] == ["dev.run", "9", "0.1667"]
    assert err == [
        "dev.run: questions missing from the run, counted as 0: 7 of 9 (q3, q4, q5, q6, q7, …)",
        "dev.run: questions not in the qrels, left out: 1 (z)",
        "dev.run: candidates not judged or judged below 0, counted as not relevant: 1 (q1 new)",
    ]


def test_json_is_in_full_precision(aptool, folder):
    (folder / "dev.run").write_text("q1 Q0 b 1 3 t\nq1 Q0 x 2 2 t\nq1 Q0 a 3 1 t\nz Q0 a 1 1 t\n")

    code, out, _ = aptool("eval", "dev.run", "--qrels", "dev.qrels", "--json", "--measures", "RR,NumQ")

    assert code == 0
    assert json.loads("\n".join(out)) == {
        "qrels": "dev.qrels",
        "measures": ["MRR", "NumQ"],
        "runs": [
            {
                "run": "dev.run",
                "tag": "t",
                "questions": 2,
                "measures": {"MRR": 1 / 3 / 2, "NumQ": 2.0},
                "missing": ["q2"],
                "extra": ["z"],
                "unjudged": 1,
            }
        ],
    }


@pytest.mark.parametrize(
    ("name", "read"), [("x.parquet", pl.read_parquet), ("x.csv", pl.read_csv), ("x.jsonl", pl.read_ndjson)]
)
def test_measures_of_every_question_are_written(aptool, folder, name, read):
    (folder / "perfect.run").write_text(PERFECT)

    code, _, _ = aptool(
        "eval", "dev.run", "perfect.run", "--qrels", "dev.qrels", "--per-question", f"out/{name}"
    )

    assert code == 0
    frame = read(folder / "out" / name)
    assert frame.columns == ["run", "question_id", "candidates", "MAP", "MRR", "P@1"]
    assert frame.rows() == [
        ("dev.run", "q1", 2, 1.0, 1.0, 1.0),
        ("dev.run", "q2", 2, 0.5, 0.5, 0.0),
        ("perfect.run", "q1", 1, 1.0, 1.0, 1.0),
        ("perfect.run", "q2", 1, 1.0, 1.0, 1.0),
    ]
    assert {path.name for path in (folder / "out").iterdir()} == {name}


def test_intervals_follow_the_means(aptool):
    code, out, err = aptool(
        "eval", "dev.run", "--qrels", "dev.qrels", "--intervals", "--measures", "MAP,NumRet"
    )

    assert (code, err) == (0, [])
    # Average precision is 1 and 1/2, so a quarter of the resamples has mean 1 and a quarter has mean 1/2.
    # Both questions have two candidates, so NumRet is always 4.
    assert out[0].split() == ["run", "questions", "MAP", "NumRet"]
    assert out[1].split(maxsplit=2) == ["dev.run", "2", "0.7500 [0.5000, 1.0000]  4 [4, 4]"]


def test_intervals_of_a_hundred_questions(aptool, folder):
    lines = "".join(f"q{number} 0 a 1\n" for number in range(100))
    (folder / "dev.qrels").write_text(lines)
    # The relevant answer is first for 80 of 100 questions.
    run = "".join(f"q{n} Q0 {'a' if n < 80 else 'b'} 1 1 t\n" for n in range(100))
    (folder / "dev.run").write_text(run)

    arguments = ("eval", "dev.run", "--qrels", "dev.qrels", "--measures", "P@1", "--json")
    document = json.loads("\n".join(aptool(*arguments, "--intervals")[1]))
    narrow = json.loads("\n".join(aptool(*arguments, "--confidence", "0.5")[1]))

    assert (document["confidence"], narrow["confidence"]) == (0.95, 0.5)
    # Normal approximation: 0.8 ± 1.96 · 0.04 and 0.8 ± 0.674 · 0.04. Resampled means are multiples of 0.01.
    assert document["runs"][0]["intervals"]["P@1"] == pytest.approx([0.7216, 0.8784], abs=0.02)
    assert narrow["runs"][0]["intervals"]["P@1"] == pytest.approx([0.773, 0.827], abs=0.011)
    assert "intervals" not in json.loads("\n".join(aptool(*arguments)[1]))["runs"][0]


def test_per_question_output_does_not_replace_an_input(aptool, folder):
    shutil.copy(folder / "dev.qrels", folder / "x.csv")

    code, _, err = aptool("eval", "dev.run", "--qrels", "x.csv", "--per-question", "x.csv", "--overwrite")

    assert (code, len(err)) == (1, 1)
    assert "x.csv: also an input of this command" in err[0]
    assert (folder / "x.csv").read_bytes() == (folder / "dev.qrels").read_bytes()


@pytest.mark.parametrize("confidence", ["0", "0.2", "1", "95", "nan", "x"])
def test_confidence_out_of_range_is_a_usage_error(aptool, confidence):
    code, out, err = aptool("eval", "dev.run", "--confidence", confidence)

    assert (code, out, len(err)) == (2, [], 1)
    assert "--confidence" in err[0]


def test_unknown_ending_and_bad_measures_are_usage_errors(aptool):
    code, out, err = aptool("eval", "dev.run", "--per-question", "x.txt")
    assert (code, out, len(err)) == (2, [], 1)
    assert "x.txt: expected a name ending in one of .parquet, .csv, .jsonl" in err[0]

    code, out, err = aptool("eval", "dev.run", "--measures", "mmr,map,nDGC@10")
    assert (code, out, len(err)) == (2, [], 1)
    assert "unknown measures: 'mmr', 'nDGC@10'; expected MAP[@K], MRR[@K], P@K" in err[0]


MALFORMED = {
    "short line": ("dev.run", b"q1 Q0 a 1 2 t\nq1 Q0 b 2\n", "line 2", "expected 6 fields"),
    "text score": (
        "dev.run",
        b"q1 Q0 a 1 high t\n",
        "line 1: column 'score': 'high'",
        "expected a finite number",
    ),
    "NaN": ("dev.run", b"\nq1 Q0 a 1 nan t\n", "line 2: column 'score': 'nan'", "expected a finite number"),
    "duplicate candidate": (
        "dev.run",
        b"q1 Q0 a 1 2 t\nq1 Q0 b 2 1 t\nq1 Q0 a 3 0 t\n",
        "line 3: column 'answer_id': 'q1 a'",
        "line 1 has this one already",
    ),
    "float relevance": (
        "dev.qrels",
        b"q1 0 a 0.9\n",
        "line 1: column 'relevance': '0.9'",
        "expected a whole number",
    ),
    "empty run": ("dev.run", b"", "no line", "expected lines of"),
    "empty qrels": ("dev.qrels", b"", "no line", "expected lines of"),
    "binary run": ("dev.run", b"PAR1\n\x15\x00\x15", "a Parquet file", "expected text"),
    "bytes that are not UTF-8": ("dev.qrels", b"q1 0 \xff 1\n", "line 1", "expected text in UTF-8"),
    "no common question": ("dev.run", b"Q1 Q0 a 1 2 t\n", "'Q1'", "one question of dev.qrels, such as 'q1'"),
}


@pytest.mark.parametrize(
    ("name", "content", "location", "expected"), MALFORMED.values(), ids=MALFORMED.keys()
)
def test_malformed_file_is_one_line(aptool, folder, name, content, location, expected):
    (folder / name).write_bytes(content)

    code, out, err = aptool("eval", "dev.run", "--qrels", "dev.qrels", "--per-question", "x.csv")

    assert code == 1
    assert out == []
    assert len(err) == 1
    assert f"{name}: {location}" in err[0]
    assert expected in err[0]
    assert not (folder / "x.csv").exists()


@pytest.mark.parametrize("arguments", [["none.run"], ["dev.run", "--qrels", "none.run"]])
def test_missing_file_is_one_line(aptool, arguments):
    code, out, err = aptool("eval", *arguments)

    assert (code, out, len(err)) == (1, [], 1)
    assert "none.run: file not found; expected a file that exists" in err[0]


def test_names_of_ir_measures_and_a_level(aptool, folder):
    (folder / "dev.qrels").write_text("q1 0 a 1\nq1 0 b 2\nq2 0 a 0\nq2 0 b 3\n")
    names = "AP,RR@1,P(rel=3)@1,NumRel,MRR@10"

    code, out, err = aptool("eval", "dev.run", "--qrels", "dev.qrels", "--measures", names, "--level", "2")

    # b is second in both questions.
    assert (code, err) == (0, [])
    assert [line.split() for line in out] == [
        ["run", "questions", "MAP", "MRR@1", "P(rel=3)@1", "NumRel", "MRR@10"],
        ["dev.run", "2", "0.5000", "0.0000", "0.0000", "2", "0.5000"],
    ]


@pytest.mark.parametrize(("level", "exit_code"), [("2", 1), ("0", 2), ("x", 2), ("1000001", 2)])
def test_levels_out_of_range_are_one_line(aptool, level, exit_code):
    code, out, err = aptool("eval", "dev.run", "--qrels", "dev.qrels", "--level", level)

    assert (code, out, len(err)) == (exit_code, [], 1)
    if exit_code == 1:
        assert err[0].endswith("expected a relevance level of at most 1, the highest relevance in it")


def test_limits_are_the_scores_of_a_perfect_reranking(aptool, folder):
    # q1 ranks both relevant answers second and third; q2 ranks one of two, second; q3 and q4 rank none.
    (folder / "dev.qrels").write_text("q1 0 a 1\nq1 0 b 1\nq2 0 a 1\nq2 0 z 1\nq3 0 z 1\nq4 0 z 0\n")
    (folder / "dev.run").write_text(
        "q1 Q0 c 1 3 t\nq1 Q0 b 2 2 t\nq1 Q0 a 3 1 t\nq2 Q0 c 1 2 t\nq2 Q0 a 2 1 t\n"
        "q3 Q0 a 1 1 t\nq4 Q0 z 1 1 t\n"
    )
    arguments = ("eval", "dev.run", "--qrels", "dev.qrels", "--measures", "map,RR@10", "--limits")

    code, out, _ = aptool(*arguments)

    assert code == 0
    # Recall 1, 1/2, 0 and 0 over four questions.
    assert [line.split() for line in out[:-1]] == [
        ["run", "questions", "MAP", "MRR@10"],
        ["dev.run", "4", f"{(7 / 12 + 1 / 4) / 4:.4f}", "0.2500"],
        ["dev.run,", "best", "order", "0.3750", "0.5000"],
    ]
    assert out[-1] == (
        "dev.run: the candidates have 37.5% of the relevant answers; "
        "1 of 3 questions have no relevant candidate"
    )
    (result,) = json.loads("\n".join(aptool(*arguments, "--json")[1]))["runs"]
    assert result["limits"] == {
        "recall": 0.375,
        "questions": 3,
        "without": 1,
        "relevant": 5,
        "found": 3,
        "best": {"MAP": 0.375, "MRR@10": 0.5},
    }


def test_tables_for_papers_and_pages(aptool, folder):
    (folder / "[a]_b|c.run").write_text(PERFECT)
    arguments = ("eval", "dev.run", "[a]_b|c.run", "--qrels", "dev.qrels", "--measures", "P@1,MRR@10")

    assert aptool(*arguments, "--markdown") == (
        0,
        [
            "| run | questions | P@1 | MRR@10 |",
            "| --- | ---: | ---: | ---: |",
            "| dev.run | 2 | 0.5000 | 0.7500 |",
            r"| \[a\]\_b\|c.run | 2 | 1.0000 | 1.0000 |",
        ],
        [],
    )
    assert aptool(*arguments, "--latex") == (
        0,
        [
            r"\begin{tabular}{lrrr}",
            r"\toprule",
            r"run & questions & P@1 & MRR@10 \\",
            r"\midrule",
            r"dev.run & 2 & 0.5000 & 0.7500 \\",
            r"{[}a{]}\_b|c.run & 2 & 1.0000 & 1.0000 \\",
            r"\bottomrule",
            r"\end{tabular}",
        ],
        [],
    )


def test_options_that_would_be_ignored_are_refused(aptool, folder):
    for arguments, reason in (
        (("--json", "--markdown"), "--json, --markdown and --latex: expected at most one of them"),
        (("--latex", "--markdown"), "expected at most one of them"),
        (("--pools", "nowhere.parquet"), "--pools: requires --by"),
        (("dev.run",), "dev.run: given more than once; expected different runs"),
    ):
        code, out, err = aptool("eval", "dev.run", "--qrels", "dev.qrels", *arguments)

        assert (code, out, len(err)) == (2, [], 1)
        assert reason in err[0]


def test_questions_missing_from_the_pools_are_reported(aptool, folder):
    write_pools("q2.pools.parquet", [row("q2", "who?", (("a", "one"), ("b", "two")))])
    write_pools("q9.pools.parquet", [row("q9", "who?", (("a", "one"),))])
    by_type = ("eval", "dev.run", "--qrels", "dev.qrels", "--by", "type", "--pools")

    code, out, err = aptool(*by_type, "q2.pools.parquet")

    assert code == 0
    assert out[2].split()[:4] == ["who", "(few)", "1", "0.5000"]
    assert err == [
        "--by type: questions in no group: 1 (q1)",
        "--by type: groups with under 10 questions, marked (few): 1",
    ]

    code, out, err = aptool(*by_type, "q9.pools.parquet")

    assert (code, out) == (2, [])
    assert err == ["aptool: --by type: no question of dev.qrels is in q9.pools.parquet"]


def test_metrics_per_group_of_a_user_column(aptool, folder):
    Path("groups.tsv").write_text("question_id\tdomain\nq1\tlaw\nq2\thealth\nq7\tlaw\n")
    arguments = ("eval", "dev.run", "--qrels", "dev.qrels", "--measures", "P@1", "--by", "domain")

    code, out, err = aptool(*arguments, "--groups", "groups.tsv")
    _, document, _ = aptool(*arguments, "--groups", "groups.tsv", "--json", "--intervals")

    assert code == 0
    # The run ranks the relevant answer of q1 first, and that of q2 second.
    assert [line.split() for line in out[1:]] == [
        ["dev.run", "2", "0.5000"],
        ["health", "(few)", "1", "0.0000"],
        ["law", "(few)", "1", "1.0000"],
    ]
    assert err == ["--by domain: groups with under 10 questions, marked (few): 2"]
    document = json.loads("\n".join(document))
    assert document["by"] == "domain"
    assert document["runs"][0]["groups"] == [
        {"name": name, "questions": 1, "few": True, "means": {"P@1": p}, "intervals": {"P@1": [p, p]}}
        for name, p in (("health", 0.0), ("law", 1.0))
    ]


def test_groups_are_read_from_a_column_of_the_pools(aptool, folder):
    pools = [row("q1", "who?", (("a", "one"),)), row("q2", "who?", (("a", "one"),))]
    write_pools("plain.pools.parquet", pools)
    pl.read_parquet("plain.pools.parquet").with_columns(year=pl.Series([999, 2010])).write_parquet(
        "dev.pools.parquet"
    )

    _, out, _ = aptool("eval", "dev.run", "--qrels", "dev.qrels", "--by", "year")
    code, nothing, err = aptool("eval", "dev.run", "--qrels", "dev.qrels", "--by", "month")

    assert [line.split()[:2] for line in out[2:]] == [["999", "(few)"], ["2010", "(few)"]]
    assert (code, nothing) == (2, [])
    assert "by month: expected length, question-length, type, or a column of groups" in err[-1]
    assert "expected one of question, candidates, year" in err[-1]


def test_the_folder_of_a_collection_is_named_instead_of_its_qrels(aptool, folder):
    (folder / "data").mkdir()
    (folder / "dev.qrels").rename(folder / "data" / "dev.qrels")
    (folder / "data" / "test.qrels").write_text("q1 0 a 0\nq1 0 b 1\n")
    (folder / "dev.run").rename(folder / "dev.bm25.run")
    finished = aptool("eval", "dev.bm25.run", "--qrels", "data", "--measures", "MRR", "--json")
    assert json.loads("\n".join(finished.out))["runs"][0]["measures"] == {"MRR": 0.75}
    assert finished.err == ["--qrels data: data/dev.qrels"]
    (folder / "dev.bm25.run").rename(folder / "mine.run")
    refused = aptool("eval", "mine.run", "--qrels", "data")
    assert refused.code == 2
    problem = "no mine.qrels for mine.run in it; expected one of its files: dev.qrels, test.qrels"
    assert refused.err[-1] == f"aptool: --qrels data: {problem}"


@pytest.mark.parametrize("order", [("dev.run", "dev.qrels"), ("dev.qrels", "dev.run")])
def test_qrels_given_as_a_run_are_recognised(aptool, order):
    finished = aptool("eval", *order)
    assert finished.code == 1
    assert finished.err[-1].startswith("aptool: dev.qrels: line 1: 'q1 0 a 1': expected 6 fields")
    assert finished.err[-1].endswith("this looks like qrels, for --qrels")
