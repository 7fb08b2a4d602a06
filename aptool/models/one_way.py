"""One-way attention: the question, pooled first, weighs the states of the answer (Tan et al. 2015)."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from aptool.models.pooling import VectorPooling, segment_max
from aptool.models.ragged import Ragged


class OneWay(NamedTuple):
    """What one-way attention computes for n pairs.

    Attributes:
        r_q: (n, c) vectors of the questions.
        r_a: (n, c) vectors of the answers.
        sigma_a: (n, L) attention weights of the answers; a row sums to one and is zero on padding.
    """

    r_q: Tensor
    r_a: Tensor
    sigma_a: Tensor


class OneWayPooling(VectorPooling):
    """m_t = tanh(W_a h_t + W_q o_q), s_t ∝ exp(wᵀ m_t); the states h_t s_t are pooled as the question's."""

    @dataclass(frozen=True)
    class Options:
        """Options of ``one_way`` pooling.

        Attributes:
            pool: How the states of both texts are pooled: ``max`` or ``mean``.
        """

        pool: Literal["max", "mean"] = "max"

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.pool = options.pool
        self.W_a = nn.Linear(size, size, bias=False)  # W_am
        self.W_q = nn.Linear(size, size, bias=False)  # W_qm
        self.w = nn.Linear(size, 1, bias=False)  # w_ms

    @classmethod
    def max_weights(cls, size: int, options: Any) -> int:
        """See ``Pooling.max_weights``."""
        return 2 * size * size + size

    def forward(self, questions: Ragged, answers: Ragged) -> OneWay:
        """Vectors and attention weights of n pairs.

        Args:
            questions: states, values (N, c), of n questions.
            answers: states, values (N', c), of n answers of up to L tokens; pair i is question i with answer
                i.
        """
        r_q = self._pooled(questions)  # (n, c): o_q
        A, mask = answers.padded()  # (n, L, c), (n, L)
        m = (self.W_a(A) + self.W_q(r_q)[:, None]).tanh()  # (n, L, c)
        sigma_a = self.w(m)[..., 0].masked_fill(~mask, -torch.inf).softmax(1)  # (n, L)
        # As many times the weights as there are states: with even weights, states stay as they are.
        weights = sigma_a * mask.sum(1, keepdim=True)
        r_a = self._pooled(answers.with_values(answers.values * weights[mask][:, None]))
        return OneWay(r_q, r_a, sigma_a)

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) even weights of the questions, which attend to nothing, and σ (n, L) of the answers."""
        mask_q = questions.padded()[1]
        return mask_q / mask_q.sum(1, keepdim=True), self(questions, answers).sigma_a

    def _pooled(self, states: Ragged) -> Tensor:
        """(n, c) the maximum or the mean of the states of each text."""
        if self.pool == "max":
            return segment_max(states.values, states)
        return torch.segment_reduce(states.values, "mean", lengths=states.lengths, axis=0)
