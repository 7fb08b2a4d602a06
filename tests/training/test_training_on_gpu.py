"""Training on a simulated GPU: the weights of a CPU, one device, few waits."""

import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from published import PUBLISHED, published_ranker, with_words
from simulated_gpu import SimulatedGpu
from small_training import ADAM, POSITIVES, SGD, always, train
from tiny import OVER_STATES, SYSTEMS, pooled, ranker, training_set
from torch import nn

from aptool.config import load_recipe
from aptool.errors import AptoolError
from aptool.training import loop
from aptool.training.loop import LazyAdam

LATE = ("maxsim", "mean-maxsim")
RECIPES = {
    "sgd": SGD,
    "adam, clipped": replace(ADAM, clip=5.0),
    "in batch": replace(ADAM, in_batch=True),
    "no mining": replace(ADAM, sampled_negatives=1, clip=5.0, minibatch=1),
}


def assert_same_weights(actual, expected):
    for key, weight in expected.state_dict().items():
        torch.testing.assert_close(actual.state_dict()[key].to("cpu"), weight, atol=1e-4, rtol=0)


def trained(system, options, device="cpu"):
    options = replace(options, epochs=2)
    return train(system.to(device), training_set(POSITIVES, 12), options, seed=0, evaluate=always(0.5))


@pytest.mark.parametrize(
    ("name", "recipe"), [*product(("ap-cnn", "qa-bilstm"), RECIPES), *product(LATE, ("in batch",))]
)
def test_weights_are_those_of_a_cpu(name, recipe):
    system = build(name)
    other = copy.deepcopy(system)
    expected = trained(system, RECIPES[recipe])
    with SimulatedGpu():
        actual = trained(other, RECIPES[recipe], "cuda")

    for entry, reference in zip(actual.history, expected.history, strict=True):
        assert entry["loss"] == pytest.approx(reference["loss"], abs=1e-5)
    assert_same_weights(other, system)


def build(name):
    """Create a tiny system: of the paper, of another paper, or a CNN with another pooling."""
    if name in SYSTEMS:
        return ranker(name, words=60, dim=6, size=4)
    if name in PUBLISHED:
        return published_ranker(name, words=60)
    return pooled(name, words=60, dim=6, size=4)


# torch makes packed sequences of an LSTM (wang-nyberg-2015) where the simulation does not see it.
@pytest.mark.parametrize("name", [*SYSTEMS, *sorted({*PUBLISHED} - {"wang-nyberg-2015"}), *OVER_STATES])
def test_deterministic_training_launches_only_deterministic_kernels(name):
    # The simulated GPU raises where CUDA would; the weights are those of a CPU, which is repeatable anyway.
    options = replace(RECIPES["adam, clipped"], deterministic=True, epochs=2)
    system = build(name)
    other = copy.deepcopy(system)
    examples = training_set(POSITIVES, 12)
    examples = replace(
        examples, questions=with_words(examples.questions), answers=with_words(examples.answers)
    )
    settings = []

    def evaluate(ranker):
        settings.append(torch.are_deterministic_algorithms_enabled())
        return always(0.5)(ranker)

    train(system, examples, options, seed=0, evaluate=always(0.5))
    with SimulatedGpu():
        train(other.to("cuda"), examples, options, seed=0, evaluate=evaluate)

    assert settings == [True, True]
    assert not torch.are_deterministic_algorithms_enabled()
    assert_same_weights(other, system)


def costs(name, positives, options):  # waits and launches of an epoch of a tiny system
    with SimulatedGpu() as gpu:
        system = ranker(name, words=60, dim=6, size=4).to("cuda")
        gpu.reset()
        train(system, training_set(positives, 12), replace(options, epochs=1), seed=0, evaluate=always(0.5))
    return np.array([gpu.waits.total(), gpu.launches])


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_update_without_mining_does_not_wait(name):
    waits, _ = costs(name, POSITIVES, RECIPES["no mining"]) - costs(name, POSITIVES[:3], RECIPES["no mining"])

    assert waits == 0


def test_a_round_of_mining_waits_once():
    options = replace(ADAM, clip=5.0, minibatch=2)
    often, once = (costs("ap-cnn", POSITIVES, replace(options, mining_interval=n)) for n in (1, 100))

    assert often[0] - once[0] == -(-sum(map(len, POSITIVES)) // 2) - 1


@pytest.mark.parametrize("preset", ["ap-cnn", "ap-cnn-paper"])
def test_an_update_launches_few_operations(preset):
    options = replace(load_recipe(preset).training, minibatch=1, negatives="corpus", sampled_negatives=1)
    few, many = (costs("ap-cnn", positives, options) for positives in (POSITIVES[:3], POSITIVES))

    assert many[1] - few[1] <= 140 * sum(map(len, POSITIVES[3:]))


def test_updates_of_dense_gradients_are_those_of_sparse_ones():
    generator = torch.Generator().manual_seed(0)
    sparse, dense = (nn.Embedding(20, 3, padding_idx=0, sparse=is_sparse) for is_sparse in (True, False))
    dense.load_state_dict(sparse.state_dict())
    optimizers = torch.optim.SparseAdam(sparse.parameters(), lr=0.1), LazyAdam(dense.parameters(), lr=0.1)
    for _ in range(30):
        ids = torch.randint(0, 20, (4,), generator=generator)
        for embedding, optimizer in zip((sparse, dense), optimizers, strict=True):
            optimizer.zero_grad()
            embedding(ids).pow(3).sum().backward()
            optimizer.step()

    torch.testing.assert_close(dense.weight, sparse.weight, atol=1e-6, rtol=1e-5)
    kept = [optimizer.state_dict()["state"][0] for optimizer in optimizers]
    assert kept[0].keys() == kept[1].keys()
    torch.testing.assert_close(kept[1]["exp_avg_sq"], kept[0]["exp_avg_sq"])


def test_too_little_memory_is_an_error_with_a_remedy(monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore.")

    monkeypatch.setattr(loop, "batch_losses", full)
    with pytest.raises(AptoolError, match=r"^out of memory in training; expected a smaller"):
        trained(ranker("ap-cnn", words=60, dim=6, size=4), ADAM)
