"""Qrels and runs in the TREC format; lines that trec_eval would misread are refused."""

import gzip
import struct
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptool.data import trec
from aptool.data.runs import Run, read_run
from aptool.data.trec import read_qrels
from aptool.errors import InputError

RUN = (
    "# made by hand\n"
    "q1 Q0 a1 1 0.5 first\n"
    "\n"
    "  q1\tQ0   a#2 \t 7 -1.5e-3 first and more words, ignored  \r\n"
    " \t \n"
    'q"2 whatever #3 x +2 last'
)
RUN_ROWS = [("q1", "a1", 0.5), ("q1", "a#2", -0.0015), ('q"2', "#3", 2.0)]


def frame(rows):
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


@pytest.fixture
def run_file(tmp_path):
    def write(content: str | bytes, name: str = "dev.run") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_run_is_read(run_file, prefix, end):
    read = read_run(run_file(prefix + RUN.replace("\n", end).encode()))
    frame, tag = read.frame, read.tag

    assert frame.rows() == RUN_ROWS
    assert tag == "last"
    assert frame.schema == {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}


def test_qrels_are_read(run_file):
    zeros = "0" * 5_000
    qrels = read_qrels(run_file(f"q1 0 a1 1\n\n#q1 0 a1 2\nq1\t0\ta2\t-{zeros}1\nq10 Q0 a1 +03 \n"))

    assert qrels.rows() == [("q1", "a1", 1), ("q1", "a2", -1), ("q10", "a1", 3)]
    assert qrels.schema == {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


def test_a_run_is_written_in_the_order_of_its_questions_and_of_trec_eval(tmp_path):
    rows = [
        ("q2", "a1", 1.0),
        ("q1", "a10", 0.25),
        ("q1", "a9", 0.25),  # a tie: the higher id in bytes is first, so a9 precedes a10
        ("q1", "é", 0.25),  # é is 0xC3 0xA9 in UTF-8, above all of ASCII
        ("q1", "Z", 1e-30),
        ("q10", "x", -3.5),
        ("q2", "a2", 2.0),  # far from the other row of its question
    ]
    Run(frame(rows), "ap-cnn").save(tmp_path / "dev.run")

    assert (tmp_path / "dev.run").read_text(encoding="utf-8") == (
        "q2 Q0 a2 1 2.0 ap-cnn\n"
        "q2 Q0 a1 2 1.0 ap-cnn\n"
        "q1 Q0 é 1 0.25 ap-cnn\n"
        "q1 Q0 a9 2 0.25 ap-cnn\n"
        "q1 Q0 a10 3 0.25 ap-cnn\n"
        "q1 Q0 Z 4 1e-30 ap-cnn\n"
        "q10 Q0 x 1 -3.5 ap-cnn\n"
    )


SHORT = "3: 'q2 Q0 a3 1': expected 6 fields (question_id Q0 answer_id rank score tag), found 4"
RUN_FAULTS = {
    "short line": ("q1 Q0 a1 1 1 t\n\nq2 Q0 a3 1\n", SHORT),
    "two in one": (
        "q1 Q0 a1 1 1 t q1 Q0 a2 2 2 t\n",
        "1: 'q1 Q0 a1 1 1 t q1 Q0 a2 2 2 t': expected 6 fields",
    ),
    "glued lines": (
        "q1 Q0 a1 1 3 t\nq1 Q0 a2 2 2.5 tq2 Q0 b1 1 4.5 t\n",
        "2: 'q1 Q0 a2 2 2.5 tq2 Q0 b1 1 4.5 t': expected 6 fields (question_id Q0 answer_id rank score tag), "
        "found 11: two lines in one",
    ),
    "glued to a truncated line": (
        "q1 Q0 a2 2 2.5 tq2 Q0 b1\n",
        "1: 'q1 Q0 a2 2 2.5 tq2 Q0 b1': expected 6 fields (question_id Q0 answer_id rank score tag), found 8",
    ),
    "bare returns": ("q1 Q0 a1 1 1 t\rq1 Q0 a2 2 2 t\r", "1: 'q1 Q0 a1 1 1 t q1 Q0 a2 2 2 t': expected 6"),
    "white space in an id": (
        "q1 Q0 a 1 2 t\nq1 Q0 b\u3000c 2 1 t\n",
        r"2: column 'answer_id': 'b\u3000c': expected an id without white space or control characters",
    ),
    "text score": ("# c\nq1 Q0 a1 1 abc t\n", "2: column 'score': 'abc': expected a finite number"),
    "NaN": ("q1 Q0 a1 1 1 t\nq1 Q0 a2 1 NaN t\n", "2: column 'score': 'NaN': expected a finite number"),
    "duplicate": (
        "q1 Q0 a1 1 1 t\nq2 Q0 a1 1 1 t\n# c\n q1  Q0 a1 9 2 t\n",
        "4: column 'answer_id': 'q1 a1': expected each candidate of a question once; line 1 has this one",
    ),
    "NUL": ("q1 Q0 a1 1 1 t\nq\0 Q0 a1 1 1 t\n", "2: a NUL byte; expected text, not a binary file"),
    "not UTF-8": (b"q1 Q0 a1 1 1 t\nq2 Q0 \xe9 1 1 t\n", "2: b'\\xe9': expected text in UTF-8"),
    "blank in an answer id": (
        "q1 Q0 a1 1 1 two words\nq1 Q0 a 2 2 0.9 t\n",
        "2: 'q1 Q0 a 2 2 0.9 t': expected 6 fields, found 7: no blank in an id",
    ),
}
QRELS_FAULTS = {
    "glued lines": ("q1 0 a1 1q2 0 a2 1\n", "1: 'q1 0 a1 1q2 0 a2 1': expected 4 fields"),
    "float": ("q1 0 a1 1\nq1 0 a2 0.9\n", "2: column 'relevance': '0.9': expected a whole number"),
    "too long": ("q1 0 a1 9223372036854775808\n", "1: column 'relevance': '9223372036854775808': expected"),
    "duplicate": ("q1 0 a1 1\nq1 0 a1 1\n", "2: column 'answer_id': 'q1 a1': expected each candidate"),
    "BEIR": ("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\tx\n", "3: column 'relevance': 'x'"),
}


FAULTS = [
    pytest.param(read, *fault, id=f"{kind} {name}")
    for kind, read, faults in (("run", read_run, RUN_FAULTS), ("qrels", read_qrels, QRELS_FAULTS))
    for name, fault in faults.items()
]


@pytest.mark.parametrize(("read", "content", "message"), FAULTS)
def test_invalid_line_is_named(run_file, read, content, message):
    path = run_file(content)

    with pytest.raises(InputError) as error:
        read(path)

    assert str(error.value).startswith(f"{path}: line {message}")
    assert "\n" not in str(error.value)


def test_packed_runs_are_recognised_by_their_content(run_file):
    assert read_run(run_file(gzip.compress(RUN.encode()), "dev.run")).frame.rows() == RUN_ROWS
    assert read_run(run_file(RUN, "dev.run.gz")).frame.rows() == RUN_ROWS


def test_qrels_of_beir_are_read(run_file):
    path = run_file("query-id\tcorpus-id\tscore\nq1\td1\t2\r\nq1\td2\t0\n\nq2\td1\t1\n", "test.tsv")
    assert read_qrels(path).rows() == [
        ("q1", "d1", 2),
        ("q1", "d2", 0),
        ("q2", "d1", 1),
    ]


@pytest.mark.parametrize(
    ("read", "line", "hint"),
    [
        (read_run, "q1 0 d1 1", "this looks like qrels, for --qrels"),
        (read_qrels, "q1 Q0 d1 1 2.5 x", "this looks like a run"),
    ],
)
def test_a_file_of_another_known_format_is_named(run_file, read, line, hint):
    with pytest.raises(InputError, match=f"expected [46] fields .*; {hint}$"):
        read(run_file(line + "\n"))


FILES = {
    "empty": (b"", "dev.run", "no line; expected lines of question_id Q0 answer_id rank score tag"),
    "only comments": (b"#\n\n# q1 Q0 a1 1 1 t\n", "dev.run", "no line; expected lines"),
    "cut short": (gzip.compress(b"q1 Q0 a1 1 1 t\n" * 9)[:-9], "dev.run.gz", "expected a complete gzip file"),
    "bzip2": (b"BZh91AY&SYnot bzip2", "dev.run.bz2", "bzip2 data; expected text, or gzip data"),
    "workbook": (
        b"PK\x03\x04[Content_Types].xml",
        "dev.run",
        "an Excel workbook or a ZIP archive; expected text",
    ),
}


@pytest.mark.parametrize(("content", "name", "message"), FILES.values(), ids=FILES.keys())
def test_file_that_is_not_a_run_is_refused(run_file, content, name, message):
    path = run_file(content, name)

    with pytest.raises(InputError) as error:
        read_run(path)

    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=60)
