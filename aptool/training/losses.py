"""Losses: by how much a positive answer should outscore its negatives.

``scores`` is (n, k): a question in each row, its positive answer in column 0, its negatives in the others,
-inf in a column without one.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.config import TrainingOptions


def hinge(scores: Tensor, margin: float) -> Tensor:
    """(n,) max(0, m - s(q, a+) + s(q, a-)) with the highest-scored negative (paper, eq. 12).

    The gradient reaches the positive and that one negative only.
    """
    return torch.clamp(margin - scores[:, 0] + scores[:, 1:].amax(1), min=0)


def softmax(scores: Tensor, temperature: float) -> Tensor:
    """(n,) cross-entropy of the positive in a softmax over s / temperature of all answers."""
    return -F.log_softmax(scores / temperature, dim=1)[:, 0]


def logistic(scores: Tensor) -> Tensor:
    """(n,) −ln σ(s(q, a+)), plus the mean of −ln(1 − σ(s(q, a-))) over the negatives of each question."""
    negatives = torch.isfinite(scores[:, 1:])
    terms = F.softplus(scores[:, 1:].masked_fill(~negatives, 0.0)) * negatives
    return F.softplus(-scores[:, 0]) + terms.sum(1) / negatives.sum(1).clamp_min(1)


def loss(scores: Tensor, options: TrainingOptions) -> Tensor:
    """(n,) losses, by the function that the recipe names."""
    if options.loss == "softmax":
        return softmax(scores, options.temperature)
    if options.loss == "logistic":
        return logistic(scores)
    return hinge(scores, options.margin)
