"""Options and rankers that train in less than a second, for tests of the training loop."""

from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

from tiny import ranker

from aptool.config import TrainingOptions
from aptool.training.loop import Training

SGD = TrainingOptions(
    epochs=1,
    minibatch=4,
    margin=2.5,  # exceeds all differences of cosines, so every pair has a loss
    negatives="corpus",
    sampled_negatives=40,
    optimizer="sgd",
    learning_rate=0.1,
    schedule="constant",
)
ADAM = replace(SGD, optimizer="adam", learning_rate=0.01)

POSITIVES = [[0], [1, 2, 3], [4], [5, 6], [7], [8]]


def made(name, seed=1):
    return ranker(name, words=60, dim=6, size=8, seed=seed)


def always(value):
    return lambda ranker: {"MAP": value}


class Trained(NamedTuple):
    best_epoch: int
    history: list
    dev: dict


def train(system, examples, options, *, seed, evaluate, **more):
    """Train a ranker, whose dev measures ``evaluate`` returns."""
    dev = SimpleNamespace(measures=lambda ranker, measure, group: evaluate(ranker))
    training = Training(system, examples, dev, options, seed, **more)
    for _ in training.states():
        pass
    dev_measures = training.finish()
    return Trained(training.best_epoch, training.history, dev_measures)
