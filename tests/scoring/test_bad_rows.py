"""Bad rows: the run has the other pools, and a file names the row and the reason of each bad one."""

import errno
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny import model_system, row
from tiny import write_pools as write_with_schema

from aptool.errors import AptoolError
from aptool.formats.ids import EXPECTED_QUESTION_ID
from aptool.formats.parquet import ParquetReader
from aptool.formats.pools import list_units
from aptool.formats.schemas import arrow_schema
from aptool.models.model import load_model
from aptool.scoring.score import score_files
from aptool.scoring.systems import Bm25, RandomScorer, RandomScores

EXPECTED = f"expected {EXPECTED_QUESTION_ID}"
GOOD = [row(f"q{number}", f"question {number}") for number in range(6)]
BAD = {  # a row that cannot be read, and its reason
    "id": (row("q 9"), f"column 'question_id': 'q 9': {EXPECTED}"),
    "null": (row("q9", question=None), "column 'question': None: expected a value"),
    "empty": (row("q9", candidates=[]), "column 'candidates': []: expected a pool of at least one candidate"),
    "twice": (
        row("q9", candidates=[("a1", "x"), ("a1", "y")]),
        "column 'candidates.answer_id': 'a1': expected each answer once in a pool",
    ),
    "text": (
        row("q9", candidates=[("a1", None), ("a2", None)]),
        "column 'candidates.text': None: expected a text, or an answers file with 'a1'",
    ),
}


@dataclass(frozen=True)
class Overflowing(RandomScores):
    """Random scores, but infinity for questions that contain ``overflow``."""

    def open(self, units=(), answers=None, device=None):
        return OverflowingScorer(self)


class OverflowingScorer(RandomScorer):
    def score(self, inputs, progress=lambda pairs: None):
        scores = super().score(inputs)
        questions = np.array(["overflow" in text for text in inputs.questions.to_pylist()])
        return np.where(questions[inputs.pair_question], np.float32("inf"), scores)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_pools(path, *row_groups):
    """Write pools as a program does that checks nothing."""
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema("pools")])
    return write_with_schema(path, *row_groups, schema=schema)


def score(pools, output, system=RandomScores(), bad_rows=None):  # noqa: B008 - immutable
    return score_files(list_units([pools]), system, output, tag="x", bad_rows=bad_rows)


def lines(path="bad.jsonl"):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def bad_row(row_group, row, reason):
    return {"file": "x.parquet", "row_group": row_group, "row": row, "reason": reason}


