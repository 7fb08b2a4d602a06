"""Commands on a cluster with every path on an object store."""

import numpy as np
import pytest
import s3
from small_matrix import TABLE
from tiny import labelled_pools, options

from aptool.models.model import opened_folder
from aptool.outputs import upload
from aptool.paths import Url, names
from aptool.text.vectors import WordVectors, write_vectors

SETS = {"qa_cnn": str([*options("qa-cnn", "training.epochs=1")]), "ap_cnn": "[]", "ap_bilstm": "[]"}


@pytest.fixture
def bucket_url(object_server, collection_folder):
    """A bucket with the collection."""
    s3.require()
    url = s3.new_bucket(object_server)
    for file in collection_folder.iterdir():
        upload(file, Url(f"{url}/c/{file.name}"))
    return url


def test_train(run, bucket_url, collection_folder, address, tmp_path):
    settings = [word for option in options("qa-cnn", "training.epochs=1") for word in ("--set", option)]
    words = ["--preset", "qa-cnn", "--seed", "1", *settings, "--cluster", address, "--workers", "2"]
    on_store = run("-m", "aptool", "train", f"{bucket_url}/c", "--output", f"{bucket_url}/m", *words)
    on_disk = run("-m", "aptool", "train", collection_folder, "--output", "m", *words)

    assert on_store.code == 0, on_store.err
    assert on_disk.code == 0, on_disk.err
    with opened_folder(f"{bucket_url}/m") as folder:
        for name in ("model.safetensors", "tokenizer.json"):
            assert (folder / name).read_bytes() == (tmp_path / "m" / name).read_bytes()
    assert names(f"{bucket_url}/m.training") == []
    again = run("-m", "aptool", "train", f"{bucket_url}/c", "--output", f"{bucket_url}/m", *words)
    assert any("up to date" in line for line in again.err)


def test_train_from_vectors_and_a_model_on_a_store(run, bucket_url, collection_folder, address, tmp_path):
    """One worker of a cluster trains what one process trains from files on a disk."""
    words = [word for pool in labelled_pools("train", 12) for word in pool.question.split()]
    matrix = np.random.default_rng(3).standard_normal((len(set(words)), 16)).astype(np.float32)
    write_vectors(tmp_path / "v.bin", WordVectors(sorted(set(words)), matrix, "made"))
    upload(tmp_path / "v.bin", Url(f"{bucket_url}/v.bin"))
    settings = [word for option in options("qa-cnn", "training.epochs=1") for word in ("--set", option)]
    settings = ["--preset", "qa-cnn", "--seed", "1", *settings]
    on_cluster = ["--cluster", address, "--workers", "1"]

    for name, more, collection in (
        ("first", ("--vectors", f"{bucket_url}/v.bin"), f"{bucket_url}/c"),
        ("second", ("--start", f"{bucket_url}/first"), f"{bucket_url}/c"),
    ):
        done = run(
            *("-m", "aptool", "train", collection, *settings, *more, "--output", f"{bucket_url}/{name}"),
            *on_cluster,
        )
        assert done.code == 0, done.err
        local = [str(word).replace(str(bucket_url), str(tmp_path)) for word in more]
        done = run("-m", "aptool", "train", collection_folder, *settings, *local, "--output", name)
        assert done.code == 0, done.err
        with opened_folder(f"{bucket_url}/{name}") as folder:
            weights = (folder / "model.safetensors").read_bytes()
        assert weights == (tmp_path / name / "model.safetensors").read_bytes()


def test_matrix(run, bucket_url, address, tmp_path, collection_folder):
    text = TABLE.replace('"random", "bm25", "qa-cnn", "ap-cnn", "ap-bilstm", "fused"', '"random", "qa-cnn"')
    (tmp_path / "on-store.toml").write_text(text.format(collection=f"{bucket_url}/c", **SETS))
    upload(tmp_path / "on-store.toml", Url(f"{bucket_url}/t.toml"))
    (tmp_path / "t.toml").write_text(text.format(collection=collection_folder, **SETS))

    local = run("-m", "aptool", "matrix", "t.toml", "--output", "out")
    remote = run(
        "-m",
        "aptool",
        "matrix",
        f"{bucket_url}/t.toml",
        "--output",
        f"{bucket_url}/out",
        "--cluster",
        address,
    )

    assert local.code == 0, local.err
    assert remote.code == 0, remote.err
    for name in ("tiny/qa-cnn/seed1/dev.run", "tiny/qa-cnn/seed1/test.run", "tiny/random/seed1/test.run"):
        assert Url(f"{bucket_url}/out/{name}").read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert "table.json" in names(f"{bucket_url}/out")