@given(
    scores=st.lists(
        st.one_of(FLOAT32, st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1.0])), min_size=1, max_size=20
    ),
    kind=st.sampled_from([pl.Float32, pl.Float64]),
)
def test_float32_scores_keep_their_order_and_ties(tmp_path_factory, scores, kind):
    scores = [struct.unpack("f", struct.pack("f", score))[0] for score in scores]
    rows = [(f"q{i % 2}", f"a{i}", score) for i, score in enumerate(scores)]
    path = tmp_path_factory.mktemp("float32") / "dev.run"
    Run(frame(rows).cast({"score": kind}), "t").save(path)

    read = read_run(path).frame

    # Expected order from Python's sort; ASCII ids compare as their bytes.
    by_id = sorted(rows, key=lambda row: row[1], reverse=True)
    by_score = sorted(by_id, key=lambda row: row[2], reverse=True)
    expected = sorted(by_score, key=lambda row: row[0])
    assert read.cast({"score": pl.Float32}).rows() == expected
    assert read["score"].n_unique() == len({score + 0.0 for score in scores})
    # Nine digits, as with %.9g, so that a float of any C program equals the score.
    for line, (_, _, score) in zip(path.read_text().splitlines(), expected, strict=True):
        mantissa = line.split()[4].lower().partition("e")[0]
        assert len(mantissa.replace(".", "").lstrip("-0").rstrip("0")) <= 9
        assert struct.pack("f", float(line.split()[4])) == struct.pack("f", score + 0.0)
    assert [int(line.split()[3]) for line in path.read_text().splitlines()] == rank_of(expected)


