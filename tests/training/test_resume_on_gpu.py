"""Training on a simulated GPU that stops and resumes: the bytes are those of uninterrupted training.

The simulation refuses what CUDA refuses. It checks these operations of a resumed training on mixed devices:

- the weights are loaded (``copy_``), compared with the best weights (``equal``) and averaged (``lerp_``);
- the optimizers update loaded moments (``add_``, ``mul_``, ``addcdiv_``, ``lerp_`` and their fused forms);
- losses are stacked, concatenated, compared (``where``, ``masked_fill``) and added to the loaded sums;
- the generators of the host and of the GPU take their states back;
- cached states of a frozen network are concatenated.
"""

import copy
import itertools
import re
from dataclasses import replace

import pytest
from networks import REASON, network_recipe, write_network
from recorded import recorded
from simulated_gpu import SimulatedGpu
from test_resume import ASKED, MINIBATCH, OFTEN, StoppedError, same, stop_after
from tiny import recipe

from aptool.data.collection import Collection
from aptool.models import transformer
from aptool.training import loop
from aptool.training.dev import DevSet
from aptool.training.fit import fit

FROZEN = ("encoder.tune=none", "pooling.dim=8", "training.epochs=4", "training.sampled_negatives=8")

# Everything with a state, averaging, both optimizers, in-batch negatives, an LSTM.
RECIPES = {
    "best": ("ap-cnn", *ASKED),
    "average": ("ap-cnn", "training.average_epochs=3", "training.word_dropout=0.2"),
    "sgd": ("qa-cnn", "training.optimizer=sgd", "training.schedule=linear", "training.in_batch=true"),
    "lstm": ("ap-bilstm", "training.dropout=0.3"),
}


def on_gpu(collection, tiny_recipe, output, **more):
    with SimulatedGpu():
        return fit(collection, deterministic(tiny_recipe), output, seed=3, device="cuda", **more)


def deterministic(tiny_recipe):
    return replace(tiny_recipe, training=replace(tiny_recipe.training, deterministic=True))


def resumed(collection, tiny_recipe, output, **more):
    """Resume a training; return the point at which it resumed."""
    with recorded() as log:
        on_gpu(collection, tiny_recipe, output, **more)
    (point,) = [match[1] for line in log.messages if (match := re.search("resuming (.*)", line))]
    return point


@pytest.fixture(scope="module")
def whole(tmp_path_factory, collection_folder):
    """The models of uninterrupted trainings, by name of the recipe."""
    folder = tmp_path_factory.mktemp("whole")
    for name, overrides in RECIPES.items():
        on_gpu(Collection(collection_folder), recipe(*overrides), folder / name)
    return folder


def raises_in_call(number, function):
    """Replace a function by one that stops the training in a call."""
    calls = itertools.count(1)

    def replaced(*given, **named):
        if next(calls) == number:
            raise StoppedError
        return function(*given, **named)

    return replaced


@pytest.mark.parametrize(
    ("name", "epoch"), [("best", 1), ("best", 3), ("average", 3), ("sgd", 3), ("lstm", 1)]
)
def test_training_resumes_after_an_epoch(name, epoch, whole, collection, tmp_path):
    tiny_recipe, output = recipe(*RECIPES[name]), tmp_path / "model"
    with pytest.raises(StoppedError), recorded(on_epoch=stop_after(epoch)):
        on_gpu(collection, tiny_recipe, output)

    assert resumed(collection, tiny_recipe, output) == f"after epoch {epoch} of 4"
    assert same(output, whole / name)


@pytest.mark.parametrize(
    ("name", "update"), [("best", 3), ("best", 12), ("average", 12), ("sgd", 13), ("lstm", 12)]
)
def test_training_resumes_within_an_epoch(name, update, whole, collection, tmp_path, monkeypatch):
    tiny_recipe, output = recipe(*RECIPES[name]), tmp_path / "model"
    monkeypatch.setattr(loop, "UPDATES_PER_READ", 1)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_step", raises_in_call(update + 1, loop._step))
        with pytest.raises(StoppedError):
            on_gpu(collection, tiny_recipe, output, checkpoint_minutes=OFTEN)

    point = f"in epoch {update // 5 + 1} of 4, after {update % 5 * MINIBATCH} pairs"
    assert resumed(collection, tiny_recipe, output) == point
    assert same(output, whole / name)


def test_training_resumes_after_its_best_epoch(collection, tmp_path, monkeypatch):
    """The best weights of the checkpoint are compared with those of later epochs."""
    results = [0.2, 0.9, 0.3, 0.4]

    def with_results(remaining):
        values = iter(remaining)
        monkeypatch.setattr(DevSet, "measures", lambda *given: {"MAP": next(values), "MRR": 0.5, "P@1": 0.5})

    tiny_recipe, output = recipe(*RECIPES["best"]), tmp_path / "model"
    with_results(results)
    fitted = on_gpu(collection, tiny_recipe, tmp_path / "whole")
    with_results(results)
    with pytest.raises(StoppedError), recorded(on_epoch=stop_after(3)):
        on_gpu(collection, tiny_recipe, output)
    with_results(results[3:])

    assert resumed(collection, tiny_recipe, output) == "after epoch 3 of 4"
    assert fitted.best_epoch == 2
    assert same(output, tmp_path / "whole")


def test_training_of_a_frozen_network_resumes(collection, tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason=REASON)
    folder = write_network(tmp_path / "bert")
    tiny_recipe = network_recipe("ap-minilm", folder, *FROZEN)
    # Outside the simulation, which does not support meta tensors.
    opened = transformer.open_network(str(folder))
    monkeypatch.setattr(transformer, "open_network", lambda name: copy.deepcopy(opened))
    on_gpu(collection, tiny_recipe, tmp_path / "whole")
    output = tmp_path / "model"
    with pytest.raises(StoppedError), recorded(on_epoch=stop_after(2)):
        on_gpu(collection, tiny_recipe, output)

    assert resumed(collection, tiny_recipe, output) == "after epoch 2 of 4"
    assert same(output, tmp_path / "whole")
