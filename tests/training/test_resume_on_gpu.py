"""Training on a simulated GPU that stops and resumes: the bytes are those of uninterrupted training.

The simulation refuses what CUDA refuses. It checks these operations of a resumed training on mixed devices:

- the weights are loaded (``copy_``), compared with the best weights (``equal``) and averaged (``lerp_``);
- the optimizers update loaded moments (``add_``, ``mul_``, ``addcdiv_``, ``lerp_`` and their fused forms);
- losses are stacked, concatenated, compared (``where``, ``masked_fill``) and added to the loaded sums;
- the generators of the host and of the GPU take their states back.
"""

import itertools
import re
from dataclasses import replace

import pytest
from recorded import recorded
from simulated_gpu import SimulatedGpu
from test_resume import ASKED, MINIBATCH, OFTEN, StoppedError, same
from tiny import recipe

from aptool.training import loop
from aptool.training.fit import fit

# Everything with a state, averaging, both optimizers, in-batch negatives, an LSTM.
RECIPES = {
    "best": ("ap-cnn", *ASKED),
    "sgd": ("qa-cnn", "training.optimizer=sgd", "training.schedule=linear", "training.in_batch=true"),
    "average": (
        "ap-bilstm",
        "training.dropout=0.3",
        "training.average_epochs=3",
        "training.word_dropout=0.2",
    ),
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


def raises_in_call(number, function):
    """Replace a function by one that stops the training in a call."""
    calls = itertools.count(1)

    def replaced(*given, **named):
        if next(calls) == number:
            raise StoppedError
        return function(*given, **named)

    return replaced


@pytest.mark.parametrize(("name", "update"), [("best", 17), ("sgd", 13), ("average", 12)])
def test_training_resumes_within_an_epoch(name, update, collection, tmp_path, monkeypatch):
    tiny_recipe, output = recipe(*RECIPES[name]), tmp_path / "model"
    on_gpu(collection, tiny_recipe, tmp_path / "whole")
    monkeypatch.setattr(loop, "UPDATES_PER_READ", 1)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_step", raises_in_call(update + 1, loop._step))
        with pytest.raises(StoppedError):
            on_gpu(collection, tiny_recipe, output, checkpoint_minutes=OFTEN)

    point = f"in epoch {update // 5 + 1} of 4, after {update % 5 * MINIBATCH} pairs"
    assert resumed(collection, tiny_recipe, output) == point
    assert same(output, tmp_path / "whole")
