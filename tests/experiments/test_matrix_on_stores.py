"""A matrix with table, collection and results on an object store: values and bytes equal those on disk."""

import pytest
import s3
from small_matrix import TABLE
from tiny import options

from aptool.files import stat
from aptool.outputs import output_file
from aptool.paths import Url, names

SETS = {"qa_cnn": str([*options("qa-cnn", "training.epochs=1")]), "ap_cnn": "[]", "ap_bilstm": "[]"}


@pytest.fixture
def store(bucket, collection_folder):
    s3.put(collection_folder, f"{bucket}/c")
    return bucket


def write_table(bucket, local, collection, systems):
    """Write the same table on disk and on the store, with its collection; return both paths."""
    text = TABLE.replace('"random", "bm25", "qa-cnn", "ap-cnn", "ap-bilstm", "fused"', systems)
    text = text.replace('fuse = ["bm25", "ap-cnn"]', 'fuse = ["random", "qa-cnn"]')
    (local / "here.toml").write_text(text.format(collection=collection, **SETS))
    with output_file(f"{bucket}/t.toml") as file:
        file.write_text(text.format(collection=f"{bucket}/c", **SETS))
    return local / "here.toml", f"{bucket}/t.toml"


def ok(finished):
    assert finished.code == 0, finished.err
    return finished


def table_rows(finished):
    """The table as printed, without the seconds."""
    return [line.split()[:-2] for line in finished.out if line.startswith(("collection", "tiny"))]


def test_results_and_report_equal_those_on_disk(aptool, store, collection_folder, tmp_path):
    here, table = write_table(store, tmp_path, collection_folder, '"random", "qa-cnn", "fused"')
    local = ok(aptool("matrix", here, "--output", tmp_path / "out"))
    remote = ok(aptool("matrix", table, "--output", f"{store}/out"))

    assert table_rows(remote) == table_rows(local)
    assert len(table_rows(local)) == 1 + 2 * 3
    runs = sorted(str(run.relative_to(tmp_path / "out")) for run in (tmp_path / "out").rglob("*.run"))
    assert [name for name in names(f"{store}/out") if name.endswith(".run")] == runs
    for name in runs:
        assert Url(f"{store}/out/{name}").read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert not [name for name in names(f"{store}/out") if ".parts/" in name or ".training/" in name]

    # Nothing is run again, and what is missing alone is.
    before = stat(f"{store}/out/{runs[0]}").version
    assert not any("seed 1" in line for line in ok(aptool("matrix", table, "--output", f"{store}/out")).err)
    assert stat(f"{store}/out/{runs[0]}").version == before
    Url(f"{store}/out/{runs[1]}").unlink()
    again = ok(aptool("matrix", table, "--output", f"{store}/out"))
    assert sum("seed 1" in line and "map" not in line.lower() for line in again.err) == 1

    page = ok(aptool("report", f"{store}/out"))
    assert page.out[0].startswith(f"{store}/out/report.html: ")
    text = Url(f"{store}/out/report.html").read_text()
    assert "qa-cnn" in text
