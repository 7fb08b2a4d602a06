"""Pretrained encoders on a cluster: the same model and run files as in one process."""

import pytest
from networks import QUICK, REASON, write_network

pytest.importorskip("transformers", reason=REASON)

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


def assert_scored_alike(aptool, pools, model, address, folder):
    score = ("score", pools, "--model", model)
    aptool(*score, "--output", folder / "one.run")
    aptool(*score, "--output", folder / "many.run", "--cluster", address)
    assert (folder / "one.run").read_bytes() == (folder / "many.run").read_bytes()


def test_trained_and_scored_by_the_commands(aptool, train, address, collection_folder, tmp_path):
    alone, there = tmp_path / "alone", tmp_path / "there"

    train("ap-minilm", alone)
    train("ap-minilm", there, "--cluster", address, "--workers", "1")

    for file in FILES:
        assert (alone / file).read_bytes() == (there / file).read_bytes()
    assert_scored_alike(aptool, collection_folder / "test.pools.parquet", there, address, tmp_path)


def test_a_cross_encoder_is_scored_there_as_here(aptool, train, address, collection_folder, tmp_path):
    train("cross-minilm", tmp_path / "model")

    assert_scored_alike(
        aptool, collection_folder / "test.pools.parquet", tmp_path / "model", address, tmp_path
    )
