"""A run as TREC lines, as a table and in shards: the same rows, read by other libraries, and damaged."""

import gzip
import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aptool
from aptool.errors import InputError
from aptool.formats import runs
from aptool.formats.runs import MANIFEST, check_run_output, read_run, write_run
from aptool.formats.schemas import arrow_schema

FRAME = pl.DataFrame(
    {
        "question_id": ["q2", "q1", "q1", "q10"],
        "answer_id": ["a", "b", "c", "ä#1"],
        "score": [0.1, 2.0, 2.0, -3.5e-7],
    }
)
LINES = "q1 Q0 c 1 2.0 x\nq1 Q0 b 2 2.0 x\nq10 Q0 ä#1 1 -3.5e-7 x\nq2 Q0 a 1 0.1 x\n"
FORMS = ["dev.run", "dev.run.gz", "dev.parquet", "shards/", "shards.gz/", "shards.parquet/"]


@pytest.fixture
def shards(tmp_path):
    """A folder with a run in one shard; return the folder and the shard."""
    write_run(f"{tmp_path}/dev/", FRAME, "x")
    (shard,) = (tmp_path / "dev").glob("part-*")
    return tmp_path / "dev", shard


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("scores", [FRAME["score"], FRAME["score"].cast(pl.Float32)], ids=["f64", "f32"])
def test_every_form_gives_the_same_run_file(tmp_path, name, scores):
    write_run(f"{tmp_path}/{name}", FRAME.with_columns(scores), "x")

    frame, tag = read_run(f"{tmp_path}/{name}")
    write_run(tmp_path / "again.run", frame, tag)

    assert (tmp_path / "again.run").read_text() == LINES
    assert aptool.Run.load(f"{tmp_path}/{name}").to_dict()["q2"] == {"a": 0.1}


def test_shards_are_trec_files(shards):
    _, shard = shards

    assert shard.read_text() == LINES
    assert read_run(shard).frame.height == 4


def test_packed_shards_are_gzip(tmp_path):
    write_run(f"{tmp_path}/dev.gz/", FRAME, "x")

    (shard,) = (tmp_path / "dev.gz").glob("part-*.run.gz")
    assert gzip.decompress(shard.read_bytes()).decode() == LINES


def test_other_libraries_read_a_table(tmp_path):
    """The types are those of Spark: string, string, double, bigint."""
    write_run(tmp_path / "dev.parquet", FRAME, "x")
    rows = [("q1", "c", 2.0, 1), ("q1", "b", 2.0, 2), ("q10", "ä#1", -3.5e-7, 1), ("q2", "a", 0.1, 1)]

    assert pl.read_parquet(tmp_path / "dev.parquet").rows() == rows
    assert [*pd.read_parquet(tmp_path / "dev.parquet").itertuples(index=False, name=None)] == rows
    schema = pq.read_schema(tmp_path / "dev.parquet").remove_metadata()
    assert schema == arrow_schema("scores", optional=True)
    assert schema.types == [pa.string(), pa.string(), pa.float64(), pa.int64()]


def test_a_folder_of_tables_is_one_table_to_other_libraries(tmp_path):
    write_run(f"{tmp_path}/dev.parquet/", FRAME, "x")

    assert pq.read_table(tmp_path / "dev.parquet").num_rows == 4
    assert len(pd.read_parquet(tmp_path / "dev.parquet")) == 4


def test_bytes_of_a_table_do_not_depend_on_the_blocks_of_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "TABLE_ROWS", 3)
    for name, blocks in (("whole", [LINES]), ("lines", LINES.splitlines(keepends=True))):
        with runs.open_run(tmp_path / f"{name}.parquet", runs.Kind.RUN, "x") as run:
            for block in blocks:
                run.write(block.encode())

    assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "lines.parquet").read_bytes()
    assert pq.ParquetFile(tmp_path / "whole.parquet").metadata.num_row_groups == 2


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

    frame, tag = read_run(tmp_path / "bm25.parquet")

    assert frame.select("question_id", "answer_id", "score").rows() == [("q", "a", 0.5), ("q", "b", 0.25)]
    assert tag == "bm25"


GOOD = {"question_id": ["q", "q"], "answer_id": ["a", "b"], "score": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"score": [1.0, float("nan")]},
            "question 'q', candidate 'b': column 'score': nan: expected a finite",
        ),
        (
            {"score": [1.0, None]},
            "question 'q', candidate 'b': column 'score': None: expected a finite number",
        ),
        ({"score": ["1", "2"]}, "column 'score': 'string': expected type double"),
        ({"answer_id": ["a", "a"]}, "'q a': expected each candidate of a question once"),
        ({"answer_id": ["a", "b c"]}, "column 'answer_id': 'b c': expected"),
        ({"answer_id": ["a", None]}, "column 'answer_id': None: expected a value"),
        ({"question_id": [1.5, 2]}, "column 'question_id': 'double': expected type string"),
    ],
)
def test_invalid_table_is_one_line(tmp_path, change, message):
    pq.write_table(pa.table({**GOOD, **change}), tmp_path / "x.parquet")

    with pytest.raises(InputError) as error:
        read_run(tmp_path / "x.parquet")

    assert message in str(error.value)
    assert str(error.value).startswith(f"{tmp_path}/x.parquet: ")


def test_table_with_another_schema_names_its_columns(tmp_path):
    pq.write_table(pa.table({"qid": ["q"], "docno": ["a"]}), tmp_path / "x.parquet")

    with pytest.raises(InputError, match="'qid, docno': expected a column 'question_id' of type string"):
        read_run(tmp_path / "x.parquet")


def test_missing_shard_is_named(shards):
    folder, shard = shards
    shard.unlink()

    with pytest.raises(InputError, match=f"{shard.name}: file not found; expected the shard that {MANIFEST}"):
        read_run(folder)


def test_changed_shard_is_named(shards):
    folder, shard = shards
    shard.write_text(LINES.replace("0.1", "0.2"))

    with pytest.raises(InputError, match=f"{shard.name}: changed since the run was written"):
        read_run(folder)


def test_manifest_that_contradicts_its_shards_is_named(shards):
    folder, _ = shards
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["shards"] *= 2
    (folder / MANIFEST).write_text(json.dumps(manifest))

    with pytest.raises(InputError, match=f"{MANIFEST}: .*expected the pairs of each shard, and shards in"):
        read_run(folder)


def test_shards_outside_the_folder_are_refused(shards):
    folder, _ = shards
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"part-', '"../part-'))

    with pytest.raises(InputError, match=r"shards/0/file: '\.\./part-"):
        read_run(folder)


def test_a_new_run_replaces_the_shards_of_the_last_one(shards):
    folder, shard = shards
    (folder / "notes").write_text("mine")

    write_run(folder, FRAME.head(1), "y")  # without a slash: the folder has a manifest

    assert not shard.exists()
    assert (folder / "notes").read_text() == "mine"
    assert read_run(folder).frame.rows() == [("q2", "a", 0.1)]


def test_changed_shard_is_not_replaced(shards):
    folder, shard = shards
    shard.write_text("mine")

    with pytest.raises(InputError, match=f"{shard.name}: changed since aptool wrote it"):
        check_run_output(f"{folder}/")
    check_run_output(f"{folder}/", overwrite=True)


def test_a_file_is_no_folder_of_shards(tmp_path):
    (tmp_path / "dev").write_text("mine")

    with pytest.raises(InputError, match="a file; expected a folder, or a new path"):
        check_run_output(f"{tmp_path}/dev/")
