"""``aptool eval``: its tables, JSON and files, and one error line per mistake."""

import gzip
import json
import shutil

import polars as pl
import pytest

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


def test_each_run_is_a_row(aptool, folder):
    (folder / "perfect.run").write_text(PERFECT)

    code, out, err = aptool(
        "eval", "dev.run", "perfect.run", "--qrels", "dev.qrels", "--measures", "P@1,RR,NumRet"
    )

    assert (code, err) == (0, [])
    assert [line.split() for line in out] == [
        ["run", "questions", "P@1", "MRR", "NumRet"],
        ["dev.run", "2", "0.5000", "0.7500", "4"],
        ["perfect.run", "2", "1.0000", "1.0000", "2"],
    ]
    # Columns are aligned on the right.
    assert len({len(line) for line in out}) == 1


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


def test_intervals_of_a_hundred_questions(aptool, folder):
    lines = "".join(f"q{number} 0 a 1\n" for number in range(100))
    (folder / "dev.qrels").write_text(lines)
    # The relevant answer is first for 80 of 100 questions.
    run = "".join(f"q{n} Q0 {'a' if n < 80 else 'b'} 1 1 t\n" for n in range(100))
    (folder / "dev.run").write_text(run)
    arguments = ("eval", "dev.run", "--qrels", "dev.qrels", "--measures", "P@1,NumRet", "--intervals")

    document = json.loads("\n".join(aptool(*arguments, "--json")[1]))
    _, out, _ = aptool(*arguments)

    assert document["confidence"] == 0.95
    # Normal approximation: 0.8 ± 1.96 · 0.04.
    low, high = document["runs"][0]["intervals"]["P@1"]
    assert (low, high) == pytest.approx((0.7216, 0.8784), abs=0.02)
    assert out[1].split(maxsplit=2) == ["dev.run", "100", f"0.8000 [{low:.4f}, {high:.4f}]  100 [100, 100]"]


def test_per_question_output_does_not_replace_an_input(aptool, folder):
    shutil.copy(folder / "dev.qrels", folder / "x.csv")

    code, _, err = aptool("eval", "dev.run", "--qrels", "x.csv", "--per-question", "x.csv", "--overwrite")

    assert (code, len(err)) == (1, 1)
    assert "x.csv: also an input of this command" in err[0]
    assert (folder / "x.csv").read_bytes() == (folder / "dev.qrels").read_bytes()


def test_gaps_are_logged_and_json_is_in_full_precision(aptool, folder):
    (folder / "dev.qrels").write_text(QRELS + "".join(f"q{i} 0 a 1\n" for i in range(3, 10)))
    (folder / "dev.run").write_text("q1 Q0 b 1 3 t\nq1 Q0 new 2 2 t\nq1 Q0 a 3 1 t\nz Q0 a 1 1 t\n")

    code, out, err = aptool("eval", "dev.run", "--qrels", "dev.qrels", "--json", "--measures", "RR,NumQ")

    assert code == 0
    assert err == [
        "dev.run: questions missing from the run, counted as 0: 8 of 9 (q2, q3, q4, q5, q6, …)",
        "dev.run: questions not in the qrels, left out: 1 (z)",
        "dev.run: candidates not judged or judged below 0, counted as not relevant: 1 (q1 new)",
    ]
    entry = {"run": "dev.run", "tag": "t", "questions": 9, "measures": {"MRR": 1 / 3 / 9, "NumQ": 9.0}}
    entry |= {"missing": [f"q{i}" for i in range(2, 10)], "extra": ["z"], "unjudged": 1}
    assert json.loads("\n".join(out)) == {"qrels": "dev.qrels", "measures": ["MRR", "NumQ"], "runs": [entry]}


def test_measures_of_every_question_are_written(aptool, folder):
    (folder / "perfect.run").write_text(PERFECT)
    given = ("eval", "dev.run", "perfect.run", "--qrels", "dev.qrels", "--per-question")

    assert aptool(*given, "out/x.csv").code == 0

    frame = pl.read_csv(folder / "out" / "x.csv")
    assert frame.columns == ["run", "question_id", "candidates", "MAP", "MRR", "P@1"]
    assert frame.rows() == [
        ("dev.run", "q1", 2, 1.0, 1.0, 1.0),
        ("dev.run", "q2", 2, 0.5, 0.5, 0.0),
        ("perfect.run", "q1", 1, 1.0, 1.0, 1.0),
        ("perfect.run", "q2", 1, 1.0, 1.0, 1.0),
    ]


WRONG = {
    "no qrels": (["train.ap-cnn.run"], 2, "no train.ap-cnn.qrels or train.qrels in its folder; pass --qrels"),
    "no qrels of a run without a name": ([".run"], 2, ".run: no qrels in its folder; pass --qrels FILE"),
    "different qrels": (["dev.run", "test.run"], 2, "dev.qrels, test.qrels; pass --qrels FILE"),
    "a run twice": (["dev.run", "dev.run"], 2, "dev.run: given more than once; expected different runs"),
    "no such run": (["none.run"], 1, "none.run: file not found; expected a file that exists"),
    "qrels as a run": (["dev.run", "dev.qrels"], 1, "this looks like qrels, for --qrels"),
    "unknown format": (["dev.run", "--per-question", "x.txt"], 2, "a name ending in .csv"),
    "unknown measures": (["dev.run", "--measures", "mmr,map,P@0"], 2, "unknown measures: 'mmr', 'P@0'"),
    "faulty run": (["faulty.run", "--qrels", "dev.qrels"], 1, "faulty.run: line 1: 'q1 Q0 a': expected 6"),
    "unused pools": (["dev.run", "--pools", "x.parquet"], 2, "--pools: requires --by"),
    "unknown groups": (["dev.run", "--by", "type"], 2, "'type' is not 'length'"),
}


@pytest.mark.parametrize(("arguments", "exit_code", "expected"), WRONG.values(), ids=WRONG.keys())
def test_mistakes_are_one_line(aptool, folder, arguments, exit_code, expected):
    for name in ("train.ap-cnn.run", ".run", "test.run"):
        (folder / name).write_text(RUN)
    (folder / "test.qrels").write_text(QRELS)
    (folder / "faulty.run").write_text("q1 Q0 a\n")

    code, out, err = aptool("eval", *arguments)

    assert (code, out) == (exit_code, [])
    assert [line for line in err if not line.startswith("--qrels dev.qrels")] == err[-1:]
    assert expected in err[-1]
