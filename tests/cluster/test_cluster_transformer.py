"""Pretrained encoders on a cluster: trained and scored there as in one process."""

import pytest
from networks import QUICK, REASON, write_network

pytest.importorskip("transformers", reason=REASON)

FILES = ("model.safetensors", "config.json", "tokenizer.json")


def test_trained_and_scored_by_the_commands(run, address, collection_folder, tmp_path):
    network = write_network(tmp_path / "network")
    settings = [part for option in (*QUICK, f"encoder.name={network}") for part in ("--set", option)]
    train = ["-m", "aptool", "train", collection_folder, "--preset", "ap-minilm", *settings]
    score = ["-m", "aptool", "score", collection_folder / "test.pools.parquet", "--model", tmp_path / "there"]

    commands = [
        [*train, "--output", tmp_path / "alone"],
        [*train, "--output", tmp_path / "there", "--cluster", address, "--workers", "1"],
        [*score, "--output", tmp_path / "one.run"],
        [*score, "--output", tmp_path / "many.run", "--cluster", address],
    ]
    for command in commands:
        finished = run(*command)
        assert finished.code == 0, finished.err

    for file in FILES:
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()
    assert (tmp_path / "one.run").read_bytes() == (tmp_path / "many.run").read_bytes()
