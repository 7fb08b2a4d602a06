"""The comparison with sentence-transformers."""

import numpy as np
import pytest
import torch
from networks import write_network

from bench import rival

CPU = torch.device("cpu")


def test_both_libraries_compute_the_same_scores(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(rival, "is_native", lambda precision: True)
    library = pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    folder = tmp_path / "model"
    library.SentenceTransformer(str(write_network(tmp_path / "network", positions=384)), device="cpu").save(
        str(folder)
    )
    questions = ["where is the river", "the bridge near where ?"]
    answers = ["the river", "with the bridge is the river near", "is", "where the river ?", "bridge"]
    systems = rival.systems(folder, questions, answers, np.array([0, 0, 0, 1, 1]), CPU)

    scores = {name: score() for name, score in systems.items()}

    expected = scores.pop("sentence-transformers fp32")
    np.testing.assert_allclose(scores.pop("aptool fp32"), expected, atol=1e-5)
    for name in ("aptool bf16", "sentence-transformers bf16"):
        np.testing.assert_allclose(scores.pop(name), expected, atol=0.02)
    for name, atol in {"fp32": 1e-5, "bf16": 0.02, "int8": 0.2}.items():
        for engine in ("aptool, OpenVINO", "sentence-transformers, OpenVINO"):
            if scores:  # the extra openvino is installed
                np.testing.assert_allclose(scores.pop(f"{engine} {name}"), expected, atol=atol)
    assert not scores


def test_processors_without_native_bf16_skip_it(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    monkeypatch.setattr(rival, "is_native", lambda precision: False)
    monkeypatch.setattr(rival, "version_of", lambda package: None)
    network = write_network(tmp_path / "network", positions=256)

    systems = rival.systems(network, ["where"], ["river"], np.array([0]), CPU)

    assert list(systems) == ["aptool fp32", "sentence-transformers fp32"]


def test_texts_are_distinct_and_have_the_requested_lengths():
    texts = rival.texts(["a", "b"], 500, 25, 0.5, 0)

    assert len(set(texts)) == 500
    assert np.mean([len(text.split()) - 1 for text in texts]) == pytest.approx(25, rel=0.1)
