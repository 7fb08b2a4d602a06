"""`encoder.tune=none`: the network reads each text once, and what is trained is the same to the bit."""

import copy

import pytest
import torch
from networks import REASON, network_recipe, write_network

from aptool.formats.pools import list_units
from aptool.models.backbone import Backbone
from aptool.scoring import state_memory
from aptool.scoring.answer_store import AnswerStore
from aptool.scoring.model_system import ModelLoader
from aptool.scoring.score import score
from aptool.scoring.stored_answers import StoredAnswers
from aptool.training.fit import fit

pytest.importorskip("transformers", reason=REASON)

FROZEN = ("encoder.tune=none", "pooling.dim=8", "training.epochs=2", "training.sampled_negatives=8")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("frozen") / "bert")


@pytest.fixture
def read(monkeypatch):
    """The texts that networks read, by their token ids, in the order in which they read them."""
    found, forward = [], Backbone.forward

    def counted(self, tokens, rows, types=None):
        found.extend(map(tuple, (part.tolist() for part in tokens.values.split(tokens.sizes.tolist()))))
        return forward(self, tokens, rows, types)

    monkeypatch.setattr(Backbone, "forward", counted)
    return found


def test_training_is_the_same_to_the_bit_and_each_text_is_read_once(
    network, collection, tmp_path, read, monkeypatch
):
    recipe = network_recipe("ap-minilm", network, *FROZEN)
    once = fit(collection, recipe, tmp_path / "once")
    texts, again = list(read), fit(collection, recipe, tmp_path / "shared", states_cache=tmp_path / "states")
    assert len(texts) == len(set(texts))
    assert len(read) == 2 * len(texts)

    # From the store, which another training has filled; only the recipe's seed differs from its own.
    read.clear()
    other = fit(collection, recipe, tmp_path / "seed1", seed=1, states_cache=tmp_path / "states")
    assert read == []

    monkeypatch.setattr(state_memory, "_SHARE", 0)  # nothing fits
    always = fit(collection, recipe, tmp_path / "always")
    fit(collection, recipe, tmp_path / "always1", seed=1)
    assert len(read) > 4 * len(texts)
    weights = {path.parent.name: path.read_bytes() for path in tmp_path.glob("*/model.safetensors")}
    assert weights["once"] == weights["shared"] == weights["always"] != weights["seed1"] == weights["always1"]
    assert once.dev == again.dev == always.dev
    assert other.dev.keys() == once.dev.keys()


def test_a_scorer_reads_the_states_that_training_left(network, collection, tmp_path, read):
    recipe = network_recipe("maxsim-minilm", network, *FROZEN)
    fit(collection, recipe, tmp_path / "model", states_cache=tmp_path / "states")
    runs = {}
    for states, texts in ((None, "all"), (str(tmp_path / "states"), "none")):
        for split in ("dev", "test"):
            read.clear()
            loader = ModelLoader(str(tmp_path / "model"), "cpu", states=states)
            score(list_units([collection.pools(split)]), loader, tmp_path / "out.run")
            assert bool(read) is (texts == "all" or split == "test")  # nobody has read test before
            runs[states, split] = (tmp_path / "out.run").read_bytes()

    assert runs[None, "dev"] == runs[str(tmp_path / "states"), "dev"]
    assert runs[None, "test"] == runs[str(tmp_path / "states"), "test"]


@pytest.mark.parametrize("tuned", ["encoder.tune=all", "encoder.tune=last"])
def test_states_that_change_are_not_kept(network, collection, tmp_path, read, tuned):
    recipe = network_recipe("maxsim-minilm", network, *FROZEN, "training.epochs=1", tuned)
    fit(collection, recipe, tmp_path / "model", states_cache=tmp_path / "states")

    assert len(read) > len(set(read))
    assert not (tmp_path / "states").exists()


def test_another_network_has_states_of_its_own(network, collection, tmp_path, read):
    for options in ((), ("encoder.layers=1",)):
        read.clear()
        recipe = network_recipe("maxsim-minilm", network, *FROZEN, *options)
        fit(collection, recipe, tmp_path / f"model{len(options)}", states_cache=tmp_path / "states")
        assert read

    assert len(list((tmp_path / "states").iterdir())) == 2


def test_a_copy_of_a_network_computes(tmp_path):
    # On another device, or in bf16, the states would not be its own.
    store = StoredAnswers(AnswerStore(tmp_path, "fp32", "f" * 16))
    part = torch.nn.Linear(1, 1)
    part.memory = state_memory.StateMemory(torch.device("cpu"), store)

    assert copy.deepcopy(part).memory is None