def rank_of(rows):
    return [1 + sum(other[0] == row[0] for other in rows[:i]) for i, row in enumerate(rows)]


def test_minus_zero_ties_with_zero(tmp_path):
    Run({"q": {"a": 0.0, "b": -0.0}}, "t").save(tmp_path / "dev.run")

    assert (tmp_path / "dev.run").read_text() == "q Q0 b 1 0.0 t\nq Q0 a 2 0.0 t\n"


@settings(deadline=None, max_examples=40)
@given(scores=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=10))
def test_float64_scores_are_read_back(tmp_path_factory, scores):
    scores = [*scores, 0.1, 0.1 + 2**-55]  # different in float64, equal in float32
    rows = [("q", f"a{i}", score) for i, score in enumerate(scores)]
    path = tmp_path_factory.mktemp("float64") / "dev.run"
    Run(frame(rows), "t").save(path)

    assert sorted(read_run(path).frame.rows()) == sorted(rows)


def test_gzip_has_the_same_text_and_no_time(tmp_path):
    rows = [(f"q{i % 7}", f"a{i}", i / 3) for i in range(1000)]
    for name in ("dev.run", "dev.run.gz", "again.run.gz"):
        Run(frame(rows), "t").save(tmp_path / name)
    packed = (tmp_path / "dev.run.gz").read_bytes()

    assert gzip.decompress(packed) == (tmp_path / "dev.run").read_bytes()
    assert packed == (tmp_path / "again.run.gz").read_bytes()
    assert packed[4:8] == bytes(4)  # MTIME, RFC 1952
    assert read_run(tmp_path / "dev.run.gz").frame.equals(read_run(tmp_path / "dev.run").frame)


# Ranks and scores of a question, and whether the scores order it otherwise than the ranks.
CONTRADICTIONS = [
    ([1, 2, 3], [0.9, 0.5, 0.1], False),
    ([3, 1, 2], [0.1, 0.9, 0.5], False),  # any order of the lines
    ([1, 2, 3], [0.1, 0.5, 0.9], True),  # distances
    ([2, 1, 3], [0.5, 0.1, 0.9], True),
    ([1, 2, 3], [0.5, 0.5, 0.5], False),  # ties have no order
    ([0, 0, 0], [0.1, 0.5, 0.9], False),  # equal ranks have none
    (["x", "-", "9" * 30], [0.1, 0.5, 0.9], False),  # not ranks
]


@pytest.mark.parametrize(("ranks", "scores", "contradicts"), CONTRADICTIONS)
def test_ranks_that_contradict_scores_are_counted(run_file, caplog, ranks, scores, contradicts):
    lines = [
        f"q{q} Q0 a{n} {r} {s} t" for q in "12" for n, (r, s) in enumerate(zip(ranks, scores, strict=True))
    ]
    other = ["q0 Q0 a 1 9 t", "q0 Q0 b 2 8 t"]
    caplog.set_level("WARNING")
    path = run_file("\n".join([*other, *lines]))

    read = read_run(path).frame

    assert read["score"].to_list() == [9, 8, *scores, *scores]
    message = f"{path}: warning: ranks contradict scores in 2 of 3 questions; "
    assert [line.startswith(message) for line in caplog.messages] == [True] * contradicts


def test_questions_with_one_score_for_all_candidates_are_counted(caplog):
    rows = [("q1", "a", 0.5), ("q2", "a", 0.1), ("q1", "b", 0.5), ("q2", "b", 0.2), ("q3", "a", 1.0)]

    trec.log_ties("dev.run", *trec.count_ties(frame(rows)))
    trec.log_ties("dev.run", *trec.count_ties(frame(rows[1:2])))

    assert caplog.messages == [
        "dev.run: warning: 1 of 3 questions have one score for all candidates, "
        "so their order is that of the answer ids"
    ]
