"""Poolings: two state sequences to two vectors, compared by their cosine (paper, sections 2.3 and 3).

These are the definitions, differentiable and pair by pair. ``aptool.scoring.join`` computes the same scores
for many pairs that share texts.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.models.ragged import Ragged

# The least norm that a vector is divided by.
EPSILON = 1e-8


class Pooling(nn.Module, ABC):
    """What every pooling offers."""

    Options: ClassVar[type]

    @abstractmethod
    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """Vectors of pairs.

        Args:
            questions: states, values (N, c), of n questions.
            answers: states, values (N', c), of n answers; pair i is question i with answer i.

        Returns:
            r_q (n, c) and r_a (n, c).
        """

    @abstractmethod
    def cosines(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, k) cosines of r_q and r_a for every one of n questions with every one of k answers."""


class MaxPooling(Pooling):
    """QA-*: r = tanh(max over time), each side by itself (eq. 9, 10)."""

    @dataclass(frozen=True)
    class Options:
        """``max`` pooling has no options."""

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """See ``Pooling.forward``."""
        return self.represent(questions), self.represent(answers)

    def cosines(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.cosines``."""
        return unit(self.represent(questions)) @ unit(self.represent(answers)).T

    def represent(self, states: Ragged) -> Tensor:
        """(n, c): the vector of each text, whatever it is paired with."""
        return _maxima(states.values, states).tanh()


class AttentivePooling(Pooling):
    """AP-*: each side weighted by how well its best match on the other side aligns (eq. 13 to 18).

    G = tanh(Qᵀ U A), g_q and g_a its maxima over the answer and over the question, σ = softmax(g),
    r_q = Q σ_q, r_a = A σ_a. As tanh increases, the maximum is taken before it: same values, and M + L
    of them in place of M × L.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of ``attentive`` pooling.

        Attributes:
            init: how U starts: ``uniform`` in ±1/√c, or ``identity``, in which G begins as the inner product
                of states.
            scale: multiplies that start.
        """

        init: Literal["uniform", "identity"] = "uniform"
        scale: float = 1.0

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        start = (
            torch.eye(size)
            if options.init == "identity"
            else torch.empty(size, size).uniform_(-1, 1) / size**0.5
        )
        self.U = nn.Parameter(start * options.scale)  # (c, c)

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """See ``Pooling.forward``."""
        Q, _ = questions.padded()  # (n, M, c)
        A, _ = answers.padded()  # (n, L, c)
        weights_q, weights_a = self.attention(questions, answers)
        return torch.einsum("nm,nmc->nc", weights_q, Q), torch.einsum("nl,nlc->nc", weights_a, A)

    def cosines(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.cosines``."""
        alignment = (questions.values @ self.U) @ answers.values.T  # (N, N'), G of all pairs before its tanh
        g_q = _maxima(alignment.T.contiguous(), answers).tanh()  # (k, N)
        g_a = _maxima(alignment, questions).tanh()  # (n, N')
        # g is within [-1, 1]: exp needs no shift. A cosine does not see the divisor of a softmax.
        weights_q, _ = questions.with_values(g_q.T.exp()).padded()  # (n, M, k)
        weights_a, _ = answers.with_values(g_a.T.exp()).padded()  # (k, L, n)
        r_q = weights_q.transpose(1, 2) @ questions.padded()[0]  # (n, k, c)
        r_a = weights_a.transpose(1, 2) @ answers.padded()[0]  # (k, n, c)
        return (unit(r_q) * unit(r_a.transpose(0, 1))).sum(2)

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """σ_q (n, M) and σ_a (n, L): each row sums to one over its text and is zero behind it."""
        Q, mask_q = questions.padded()  # (n, M, c), (n, M)
        A, mask_a = answers.padded()  # (n, L, c), (n, L)
        alignment = (Q @ self.U) @ A.transpose(1, 2)  # (n, M, L), G before its tanh
        alignment = alignment.masked_fill(~(mask_q[:, :, None] & mask_a[:, None, :]), -torch.inf)
        g_q = alignment.amax(2).tanh()  # (n, M)
        g_a = alignment.amax(1).tanh()  # (n, L)
        weights_q = g_q.masked_fill(~mask_q, -torch.inf).softmax(1)
        return weights_q, g_a.masked_fill(~mask_a, -torch.inf).softmax(1)


def unit(vectors: Tensor) -> Tensor:
    """Vectors (..., c) scaled to length one; the zero vector stays."""
    return F.normalize(vectors, dim=-1, eps=EPSILON)


def _maxima(values: Tensor, sequences: Ragged) -> Tensor:
    """(n, ...) the maximum of ``values`` (N, ...) over each of n sequences."""
    return torch.segment_reduce(values, "max", lengths=sequences.lengths, axis=0)


POOLINGS: dict[str, Any] = {"max": MaxPooling, "attentive": AttentivePooling}
