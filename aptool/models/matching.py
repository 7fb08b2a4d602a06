"""Poolings that match tokens: the score follows from S (M, L), the similarities of the tokens of both texts.

A token's state is scaled to unit length, so S holds cosines. Of an answer, the states of all its tokens are
kept; a pair costs one product and the reduction of S. Each token of the question is first matched with the
answer's (``match``); the score follows from the sum over the question's tokens (``score``).

- ``maxsim``: ColBERT (Khattab and Zaharia, 2020), the best answer token of each question token.
- ``symmetric-maxsim``: the mean of that and of the best question token of each answer token.
- ``soft-maxsim``: a mean of each row of S in place of its maximum, weighted by a softmax.
- ``kernels``: KNRM (Xiong et al., 2017) and TK (Hofstätter et al., 2020), soft counts of similarities.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from aptool.models.pooling import Pooling, StateOptions, segment_max
from aptool.models.ragged import Ragged
from aptool.models.similarity import unit
from aptool.options import bounded


class MatchPooling(Pooling):
    """A pooling of the similarities of tokens."""

    # Whether only the question's tokens are matched, so that the score follows from ``match`` alone.
    one_way: ClassVar[bool] = True

    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_pairs``."""
        Q, mask_q = normalized(questions).padded()  # (n, M, c), (n, M)
        A, mask_a = normalized(answers).padded()  # (n, L, c), (n, L)
        return self.reduce(Q @ A.transpose(1, 2), mask_q, mask_a)

    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_matrix``: all questions with one answer after another."""
        Q = normalized(questions)
        parts = normalized(answers).values.split(answers.sizes.tolist())
        return torch.stack([self.reduce_one(Q.with_values(Q.values @ A.T)) for A in parts], 1)

    def reduce(self, S: Tensor, mask_q: Tensor, mask_a: Tensor) -> Tensor:
        """Scores of pairs from their similarities.

        Args:
            S: (n, M, L) similarities, anything on padding.
            mask_q: (n, M) bool, false on padding.
            mask_a: (n, L) bool, false on padding.

        Returns:
            (n,) scores.
        """
        matched = self.match(S, mask_a[:, None])  # (n, M, k)
        return self.score(matched.masked_fill(~mask_q[:, :, None], 0).sum(1), mask_q.sum(1))

    def reduce_one(self, S: Ragged) -> Tensor:
        """Scores of n questions with one answer.

        Args:
            S: similarities, values (N, L), of the tokens of n questions to those of the answer.

        Returns:
            (n,) scores.
        """
        return self.score(segment_sum(S.with_values(self.match(S.values))), S.lengths)

    @abstractmethod
    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """How well tokens of a question are matched by an answer.

        Args:
            S: (..., L) similarities of each to the answer's tokens.
            mask: broadcasts to S, false on padding; None if there is no padding.

        Returns:
            (..., k) numbers, as a rule one.
        """

    @abstractmethod
    def partners(self, S: Tensor) -> Tensor:
        """(M, L) by how much each token of a question is matched with each of an answer, from S (M, L).

        They sum to one: shares of the weight that the pair's matches have in its score.
        """

    def score(self, totals: Tensor, tokens: Tensor) -> Tensor:
        """(n,) scores from the sums (n, k) of ``match`` over the tokens of questions, (n,) of them."""
        return totals[:, 0] / tokens

    def alignment(self, questions: Tensor, answers: Tensor) -> Tensor:
        """S (M, L) of one pair, from the states (M, c) of a question and (L, c) of an answer."""
        return unit(questions) @ unit(answers).T

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) weights of the tokens of n pairs: sums of ``partners`` over the other text."""
        shares = [
            self.partners(self.alignment(Q, A))
            for Q, A in zip(
                questions.values.split(questions.sizes.tolist()),
                answers.values.split(answers.sizes.tolist()),
                strict=True,
            )
        ]
        return tuple(  # type: ignore[return-value]
            Ragged.join([one.sum(dim) for one in shares]).padded()[0] for dim in (1, 0)
        )


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

    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """See ``MatchPooling.match``: (..., 1), the largest."""
        return best(S, mask)

    def score(self, totals: Tensor, tokens: Tensor) -> Tensor:
        """See ``MatchPooling.score``."""
        return totals[:, 0] if self.sums else super().score(totals, tokens)

    def partners(self, S: Tensor) -> Tensor:
        """See ``MatchPooling.partners``: each question token has its best answer token."""
        return nearest(S) / len(S)


class SymmetricMaxSimPooling(MatchPooling):
    """s = (mean over m of max over l of S_ml + mean over l of max over m of S_ml) / 2."""

    Options = StateOptions
    one_way = False

    def __init__(self, size: int, options: StateOptions) -> None:
        super().__init__()

    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """See ``MatchPooling.match``: (..., 1), the largest."""
        return best(S, mask)

    def reduce(self, S: Tensor, mask_q: Tensor, mask_a: Tensor) -> Tensor:
        """See ``MatchPooling.reduce``."""
        of_questions = super().reduce(S, mask_q, mask_a)
        return (of_questions + super().reduce(S.transpose(1, 2), mask_a, mask_q)) / 2

    def reduce_one(self, S: Ragged) -> Tensor:
        """See ``MatchPooling.reduce_one``."""
        return (super().reduce_one(S) + segment_max(S.values, S).mean(1)) / 2

    def partners(self, S: Tensor) -> Tensor:
        """See ``MatchPooling.partners``: each token of either text has its best one in the other."""
        return (nearest(S) / S.shape[0] + nearest(S.T).T / S.shape[1]) / 2


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

    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """See ``MatchPooling.match``: (..., 1), the mean that is weighted by the softmax."""
        logits = S / self.temperature
        weights = (logits if mask is None else logits.masked_fill(~mask, -torch.inf)).softmax(-1)
        return (weights * S).sum(-1, keepdim=True)

    def partners(self, S: Tensor) -> Tensor:
        """See ``MatchPooling.partners``: the softmax."""
        return (S / self.temperature).softmax(1) / len(S)


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

    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """See ``MatchPooling.match``: (..., k), the logarithm of the soft count of each kernel."""
        counts = ((S[..., None] - self.means) / self.width).square().mul(-0.5).exp()  # (..., L, k)
        if mask is not None:
            counts = counts.masked_fill(~mask[..., None], 0)
        return counts.sum(-2).clamp_min(self.LEAST).log()

    def score(self, totals: Tensor, tokens: Tensor) -> Tensor:
        """See ``MatchPooling.score``."""
        return (totals / tokens[:, None]) @ self.weights

    def partners(self, S: Tensor) -> Tensor:
        """See ``MatchPooling.partners``: all pairs count; what is shown is each question token's best one."""
        return nearest(S) / len(S)


def normalized(states: Ragged) -> Ragged:
    """States (N, c) scaled to unit length."""
    return states.with_values(unit(states.values))


def best(S: Tensor, mask: Tensor | None) -> Tensor:
    """(..., 1) the largest of S (..., L), where ``mask`` is true."""
    return (S if mask is None else S.masked_fill(~mask, -torch.inf)).amax(-1, keepdim=True)


def nearest(S: Tensor) -> Tensor:
    """(M, L) one at the largest of each row of S (M, L), zero elsewhere; of equal ones, the first."""
    return torch.zeros_like(S).scatter_(1, S.argmax(1, keepdim=True), 1.0)


def segment_sum(sequences: Ragged) -> Tensor:
    """(n, ...) sums of the values (N, ...) over each of n sequences."""
    lengths = sequences.lengths
    return torch.segment_reduce(sequences.values, "sum", lengths=lengths, axis=0, unsafe=True)
