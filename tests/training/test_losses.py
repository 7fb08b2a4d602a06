"""Losses, by hand."""

import math

import pytest
import torch

from aptool.config import TrainingOptions
from aptool.training.losses import hinge, loss, softmax

NONE = -math.inf


def test_hinge_by_hand():
    # Margin 1/2. 1/2 - .9 + .1 < 0;  1/2 - .2 + .3 = .6, and the other negative, .25, does not count;
    # 1/2 - .25 - .25 = 0, just at the margin;  without a negative, 0.
    scores = torch.tensor([[0.9, 0.1, -1], [0.2, 0.25, 0.3], [0.25, -0.25, NONE], [0.4, NONE, NONE]])

    assert hinge(scores, 0.5).tolist() == pytest.approx([0, 0.6, 0, 0], abs=1e-6)


def test_hinge_has_gradients_for_the_positive_and_the_best_negative_only():
    # d/ds of 1/2 - s+ + s-: -1 and 1, and 0 beyond the margin.
    scores = torch.tensor([[0.2, 0.25, 0.3], [0.9, 0.1, -1.0]], requires_grad=True)

    hinge(scores, 0.5).sum().backward()

    assert scores.grad.tolist() == [[-1, 0, 1], [0, 0, 0]]


def test_softmax_by_hand():
    # e^1 / (e^1 + e^0) = .731059, -ln .731059 = .313262; at temperature 1/2, e^2 / (e^2 + 1): -ln = .126928;
    # three equal scores: ln 3 = 1.098612; a column without an answer does not count.
    scores = torch.tensor([[1, 0, NONE], [0.3, 0.3, 0.3]])

    assert softmax(scores, 1.0).tolist() == pytest.approx([0.313262, 1.098612], abs=1e-6)
    assert softmax(scores, 0.5).tolist() == pytest.approx([0.126928, 1.098612], abs=1e-6)


def test_a_recipe_names_the_loss():
    scores = torch.tensor([[1.0, 0.0]])

    assert loss(scores, TrainingOptions(loss="hinge", margin=2.0)).tolist() == [1.0]
    softmax_options = TrainingOptions(loss="softmax", temperature=1.0)
    assert loss(scores, softmax_options).tolist() == pytest.approx([0.313262], abs=1e-6)
