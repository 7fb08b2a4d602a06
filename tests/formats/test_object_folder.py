"""Folders on an object store: whole at every moment, also while they are replaced."""

import json

import pytest

from aptool.errors import InputError
from aptool.formats.atomic import atomic_folder, check_folder
from aptool.formats.location import ObjectPath
from aptool.formats.object_folder import fetched
from aptool.formats.stores import store_of


@pytest.fixture
def folder(bucket):
    return ObjectPath(f"{bucket}/sub/model")


def names(folder):
    store, key = store_of(folder)
    return store.names(key)


def write(folder, weights, by_content=True, fail=False):
    with atomic_folder(folder, "config.json", by_content=by_content) as into:
        (into / "config.json").write_text(json.dumps({"weights": len(weights)}, indent=2) + "\n")
        (into / "sub").mkdir()
        (into / "sub" / "x.bin").write_bytes(weights)
        (into / "same.txt").write_text("same")
        if fail:
            raise RuntimeError


def read(folder):
    with fetched(folder, "config.json", ("sub/x.bin", "same.txt", "none.txt")) as path:
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_what_was_written_is_read(folder):
    write(folder, b"one")

    assert read(folder) == {
        "config.json": b'{\n  "weights": 3\n}\n',
        "sub/x.bin": b"one",
        "same.txt": b"same",
    }


def test_a_failure_leaves_what_was_there(folder):
    with pytest.raises(RuntimeError):
        write(folder, b"one", fail=True)
    assert names(folder) == []
    write(folder, b"one")
    before = read(folder)
    with pytest.raises(RuntimeError):
        write(folder, b"two", fail=True)

    assert read(folder) == before


def test_one_put_changes_from_the_old_to_the_new(folder, s3_proxy):
    """Before each request that changes anything the folder reads as the old or the new one, never a mix."""
    write(folder, b"old")
    seen = []

    def look(method, path):
        if method in ("PUT", "POST", "DELETE"):
            s3_proxy.before = lambda method, path: None
            seen.append(read(folder)["sub/x.bin"])
            s3_proxy.before = look

    s3_proxy.before = look
    write(folder, b"new")

    assert seen == [b"old", b"old", b"new"]  # the file, the configuration, the removal of the old file
    assert len(names(folder)) == 3


def test_a_collection_keeps_its_names_and_is_none_while_it_is_replaced(folder, s3_proxy):
    write(folder, b"old", by_content=False)
    assert names(folder) == ["config.json", "same.txt", "sub/x.bin"]
    there = []

    def look(method, path):
        if method == "PUT":
            s3_proxy.before = lambda method, path: None
            there.append((folder / "config.json").is_file())
            s3_proxy.before = look

    s3_proxy.before = look
    write(folder, b"new", by_content=False)

    assert there == [False, False, False]
    assert read(folder)["sub/x.bin"] == b"new"


def test_another_folder_is_not_replaced(folder):
    store, key = store_of(folder / "mine.txt")
    store.create(key, b"mine")

    with pytest.raises(InputError, match=r"model: no config\.json in it; expected a folder to replace"):
        check_folder(folder, "config.json")


@pytest.mark.parametrize("name", ["../other", "/etc/passwd"])
def test_names_that_lead_elsewhere(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps({"objects": {"x": name}}))

    with (
        pytest.raises(InputError, match=r"objects: .* expected names of files in the same folder"),
        fetched(tmp_path, "config.json", ("x",)),
    ):
        pytest.fail("fetched")
