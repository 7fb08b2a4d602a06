"""The joint LSTM, which reads question and answer as one (Wang and Nyberg 2015), and one-way attention."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from typing_extensions import override

from aptool.models.pooling import Pooling, VectorPooling, segment_max, segment_mean
from aptool.models.ragged import Ragged
from aptool.options import bounded


class JointPooling(Pooling):
    """The score is a linear function of the mean state of a stacked biLSTM over question and answer.

    The encoder gives word vectors; a learned vector separates question and answer.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of ``joint`` pooling.

        Attributes:
            hidden: Hidden size of each direction and layer.
            layers: Stacked bidirectional layers.
        """

        hidden: int = bounded(100, least=1, below=1 << 14)
        layers: int = bounded(2, least=1, below=17)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.between = nn.Parameter(torch.zeros(size))
        self.lstm = nn.LSTM(
            size, options.hidden, num_layers=options.layers, batch_first=True, bidirectional=True
        )
        self.output = nn.Linear(2 * options.hidden, 1)

    @classmethod
    @override
    def max_weights(cls, size: int, options: Any) -> int:
        of_layer = 8 * options.hidden * (max(size, 2 * options.hidden) + options.hidden + 2)
        return int(size + options.layers * of_layer + 2 * options.hidden + 1)

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        joined = self._joined(questions, answers)
        dense, _ = joined.padded()  # (n, T, d)
        lengths = torch.from_numpy(joined.sizes)
        packed = pack_padded_sequence(dense, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)  # (n, T, 2 H), padded with 0
        mean = states.sum(1) / joined.lengths[:, None]
        scores: Tensor = self.output(mean)
        return scores[:, 0]

    def _joined(self, questions: Ragged, answers: Ragged) -> Ragged:
        """Concatenate the states of each question, the separating vector and the states of its answer."""
        n = len(questions.sizes)
        between = Ragged.of_sizes(self.between.expand(n, -1), np.ones(n, dtype=np.int64))
        parts = Ragged.concatenate([questions, between, answers])
        in_turn = parts.select(np.arange(3 * n).reshape(3, n).T.ravel())
        return Ragged.of_sizes(in_turn.values, questions.sizes + 1 + answers.sizes)


class OneWay(NamedTuple):
    """Vectors and attention weights of n pairs; a row of weights sums to one and is zero on padding."""

    r_q: Tensor  # (n, c)
    r_a: Tensor  # (n, c)
    sigma_a: Tensor  # (n, L)


class OneWayPooling(VectorPooling):
    """m_t = tanh(W_a h_t + W_q o_q), s_t ∝ exp(wᵀ m_t); the states h_t s_t are pooled like the question's."""

    @dataclass(frozen=True)
    class Options:
        """Options of ``one_way`` pooling.

        Attributes:
            pool: Pooling of the states of both texts: ``max`` or ``mean``.
        """

        pool: Literal["max", "mean"] = "max"

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.pool = options.pool
        self.W_a = nn.Linear(size, size, bias=False)  # W_am
        self.W_q = nn.Linear(size, size, bias=False)  # W_qm
        self.w = nn.Linear(size, 1, bias=False)  # w_ms

    @classmethod
    @override
    def max_weights(cls, size: int, options: Any) -> int:
        return 2 * size * size + size

    @override
    def forward(self, questions: Ragged, answers: Ragged) -> OneWay:
        r_q = self._pooled(questions)  # (n, c): o_q
        A, mask = answers.padded()  # (n, L, c), (n, L)
        m = (self.W_a(A) + self.W_q(r_q)[:, None]).tanh()  # (n, L, c)
        sigma_a = self.w(m)[..., 0].masked_fill(~mask, -torch.inf).softmax(1)  # (n, L)
        # Scale weights by text length, so that uniform weights change nothing.
        weights = sigma_a * mask.sum(1, keepdim=True)
        r_a = self._pooled(answers.with_values(answers.values * weights[mask][:, None]))
        return OneWay(r_q, r_a, sigma_a)

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) uniform weights of the questions and σ (n, L) of the answers."""
        mask_q = questions.padded()[1]
        return mask_q / mask_q.sum(1, keepdim=True), self(questions, answers).sigma_a

    def _pooled(self, states: Ragged) -> Tensor:
        """(n, c) the maximum or the mean of the states of each text."""
        if self.pool == "max":
            return segment_max(states.values, states)
        return segment_mean(states)
