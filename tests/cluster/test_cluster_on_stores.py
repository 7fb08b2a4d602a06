"""Commands on a cluster with every path on an object store: what they give on a disk."""

import numpy as np
import pytest
import s3
from small_matrix import TABLE
from tiny import labelled_pools, options

from aptool.formats.location import ObjectPath
from aptool.formats.stores import store_of
from aptool.models.model import opened_folder
from aptool.text.vectors import WordVectors, write_vectors

SETS = {"qa_cnn": str([*options("qa-cnn", "training.epochs=1")]), "ap_cnn": "[]", "ap_bilstm": "[]"}


@pytest.fixture
def there(object_server, collection_folder):
    """A bucket with the collection."""
    s3.require()
    bucket = s3.new_bucket(object_server)
    for file in collection_folder.iterdir():
        store, key = store_of(f"{bucket}/c/{file.name}")
        store.upload(key, file)
    return bucket


def names(url):
    store, key = store_of(url)
    return store.names(key)


def test_train(run, there, collection_folder, address, tmp_path):
    settings = [word for one in options("qa-cnn", "training.epochs=1") for word in ("--set", one)]
    words = ["--preset", "qa-cnn", "--seed", "1", *settings, "--cluster", address, "--workers", "2"]
    on_store = run("-m", "aptool", "train", f"{there}/c", "--output", f"{there}/m", *words)
    on_disk = run("-m", "aptool", "train", collection_folder, "--output", "m", *words)

    assert on_store.code == 0, on_store.err
    assert on_disk.code == 0, on_disk.err
    with opened_folder(f"{there}/m") as folder:
        for name in ("model.safetensors", "tokenizer.json", "README.md"):
            assert (folder / name).read_bytes() == (tmp_path / "m" / name).read_bytes()
    # Ray marks its folders by empty objects, and leaves them.
    assert {name.partition("/")[0] for name in names(f"{there}/m.training")} <= {"ray"}
    again = run("-m", "aptool", "train", f"{there}/c", "--output", f"{there}/m", *words)
    assert any("up to date" in line for line in again.err)


def test_train_from_vectors_and_a_model_on_a_store(run, there, collection_folder, address, tmp_path):
    """One worker of a cluster trains what one process trains from files on a disk."""
    words = [word for pool in labelled_pools("train", 12) for word in pool.question.split()]
    matrix = np.random.default_rng(3).standard_normal((len(set(words)), 16)).astype(np.float32)
    write_vectors(tmp_path / "v.bin", WordVectors(sorted(set(words)), matrix, "made"))
    store, key = store_of(f"{there}/v.bin")
    store.upload(key, tmp_path / "v.bin")
    settings = [word for one in options("qa-cnn", "training.epochs=1") for word in ("--set", one)]
    settings = ["--preset", "qa-cnn", "--seed", "1", *settings]
    on_cluster = ["--cluster", address, "--workers", "1"]

    for name, more, place in (
        ("first", ("--vectors", f"{there}/v.bin"), f"{there}/c"),
        ("second", ("--start", f"{there}/first"), f"{there}/c"),
    ):
        done = run(
            *("-m", "aptool", "train", place, *settings, *more, "--output", f"{there}/{name}"), *on_cluster
        )
        assert done.code == 0, done.err
        local = [str(word).replace(str(there), str(tmp_path)) for word in more]
        done = run("-m", "aptool", "train", collection_folder, *settings, *local, "--output", name)
        assert done.code == 0, done.err
        with opened_folder(f"{there}/{name}") as folder:
            found = (folder / "model.safetensors").read_bytes()
        assert found == (tmp_path / name / "model.safetensors").read_bytes()


def test_matrix(run, there, address, tmp_path, collection_folder):
    text = TABLE.replace('"random", "bm25", "qa-cnn", "ap-cnn", "ap-bilstm", "fused"', '"random", "qa-cnn"')
    store, key = store_of(f"{there}/t.toml")
    store.create(key, text.format(collection=f"{there}/c", **SETS).encode())
    (tmp_path / "t.toml").write_text(text.format(collection=collection_folder, **SETS))

    local = run("-m", "aptool", "matrix", "t.toml", "--output", "out")
    remote = run(
        "-m", "aptool", "matrix", f"{there}/t.toml", "--output", f"{there}/out", "--cluster", address
    )

    assert local.code == 0, local.err
    assert remote.code == 0, remote.err
    for name in ("tiny/qa-cnn/seed1/dev.run", "tiny/qa-cnn/seed1/test.run", "tiny/random/seed1/test.run"):
        assert ObjectPath(f"{there}/out/{name}").read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert "table.json" in names(f"{there}/out")
