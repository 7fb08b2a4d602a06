"""Folders on an object store are complete at all times, also during a replacement."""

import json

import pytest

from aptool.errors import InputError
from aptool.formats.location import store_of
from aptool.formats.object_folder import fetched
from aptool.formats.outputs import MANIFEST, Kind
from aptool.outputs import output_folder
from aptool.paths import Url


@pytest.fixture
def folder(bucket):
    return Url(f"{bucket}/sub/model")


def names(folder):
    store, key = store_of(folder)
    return [name for name in store.names(key) if name != MANIFEST]


def write(folder, weights, by_content=True, fail=False):
    with output_folder(folder, Kind.MODEL, "config.json", by_content=by_content) as into:
        (into / "config.json").write_text(json.dumps({"weights": len(weights)}, indent=2) + "\n")
        (into / "sub").mkdir()
        (into / "sub" / "x.bin").write_bytes(weights)
        (into / "same.txt").write_text("same")
        if fail:
            raise RuntimeError


def read(folder):
    with fetched(folder, "config.json", ("sub/x.bin", "same.txt", "none.txt")) as path:
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_written_folder_is_read_back(folder):
    write(folder, b"one")

    assert read(folder) == {
        "config.json": b'{\n  "weights": 3\n}\n',
        "sub/x.bin": b"one",
        "same.txt": b"same",
    }


def test_failure_leaves_the_old_folder(folder):
    with pytest.raises(RuntimeError):
        write(folder, b"one", fail=True)
    assert names(folder) == []
    write(folder, b"one")
    before = read(folder)
    with pytest.raises(RuntimeError):
        write(folder, b"two", fail=True)

    assert read(folder) == before


def test_one_put_switches_to_the_new_folder(folder, s3_proxy):
    """Before each changing request, the folder has either its old or its new content."""
    write(folder, b"old")
    seen = []

    def look(method, path):
        if method in ("PUT", "POST", "DELETE"):
            s3_proxy.before = lambda method, path: None
            seen.append(read(folder)["sub/x.bin"])
            s3_proxy.before = look

    s3_proxy.before = look
    write(folder, b"new")

    # The file, the record of outputs, the configuration, the removal of the old file.
    assert seen == [b"old", b"old", b"old", b"new"]
    assert len(names(folder)) == 3


def test_collection_keeps_its_names_and_has_no_manifest_while_it_is_replaced(folder, s3_proxy):
    write(folder, b"old", by_content=False)
    assert names(folder) == ["config.json", "same.txt", "sub/x.bin"]
    has_marker = []

    def look(method, path):
        if method == "PUT":
            s3_proxy.before = lambda method, path: None
            has_marker.append((folder / "config.json").is_file())
            s3_proxy.before = look

    s3_proxy.before = look
    write(folder, b"new", by_content=False)

    assert has_marker == [True, False, False, False]  # first the record of outputs
    assert read(folder)["sub/x.bin"] == b"new"


def test_files_that_the_new_collection_lacks_are_removed(folder, s3_proxy):
    """As on a disk: only files that aptool wrote and that have not changed since."""
    with output_folder(folder, Kind.COLLECTION, "collection.json") as into:
        for name in ("collection.json", "answers.parquet", "dev.pools.parquet", "dev.qrels"):
            (into / name).write_text(name)
    store, key = store_of(folder)
    store.create(f"{key}/notes.txt", b"mine")
    store.create(f"{key}/test.qrels", b"mine, too")
    deleted = []

    def look(method, path):
        if method in ("POST", "DELETE"):
            s3_proxy.before = lambda method, path: None
            deleted.append(set(names(folder)))
            s3_proxy.before = look

    s3_proxy.before = look
    with output_folder(folder, Kind.COLLECTION, "collection.json") as into:
        for name in ("collection.json", "train.pools.parquet"):
            (into / name).write_text(f"new {name}")

    assert names(folder) == ["collection.json", "notes.txt", "test.qrels", "train.pools.parquet"]
    # First the manifest, and the old files only when the new collection is complete.
    assert [{"collection.json", "train.pools.parquet"} <= present for present in deleted] == [False, True]


@pytest.mark.parametrize("name", ["../other", "/etc/passwd"])
def test_names_outside_the_folder_are_refused(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps({"objects": {"x": name}}))

    with (
        pytest.raises(InputError, match=r"objects: .* expected names of files in the same folder"),
        fetched(tmp_path, "config.json", ("x",)),
    ):
        pytest.fail("fetched")
