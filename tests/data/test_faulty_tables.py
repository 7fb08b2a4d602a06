"""Parquet tables that cannot be read: what is there twice, what is empty, what a folder must be."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aptool import Pools, Qrels, Run
from aptool.errors import InputError


def run(**columns):
    return pa.table({"question_id": ["q", "q"], "answer_id": ["a", "b"], "score": [1.0, 2.0], **columns})


def qrels(relevance=(1, 0), ids=("a", "b")):
    return pa.table({"question_id": ["q", "q"], "answer_id": list(ids), "relevance": relevance})


def pools(names=("question_id", "question", "candidates"), fields=("answer_id", "text")):
    candidate = pa.StructArray.from_arrays([pa.array([field]) for field in fields], names=fields)
    values = {"question_id": ["q"], "question": ["who?"]}
    candidates = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), candidate)
    return pa.table([values.get(name, candidates) for name in names], names=list(names))


def twice(table, name):
    return table.append_column(name, table[name])


@pytest.mark.parametrize(
    ("load", "table", "expected"),
    [
        (Run.load, twice(run(), "score"), "column 'score': 2 columns of this name; expected one"),
        (
            Pools.load,
            twice(pools(), "candidates"),
            "column 'candidates': 2 columns of this name; expected one",
        ),
        (
            Pools.load,
            pools(fields=("answer_id", "text", "text")),
            "expected type list<element: struct<answer_id: string not null, text: string> not null>",
        ),
        (Run.load, run().slice(0, 0), "no row; expected at least one question with a candidate"),
        (Run.load, run(score=[1.0, float("nan")]), "row 1: column 'score': nan: expected a finite number"),
        (Run.load, run(score=[1.0, None]), "row 1: column 'score': None: expected a finite number"),
        (Run.load, run(score=["1", "2"]), "column 'score': 'string': expected type double"),
        (Run.load, run(answer_id=["a", None]), "row 1: column 'answer_id': None: expected a value"),
        (Run.load, run(question_id=[1.5, 2.0]), "column 'question_id': 'double': expected type string"),
        (Qrels.load, qrels((1.0, 0.0)), "column 'relevance': 'double': expected type int64"),
        (
            Qrels.load,
            qrels(ids=("a", "a")),
            "column 'answer_id': 'a': expected each answer of a question once",
        ),
        (Qrels.load, run(), "expected a column 'relevance' of type int64"),
    ],
)
def test_a_faulty_table_is_one_line(tmp_path, load, table, expected):
    path = str(tmp_path / "x.parquet")
    pq.write_table(table, path)
    with pytest.raises(InputError) as raised:
        load(path)
    assert str(raised.value).startswith(path)
    assert str(raised.value).endswith(expected)


def test_a_table_to_import_has_each_column_once(aptool, tmp_path):
    table = pa.table([["who?"], ["why?"], ["me"], [1]], names=["question", "question", "answer", "label"])
    pq.write_table(table, tmp_path / "x.parquet")
    command = ("data", "import", "table", f"train={tmp_path / 'x.parquet'}", "--output", tmp_path / "out")
    finished = aptool(*command)
    assert finished.code == 1
    assert finished.err[-1].endswith("column 'question': 2 columns of this name; expected one")


def test_a_folder_of_tables_is_no_run(tmp_path):
    folder = tmp_path / "spark.parquet"
    folder.mkdir()
    pq.write_table(run(), folder / "part-0.parquet")
    with pytest.raises(
        InputError, match=r"a folder without spark.parquet.json beside it; expected a file, or a complete run"
    ):
        Run.load(folder)


@pytest.mark.parametrize(("ids", "kind"), [(("a", "b"), pa.int8()), ((1, 2), pa.uint64())])
def test_qrels_in_parquet_are_those_of_the_same_lines(aptool, tmp_path, ids, kind):
    """Every command that takes qrels prints the same for both forms; ids may be whole numbers."""
    table = qrels(ids=ids)
    pq.write_table(table.set_column(2, "relevance", table["relevance"].cast(kind)), tmp_path / "x.parquet")
    (tmp_path / "x.qrels").write_text(f"q 0 {ids[0]} 1\nq 0 {ids[1]} 0\n")
    for name, scores in (("one", (1, 2)), ("two", (2, 1))):
        lines = [f"q Q0 {answer} 1 {score} x\n" for answer, score in zip(ids, scores, strict=True)]
        (tmp_path / f"{name}.run").write_text("".join(lines))
    runs = [tmp_path / "one.run", tmp_path / "two.run"]
    for command in ("eval", "compare"):
        text, parquet = (
            aptool(command, *runs, "--qrels", tmp_path / f"x.{end}") for end in ("qrels", "parquet")
        )
        assert parquet.code == 0, parquet.err
        assert parquet.out == text.out
    checked = aptool("data", "check", tmp_path / "x.parquet")
    assert checked.out == [f"{tmp_path / 'x.parquet'}: qrels, 1 question, 2 judgements, 1 relevant"]