def damage(path, row_group):
    """Overwrite the pages of a row group."""
    content = bytearray(Path(path).read_bytes())
    for number in range(3):
        column = pq.read_metadata(path).row_group(row_group).column(number)
        begin = column.dictionary_page_offset or column.data_page_offset
        content[begin : begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    Path(path).write_bytes(content)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("system", [RandomScores(), Bm25()], ids=["random", "bm25"])
def test_run_is_that_of_the_other_pools(name, system):
    bad, reason = BAD[name]
    write_pools("x.parquet", [GOOD[0], bad, GOOD[1]], GOOD[2:4])
    write_pools("good.parquet", GOOD[:2], GOOD[2:4])
    score("good.parquet", "good.run", system)

    with pytest.raises(AptoolError, match="row group 0: row 1: column"):
        score("x.parquet", "out.run", system)
    scored = score("x.parquet", "out.run", system, "bad.jsonl")

    assert (scored.pairs, scored.bad_rows) == (8, 1)
    assert Path("out.run").read_bytes() == Path("good.run").read_bytes()
    assert lines() == [bad_row(0, 1, reason)]
    assert not Path("out.run.parts").exists()


def test_run_of_a_model_is_that_of_the_other_pools(model_folder):
    system = model_system(load_model(model_folder))
    write_pools("x.parquet", [GOOD[0], BAD["id"][0]], [BAD["null"][0]], GOOD[1:3])
    write_pools("good.parquet", GOOD[:1], GOOD[1:3])
    score("good.parquet", "good.run", system)

    assert score("x.parquet", "out.run", system, "bad.jsonl").bad_rows == 2
    assert Path("out.run").read_bytes() == Path("good.run").read_bytes()


def test_several_bad_rows_of_a_row_group_are_all_named():
    """Also a repeated question: its first row is scored."""
    bad = [{**bad, "question_id": f"{bad['question_id']}{name}"} for name, (bad, _) in BAD.items()]
    write_pools("x.parquet", [*bad, GOOD[0], GOOD[0]])

    assert score("x.parquet", "out.run", bad_rows="bad.jsonl").pairs == 2

    assert [(line["row"], line["reason"].partition(":")[0]) for line in lines()] == [
        (0, "column 'question_id'"),
        (1, "column 'question'"),
        (2, "column 'candidates'"),
        (3, "column 'candidates.answer_id'"),
        (4, "column 'candidates.text'"),
        (6, "column 'question_id'"),
    ]


def test_row_group_that_cannot_be_read_is_set_aside():
    write_pools("x.parquet", GOOD[:2], GOOD[2:5], GOOD[5:])
    write_pools("good.parquet", [*GOOD[:2], GOOD[5]])
    damage("x.parquet", 1)
    score("good.parquet", "good.run")

    assert score("x.parquet", "out.run", bad_rows="bad.jsonl").bad_rows == 3
    assert Path("out.run").read_bytes() == Path("good.run").read_bytes()
    assert [(line["row_group"], line["row"]) for line in lines()] == [(1, 0), (1, 1), (1, 2)]
    assert all(line["reason"].endswith("expected a readable Parquet file") for line in lines())


def test_pool_without_a_finite_score_is_set_aside():
    """The row counts bad rows before it."""
    rows = [BAD["id"][0], GOOD[0], row("q7", "overflow"), GOOD[1]]
    write_pools("x.parquet", rows)
    write_pools("good.parquet", GOOD[:2])
    score("good.parquet", "good.run", Overflowing())

    score("x.parquet", "out.run", Overflowing(), "bad.jsonl")

    assert Path("out.run").read_bytes() == Path("good.run").read_bytes()
    reason = "question 'q7', answer 'a1': score inf: expected a finite number"
    assert lines() == [bad_row(0, 0, BAD["id"][1]), bad_row(0, 2, reason)]


def test_failed_device_is_an_error_and_no_bad_row(monkeypatch):
    write_pools("x.parquet", GOOD[:2])

    def read_row_group(reader, group, columns):
        def fail():
            raise OSError(errno.EIO, "Input/output error")

        return reader._checked(f"row group {group}", fail)

    monkeypatch.setattr(ParquetReader, "read_row_group", read_row_group)

    with pytest.raises(AptoolError, match=r"row group 0: \[Errno 5\] Input/output error"):
        score("x.parquet", "out.run", bad_rows="bad.jsonl")
    assert not Path("bad.jsonl").exists()


def test_failed_run_resumes_with_bad_rows_to_the_same_files():
    pools = write_pools("x.parquet", GOOD[:2], [GOOD[2], BAD["null"][0]], GOOD[3:5])
    score(pools, "whole.run", bad_rows="whole.jsonl")
    with pytest.raises(AptoolError, match="row group 1: row 1"):
        score(pools, "out.run")

    assert score(pools, "out.run", bad_rows="bad.jsonl").resumed == 1
    assert Path("out.run").read_bytes() == Path("whole.run").read_bytes()
    assert Path("bad.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_parts_with_bad_rows_resume(monkeypatch):
    pools = write_pools("x.parquet", GOOD[:2], [GOOD[2], BAD["null"][0]])
    score_without_merge(pools, monkeypatch)
    assert score(pools, "out.run", bad_rows="bad.jsonl").resumed == 2
    assert lines() == [bad_row(1, 1, BAD["null"][1])]


def test_parts_with_bad_rows_are_not_used_without_the_option(monkeypatch):
    pools = write_pools("x.parquet", GOOD[:2], [GOOD[2], BAD["null"][0]])
    score_without_merge(pools, monkeypatch)

    with pytest.raises(AptoolError, match="row group 1: row 1"):
        score(pools, "out.run")


def interrupt(*arguments):
    raise KeyboardInterrupt


def score_without_merge(pools, monkeypatch):
    """Score with bad rows until all parts are written."""
    with monkeypatch.context() as patch:
        patch.setattr("aptool.scoring.score.merge", interrupt)
        with pytest.raises(KeyboardInterrupt):
            score(pools, "out.run", bad_rows="bad.jsonl")


def test_no_pool_that_can_be_scored_is_an_error():
    write_pools("x.parquet", [BAD["id"][0]], [BAD["null"][0]])

    with pytest.raises(AptoolError, match=r"no pool can be scored; bad\.jsonl has the reasons"):
        score("x.parquet", "out.run", bad_rows="bad.jsonl")
    assert len(lines()) == 2
    assert not Path("out.run").exists()


def test_command_counts_bad_rows(aptool, folder):
    write_pools("x.pools.parquet", [GOOD[0], BAD["id"][0]])
    arguments = ("score", "x.pools.parquet", "--model", "random", "--output", "out.run", "--bad-rows")

    finished = aptool(*arguments, "bad.jsonl")

    assert (finished.code, finished.out) == (0, ["out.run: 2 pairs, 1 bad row in bad.jsonl"])
    assert "bad_rows: 1" in Path("out.run.ir-metadata.yml").read_text()
    Path("bad.jsonl").write_text("mine\n")
    assert "changed" in aptool(*arguments, "bad.jsonl").err[0]
    assert aptool(*arguments, "bad.jsonl", "--overwrite").code == 0


@pytest.mark.parametrize("path", ["x.pools.parquet/bad.jsonl", "x.pools.parquet", "out.run"])
def test_path_that_cannot_be_written_is_refused_before_work(aptool, folder, path):
    write_pools("x.pools.parquet", [GOOD[0]])

    finished = aptool(
        "score", "x.pools.parquet", "--model", "random", "--output", "out.run", "--bad-rows", path
    )

    assert (finished.code, finished.out, len(finished.err)) == (1, [], 1)
    assert path in finished.err[0]
    assert not Path("out.run").exists()
    assert not Path("out.run.parts").exists()


def test_bad_rows_can_be_read_as_a_table():
    write_pools("x.parquet", [GOOD[0], BAD["id"][0]])

    score("x.parquet", "out.run", bad_rows="bad.jsonl")

    schema = {"file": pl.String, "row_group": pl.Int64, "row": pl.Int64, "reason": pl.String}
    assert pl.read_ndjson("bad.jsonl").schema == schema
