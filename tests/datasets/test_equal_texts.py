"""Every importer stores the text of several questions once."""

import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aptool
from aptool.datasets.huggingface import import_huggingface
from aptool.datasets.import_options import ColumnNames
from aptool.datasets.mteb import import_mteb

ROWS = [("who?", "me", 1), ("who?", "you", 0), ("why?", "so", 1), ("why?", "you", 0)]
EXPECTED = {"who?": {"me", "you"}, "why?": {"so", "you"}}


def from_table(folder):
    file = folder / "x.tsv"
    file.write_text("question\tanswer\tlabel\n" + "".join(f"{q}\t{a}\t{label}\n" for q, a, label in ROWS))
    return aptool.Collection.from_rows({"test": file}, folder / "out")


def from_json_lines(folder):
    file = folder / "x.jsonl"
    pools = [{"question": q, "candidates": sorted(EXPECTED[q]), "relevant": [0]} for q in EXPECTED]
    file.write_text("".join(json.dumps(pool) + "\n" for pool in pools))
    return aptool.Collection.from_rows({"test": file}, folder / "out")


def from_frame(folder):
    frame = pl.DataFrame(ROWS, schema=["question", "answer", "label"], orient="row")
    return aptool.Collection.from_rows({"test": frame}, folder / "out")


def from_hub_layout(folder):
    rows = [{"question": q, "answer": a, "label": label} for q, a, label in ROWS]
    (folder / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "data" / "test-00000-of-00001.parquet")
    return import_huggingface(folder / "out", str(folder / "data"), ColumnNames(), name="mine")


def from_mteb(folder):
    rows = [{"query": "who?", "positive": ["me"], "negative": ["you"]}]
    rows.append({"query": "why?", "positive": ["so"], "negative": ["you"]})
    (folder / "task").mkdir()
    (folder / "task" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return import_mteb(folder / "out", folder / "task", split="test")


@pytest.mark.parametrize("importer", [from_table, from_json_lines, from_frame, from_hub_layout, from_mteb])
def test_a_text_of_two_questions_is_stored_once(tmp_path, importer):
    importer(tmp_path)

    assert pq.read_table(tmp_path / "out" / "answers.parquet")["text"].to_pylist() == ["you"]
    frame = aptool.Collection(tmp_path / "out").pools("test").frame
    by_question = frame.group_by("question").agg(pl.col("answer"))
    assert {question: set(texts) for question, texts in by_question.iter_rows()} == EXPECTED
    assert frame.select("question_id", "answer_id").is_unique().all()
