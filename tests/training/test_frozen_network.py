"""`encoder.tune=none`: the network reads each text once, and the trained weights are equal to the bit."""

import pytest
from networks import REASON, network_recipe, write_network

from aptool.models.transformer import TransformerEncoder
from aptool.training import data
from aptool.training.fit import fit

pytest.importorskip("transformers", reason=REASON)

FROZEN = ("encoder.tune=none", "pooling.dim=8", "training.epochs=2", "training.sampled_negatives=8")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("frozen") / "bert")


@pytest.fixture
def read(monkeypatch):
    """Record the token ids of the texts that networks read."""
    texts_read, states = [], TransformerEncoder.states

    def counted(self, tokens, rows):
        if self.state_cache is None:
            parts = tokens.values.split(tokens.sizes.tolist())
            texts_read.extend(tuple(part.tolist()) for part in parts)
        return states(self, tokens, rows)

    monkeypatch.setattr(TransformerEncoder, "states", counted)
    return texts_read


def test_each_text_is_read_once_and_the_weights_are_equal_to_the_bit(
    network, collection, tmp_path, read, monkeypatch
):
    recipe = network_recipe("ap-minilm", network, *FROZEN)
    once = fit(collection, recipe, tmp_path / "once")
    texts = list(read)
    assert len(texts) == len(set(texts))

    monkeypatch.setattr(data, "MEMORY_SHARE", 0)  # nothing fits
    always = fit(collection, recipe, tmp_path / "always")

    assert len(read) > 3 * len(texts)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "always")]
    assert weights[0] == weights[1]
    assert once.dev == always.dev


def test_states_of_a_tuned_network_are_not_cached(network, collection, tmp_path, read):
    recipe = network_recipe("maxsim-minilm", network, *FROZEN, "training.epochs=1", "encoder.tune=all")
    fit(collection, recipe, tmp_path / "model")

    assert len(read) > len(set(read))
