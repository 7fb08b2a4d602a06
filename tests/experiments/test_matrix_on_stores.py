"""A matrix whose table, collection and results are on an object store: the figures and bytes of a disk."""

import pytest
from small_matrix import TABLE
from tiny import options

from aptool.formats.location import ObjectPath
from aptool.formats.stores import store_of

SETS = {"qa_cnn": str([*options("qa-cnn", "training.epochs=1")]), "ap_cnn": "[]", "ap_bilstm": "[]"}


def upload(source, folder):
    store, key = store_of(folder)
    for file in source.rglob("*"):
        if file.is_file():
            store.upload(f"{key}/{file.relative_to(source)}", file)


def names(url):
    store, key = store_of(url)
    return store.names(key)


@pytest.fixture
def there(bucket, collection_folder):
    upload(collection_folder, f"{bucket}/c")
    return bucket


def write_table(bucket, local, collection, systems, more="", folds=""):
    """The same table on a disk and on the store, for a collection in either place; returns both paths."""
    text = TABLE.replace('"random", "bm25", "qa-cnn", "ap-cnn", "ap-bilstm", "fused"', systems)
    text = text.replace('fuse = ["bm25", "ap-cnn"]', 'fuse = ["random", "qa-cnn"]') + more
    text = text.replace('splits = ["dev", "test"]', folds) if folds else text
    (local / "here.toml").write_text(text.format(collection=collection, **SETS))
    store, key = store_of(f"{bucket}/t.toml")
    store.create(key, text.format(collection=f"{bucket}/c", **SETS).encode())
    return local / "here.toml", f"{bucket}/t.toml"


def ok(finished):
    assert finished.code == 0, finished.err
    return finished


def figures(finished):
    """The table as printed, without the seconds."""
    return [line.split()[:-2] for line in finished.out if line.startswith(("collection", "tiny"))]


def test_the_results_of_a_disk_and_their_report(aptool, there, collection_folder, tmp_path):
    here, table = write_table(there, tmp_path, collection_folder, '"random", "qa-cnn", "fused"')
    local = ok(aptool("matrix", here, "--output", tmp_path / "out"))
    remote = ok(aptool("matrix", table, "--output", f"{there}/out"))

    assert figures(remote) == figures(local)
    assert len(figures(local)) == 1 + 2 * 3
    runs = sorted(str(run.relative_to(tmp_path / "out")) for run in (tmp_path / "out").rglob("*.run"))
    assert [name for name in names(f"{there}/out") if name.endswith(".run")] == runs
    for name in runs:
        assert ObjectPath(f"{there}/out/{name}").read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert not [name for name in names(f"{there}/out") if ".parts/" in name or ".training/" in name]

    # Nothing is run again, and what is missing alone is.
    before = ObjectPath(f"{there}/out/{runs[0]}").ranged().version
    assert not any("seed 1" in line for line in ok(aptool("matrix", table, "--output", f"{there}/out")).err)
    assert ObjectPath(f"{there}/out/{runs[0]}").ranged().version == before
    ObjectPath(f"{there}/out/{runs[1]}").unlink()
    again = ok(aptool("matrix", table, "--output", f"{there}/out"))
    assert sum("seed 1" in line and "map" not in line.lower() for line in again.err) == 1

    page = ok(aptool("report", f"{there}/out"))
    assert page.out[0].startswith(f"{there}/out/report.html: ")
    text = ObjectPath(f"{there}/out/report.html").read_text()
    assert "qa-cnn" in text
    assert f"{there}/out/tiny/qa-cnn/seed1/test.run" in text


def test_folds(aptool, there, collection_folder, tmp_path):
    """Folds are written below the output, their models are removed, and their runs pooled once."""
    here, table = write_table(there, tmp_path, collection_folder, '"random", "qa-cnn"', folds="folds = 2")
    local = ok(aptool("matrix", here, "--output", tmp_path / "out"))
    remote = ok(aptool("matrix", table, "--output", f"{there}/out"))

    assert figures(remote) == figures(local)
    run = "tiny-folds/qa-cnn/seed1/folds.run"
    assert ObjectPath(f"{there}/out/{run}").read_bytes() == (tmp_path / "out" / run).read_bytes()
    assert not [name for name in names(f"{there}/out") if "/model/" in name]
    version = ObjectPath(f"{there}/out/{run}").ranged().version
    ok(aptool("matrix", table, "--output", f"{there}/out"))
    assert ObjectPath(f"{there}/out/{run}").ranged().version == version


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["matrix", "{}/none.toml", "--output", "{}/out"], "none.toml: file not found"),
        (["matrix", "{}/t.toml", "--output", "s3://b-no-such/out"], "no such bucket"),
        (["report", "{}/c"], "no table.json in it"),
    ],
)
def test_mistakes_are_one_line(aptool, there, collection_folder, tmp_path, arguments, expected):
    write_table(there, tmp_path, collection_folder, '"random"')

    finished = aptool(*(one.replace("{}", there) for one in arguments))

    assert finished.code == 1
    assert expected in finished.err[-1]
    assert names(f"{there}/out") == []
