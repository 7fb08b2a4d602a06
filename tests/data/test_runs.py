"""A run as TREC lines, as a table and in parts: the same rows, read by other libraries, and damaged."""

import gzip
import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aptool
from aptool.data import runs
from aptool.data.parquet import arrow_schema
from aptool.data.runs import read_run
from aptool.errors import InputError

FRAME = pl.DataFrame(
    {
        "question_id": ["q2", "q1", "q1", "q10"],
        "answer_id": ["a", "b", "c", "ä#1"],
        "score": [0.1, 2.0, 2.0, -3.5e-7],
    }
)
LINES = "q2 Q0 a 1 0.1 x\nq1 Q0 c 1 2.0 x\nq1 Q0 b 2 2.0 x\nq10 Q0 ä#1 1 -3.5e-7 x\n"
ROWS = [("q2", "a", 0.1), ("q1", "c", 2.0), ("q1", "b", 2.0), ("q10", "ä#1", -3.5e-7)]
FORMS = ["dev.run", "dev.run.gz", "dev.parquet"]


@pytest.fixture
def parts(tmp_path):
    """A folder with a run in one part; return the folder and the part."""
    part = tmp_path / "dev" / f"000000-{'0' * 24}.run"
    aptool.Run(FRAME, "x").save(part)
    sidecar = {"key": "1", "tag": "x", "parts": 1, "versions": {"aptool": "1"}}
    runs.write_sidecar(tmp_path / "dev.json", sidecar)
    return tmp_path / "dev", part


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("scores", [FRAME["score"], FRAME["score"].cast(pl.Float32)], ids=["f64", "f32"])
def test_every_form_gives_the_same_run_file(tmp_path, name, scores):
    aptool.Run(FRAME.with_columns(scores), "x").save(f"{tmp_path}/{name}")

    read = read_run(f"{tmp_path}/{name}")
    frame, tag = read.frame, read.tag
    aptool.Run(frame, tag).save(tmp_path / "again.run")

    assert (tmp_path / "again.run").read_text() == LINES
    assert aptool.Run.load(f"{tmp_path}/{name}").to_dict()["q2"] == {"a": 0.1}


def test_other_libraries_read_a_table(tmp_path):
    """The types are those of Spark: string, string, bigint, double."""
    aptool.Run(FRAME, "x").save(tmp_path / "dev.parquet")
    rows = [("q2", "a", 1, 0.1), ("q1", "c", 1, 2.0), ("q1", "b", 2, 2.0), ("q10", "ä#1", 1, -3.5e-7)]

    assert pl.read_parquet(tmp_path / "dev.parquet").rows() == rows
    assert [*pd.read_parquet(tmp_path / "dev.parquet").itertuples(index=False, name=None)] == rows
    schema = pq.read_schema(tmp_path / "dev.parquet").remove_metadata()
    assert schema == arrow_schema("scores", optional=True)
    assert schema.types == [pa.string(), pa.string(), pa.int64(), pa.float64()]


@pytest.mark.parametrize("name", FORMS)
def test_parts_one_after_the_other_are_the_run(tmp_path, name):
    """Other programs read the joined file as the rows of its parts."""
    parts = []
    for question in ("q2", "q1", "q10"):
        parts.append(tmp_path / f"{question}.{name.partition('.')[2]}")
        aptool.Run(FRAME.filter(pl.col("question_id") == question), "x").save(parts[-1])

    runs.join_parts(parts, tmp_path / name)

    assert read_run(tmp_path / name).frame.rows() == ROWS
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()).decode() == LINES
    elif name.endswith(".parquet"):
        assert pq.ParquetFile(tmp_path / name).metadata.num_row_groups == 3
        assert aptool.Run.load(tmp_path / name).tag == "x"
    else:
        assert (tmp_path / name).read_text() == LINES


def test_a_table_of_another_program_is_a_run(tmp_path):
    """32-bit scores, categories, other columns, no rank, no tag: named by its file."""
    table = pa.table(
        {
            "text": ["no", "yes"],
            "score": pa.array([0.5, 0.25], pa.float32()),
            "answer_id": pa.array(["a", "b"], pa.large_string()),
            "question_id": pa.array(["q", "q"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "bm25.parquet")

    read = read_run(tmp_path / "bm25.parquet")
    frame, tag = read.frame, read.tag

    assert frame.select("question_id", "answer_id", "score").rows() == [("q", "a", 0.5), ("q", "b", 0.25)]
    assert tag == "bm25"


def test_a_missing_part_is_an_error(parts):
    folder, part = parts
    part.unlink()

    with pytest.raises(InputError, match=r"0 parts; expected 1, as dev\.json says"):
        read_run(folder)


def test_parts_are_read_in_the_order_of_their_numbers(parts):
    """A listing sorts by name, and the millionth part has a digit more."""
    folder, _ = parts
    for number in (999_999, 1_000_000):
        (folder / f"{number}-{'0' * 24}.run").write_text(f"n{number} Q0 a 1 1 x\n")
    paths = [folder / name for name in sorted(path.name for path in folder.iterdir())]
    assert [path.name[:7] for path in paths][1:] == ["1000000", "999999-"]

    numbered = runs.in_order(path.name for path in paths)

    assert [name[:7] for name in numbered] == ["000000-", "999999-", "1000000"]


def test_a_folder_without_its_sidecar_is_not_complete(parts):
    folder, _ = parts
    (folder.parent / "dev.json").unlink()

    with pytest.raises(InputError, match=r"no dev\.json beside it; expected a complete run in parts"):
        read_run(f"{folder}/")
    with pytest.raises(InputError, match=r"a folder without dev\.json beside it; expected a file, or a"):
        read_run(folder)


def test_a_sidecar_of_a_replaced_run_is_removed_and_a_file_of_the_user_stays(tmp_path):
    path = tmp_path / "dev.run"
    sidecar = {"key": "1", "tag": "x", "versions": {"aptool": "1"}}
    for content, remains in ((sidecar, False), ({"key": "1", "tag": "x"}, True), ([], True)):
        (tmp_path / "dev.run.json").write_text(json.dumps(content))
        aptool.Run(FRAME, "x").save(path, overwrite=True)
        assert (tmp_path / "dev.run.json").exists() is remains
