"""Pretrained encoders on a cluster."""

import pytest
from networks import QUICK, REASON, SENTENCE_TRANSFORMERS, colbert, cross_encoder, write_network

pytest.importorskip("transformers", reason=REASON)


def one_label(network, folder):
    cross_encoder(network, folder, 1)


FILES = ("model.safetensors", "config.json", "tokenizer.json")


@pytest.fixture
def aptool(run):
    def start(*arguments):
        finished = run("-m", "aptool", *arguments)
        assert finished.code == 0, finished.err

    return start


@pytest.fixture
def train(aptool, collection_folder, tmp_path):
    network = write_network(tmp_path / "network")
    settings = [part for option in (*QUICK, f"encoder.name={network}") for part in ("--set", option)]

    def start(preset, output, *more):
        aptool("train", collection_folder, "--preset", preset, *settings, "--output", output, *more)

    return start


def assert_same_run(aptool, pools, model, address, folder):
    score = ("score", pools, "--model", model)
    aptool(*score, "--output", folder / "one.run")
    aptool(*score, "--output", folder / "many.run", "--cluster", address)
    assert (folder / "one.run").read_bytes() == (folder / "many.run").read_bytes()


def test_cluster_trains_and_scores_a_transformer_as_one_process(
    aptool, train, address, collection_folder, tmp_path
):
    alone, on_cluster = tmp_path / "alone", tmp_path / "cluster"

    train("ap-minilm", alone)
    train("ap-minilm", on_cluster, "--cluster", address, "--workers", "1")

    for file in FILES:
        assert (alone / file).read_bytes() == (on_cluster / file).read_bytes()
    assert_same_run(aptool, collection_folder / "test.pools.parquet", on_cluster, address, tmp_path)


@pytest.mark.parametrize("build", [lambda network, folder: folder.symlink_to(network), colbert, one_label])
def test_cluster_scores_a_checkpoint_of_another_library_as_one_process(
    aptool, address, collection_folder, tmp_path, build
):
    pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)
    build(write_network(tmp_path / "network"), tmp_path / "model")

    assert_same_run(aptool, collection_folder / "test.pools.parquet", tmp_path / "model", address, tmp_path)
