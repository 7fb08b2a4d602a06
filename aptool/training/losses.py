"""Losses: how much better than its negatives an answer should score.

``scores`` holds a question in each row: its positive answer in column 0, its negatives in the others, -inf
where a column holds none.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.config import TrainingOptions


def hinge(scores: Tensor, margin: float) -> Tensor:
    """(n,) max(0, m - s(q, a+) + s(q, a-)) of the best-scored negative (paper, eq. 12).

    The gradient reaches the positive and that one negative alone.
    """
    return torch.clamp(margin - scores[:, 0] + scores[:, 1:].amax(1), min=0)


def softmax(scores: Tensor, temperature: float) -> Tensor:
    """(n,) -ln of the share that the positive has of all answers in a softmax of s / temperature."""
    return -F.log_softmax(scores / temperature, dim=1)[:, 0]


def loss(scores: Tensor, options: TrainingOptions) -> Tensor:
    """(n,) losses of the kind that a recipe names."""
    if options.loss == "softmax":
        return softmax(scores, options.temperature)
    return hinge(scores, options.margin)
