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


def loss(scores: Tensor, options: TrainingOptions) -> Tensor:
    """(n,) losses, by the function that the recipe names."""
    if options.loss == "softmax":
        return softmax(scores, options.temperature)
    return hinge(scores, options.margin)
