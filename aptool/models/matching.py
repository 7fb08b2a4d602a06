"""Poolings that match tokens: the score follows from S (M, L), the similarities of the tokens of both texts.

A token's state is scaled to unit length, so S holds cosines. Of an answer, the states of all its tokens are
kept; a pair costs one product and the reduction of S.

- ``maxsim``: ColBERT (Khattab and Zaharia, 2020), the best answer token of each question token.
- ``symmetric-maxsim``: the mean of that and of the best question token of each answer token.
- ``soft-maxsim``: a mean of each row of S in place of its maximum, weighted by a softmax.
- ``kernels``: KNRM (Xiong et al., 2017) and TK (Hofstätter et al., 2020), soft counts of similarities.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from aptool.config import bounded
from aptool.models.pooling import Pooling, StateOptions
from aptool.models.ragged import Ragged
from aptool.models.similarity import unit


class MatchPooling(Pooling):
    """A pooling of the similarities of tokens."""

    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_pairs``."""
        Q, mask_q = questions.with_values(unit(questions.values)).padded()  # (n, M, c), (n, M)
        A, mask_a = answers.with_values(unit(answers.values)).padded()  # (n, L, c), (n, L)
        return self.reduce(Q @ A.transpose(1, 2), mask_q, mask_a)

    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_matrix``: the questions with one answer after another."""
        Q, mask_q = questions.with_values(unit(questions.values)).padded()  # (n, M, c), (n, M)
        columns = []
        for answer in unit(answers.values).split(answers.lengths.tolist()):
            mask_a = mask_q.new_ones(len(Q), len(answer))
            columns.append(self.reduce(Q @ answer.T, mask_q, mask_a))
        return torch.stack(columns, 1)

    @abstractmethod
    def reduce(self, S: Tensor, mask_q: Tensor, mask_a: Tensor) -> Tensor:
        """Scores of pairs from their similarities.

        Args:
            S: (n, M, L) similarities, anything on padding.
            mask_q: (n, M) bool, false on padding.
            mask_a: (n, L) bool, false on padding.

        Returns:
            (n,) scores.
        """


class MaxSimPooling(MatchPooling):
    """s = mean over the question's tokens m of max over the answer's tokens l of S_ml."""

    @dataclass(frozen=True)
    class Options(StateOptions):
        """Options of ``maxsim`` pooling.

        Attributes:
            reduce: ``mean`` over the question's tokens, which is within [-1, 1], or ``sum``, as in ColBERT.
                They rank alike.
        """

        reduce: Literal["mean", "sum"] = "mean"

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.sums = options.reduce == "sum"

    def reduce(self, S: Tensor, mask_q: Tensor, mask_a: Tensor) -> Tensor:
        """See ``MatchPooling.reduce``."""
        best = S.masked_fill(~mask_a[:, None], -torch.inf).amax(2)  # (n, M)
        total = best.masked_fill(~mask_q, 0).sum(1)
        return total if self.sums else total / mask_q.sum(1)


class SymmetricMaxSimPooling(MatchPooling):
    """s = (mean over m of max over l of S_ml + mean over l of max over m of S_ml) / 2."""

    Options = StateOptions

    def __init__(self, size: int, options: StateOptions) -> None:
        super().__init__()

    def reduce(self, S: Tensor, mask_q: Tensor, mask_a: Tensor) -> Tensor:
        """See ``MatchPooling.reduce``."""
        of_q = S.masked_fill(~mask_a[:, None], -torch.inf).amax(2).masked_fill(~mask_q, 0)  # (n, M)
        of_a = S.masked_fill(~mask_q[:, :, None], -torch.inf).amax(1).masked_fill(~mask_a, 0)  # (n, L)
        return (of_q.sum(1) / mask_q.sum(1) + of_a.sum(1) / mask_a.sum(1)) / 2


class SoftMaxSimPooling(MatchPooling):
    """s = mean over m of the sum over l of softmax_l(S_ml / T) S_ml.

    With a small temperature T it is ``maxsim``, with a large one the mean of S.
    """

    @dataclass(frozen=True)
    class Options(StateOptions):
        """Options of ``soft-maxsim`` pooling.

        Attributes:
            temperature: T.
        """

        temperature: float = bounded(0.05, least=0.001)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.temperature = options.temperature

    def reduce(self, S: Tensor, mask_q: Tensor, mask_a: Tensor) -> Tensor:
        """See ``MatchPooling.reduce``."""
        weights = (S / self.temperature).masked_fill(~mask_a[:, None], -torch.inf).softmax(2)
        return (weights * S).sum(2).masked_fill(~mask_q, 0).sum(1) / mask_q.sum(1)


class KernelPooling(MatchPooling):
    """s = Σ_k w_k φ_k with φ_k = mean over m of log Σ_l exp(-(S_ml - μ_k)² / 2σ²).

    μ is 1, and then the middles of equal parts of [-1, 1]; a sum of less than 1e-6 counts as 1e-6.
    """

    LEAST = 1e-6

    @dataclass(frozen=True)
    class Options(StateOptions):
        """Options of ``kernels`` pooling.

        Attributes:
            kernels: Number of kernels.
            width: Their σ.
        """

        kernels: int = bounded(11, least=2, below=1001)
        width: float = bounded(0.1, least=0.01)

    means: Tensor  # (k,) μ

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        parts = options.kernels - 1
        means = torch.cat([torch.ones(1), 1 - (2 * torch.arange(parts) + 1) / parts])
        self.register_buffer("means", means, persistent=False)
        self.width = options.width
        # Similar tokens count for the answer and dissimilar ones against it, until training knows better.
        self.weights = nn.Parameter(means / options.kernels)

    @classmethod
    def max_weights(cls, size: int, options: Any) -> int:
        """See ``Pooling.max_weights``: one weight a kernel."""
        return int(options.kernels)

    def counts(self, S: Tensor) -> Tensor:
        """(..., k) by how much each similarity belongs to each kernel."""
        return ((S[..., None] - self.means) / self.width).square().mul(-0.5).exp()

    def reduce(self, S: Tensor, mask_q: Tensor, mask_a: Tensor) -> Tensor:
        """See ``MatchPooling.reduce``."""
        counts = self.counts(S).masked_fill(~mask_a[:, None, :, None], 0).sum(2)  # (n, M, k)
        logs = counts.clamp_min(self.LEAST).log().masked_fill(~mask_q[..., None], 0)
        return (logs.sum(1) / mask_q.sum(1, keepdim=True)) @ self.weights
