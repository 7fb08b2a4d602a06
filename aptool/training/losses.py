"""Losses: by how much a positive answer should outscore its negatives.

``scores`` is (n, k): a question in each row, its positive answer in column 0, its negatives in the others,
-inf in a column without one.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.config import TeacherOptions, TrainingOptions


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


class Teacher(NamedTuple):
    """Scores of the pairs of the training pools.

    Attributes:
        keys: (pairs,) int64, ascending: question · ``answers`` + answer.
        scores: (pairs,) float32 of them.
        answers: number of answers of the training set.
        options: how they are learned from.
    """

    keys: np.ndarray
    scores: np.ndarray
    answers: int
    options: TeacherOptions

    def of(self, questions: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """(n, k) float32 scores of (n, k) answers to (n,) questions; NaN outside a question's pool."""
        wanted = questions[:, None] * self.answers + answers
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, self.scores[place], np.float32(np.nan))

    def mixed(self, losses: Tensor, scores: Tensor, taught: Tensor, options: TrainingOptions) -> Tensor:
        """Losses of questions, with the teacher's share.

        Args:
            losses: (n,) by the labels.
            scores: (n, k) of the system, the relevant answer in column 0, -inf in a column without an answer.
            taught: (n, k) of the teacher, NaN where it has none.
            options: of the training; their temperature is that of ``kl``.
        """
        taught = taught * self.options.scale
        if self.options.loss == "kl":
            own = listwise_kl(scores / options.temperature, taught / options.temperature)
        else:
            own = margin_mse(scores, taught)
        return (1 - self.options.weight) * losses + self.options.weight * own


def margin_mse(scores: Tensor, taught: Tensor) -> Tensor:
    """(n,) mean over the answers j of ((s_0 - s_j) - (t_0 - t_j))²; Hofstätter et al., 2020.

    Args:
        scores: (n, k) s, -inf in a column without an answer.
        taught: (n, k) t, NaN where it is not known; without t_0 there is no loss.
    """
    known = torch.isfinite(scores) & torch.isfinite(taught)
    difference = scores.masked_fill(~known, 0) - taught.masked_fill(~known, 0)
    compared = known[:, 1:] & known[:, :1]
    squares = (difference[:, :1] - difference[:, 1:]).square() * compared
    return squares.sum(1) / compared.sum(1).clamp_min(1)


def listwise_kl(scores: Tensor, taught: Tensor) -> Tensor:
    """(n,) KL(softmax t ‖ softmax s) over the answers of which both are known; shapes as ``margin_mse``."""
    known = torch.isfinite(scores) & torch.isfinite(taught)
    log_s, log_t = (
        F.log_softmax(one.masked_fill(~known, -1e9), dim=1) for one in (scores, taught)
    )  # finite: a question without a known answer has no loss, and no NaN
    return (log_t.exp() * (log_t - log_s) * known).sum(1)
