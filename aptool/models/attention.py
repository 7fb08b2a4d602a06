"""Attentive pooling: states are weighted by their alignment with the other text (paper, section 3).

``AttentivePooling.forward`` is equations 13 to 18, in order. The options are not in the paper and have no
effect by default.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.config import bounded
from aptool.models.device import send
from aptool.models.pooling import StateOptions, VectorPooling, segment_max
from aptool.models.ragged import Ragged, similar_lengths


class AttentivePooling(VectorPooling):
    """AP-CNN's and AP-biLSTM's pooling, with one matrix of parameters, U (c, c).

    States are rows here and columns in the paper: ``Q`` is the paper's Qᵀ.
    """

    @dataclass(frozen=True)
    class Options(StateOptions):
        """Options of ``attentive`` pooling.

        Attributes:
            init: Initialization of U: ``uniform`` in ±1/√c, or ``identity``, with which G is initially the
                inner product of states.
            scale: Factor applied to U at initialization.
            sharpness: Factor applied to g before the softmax. As g is within [-1, 1], the largest attention
                weight of a text is at most exp(2 · sharpness) times its smallest: 7.4 times in the paper.
        """

        init: Literal["uniform", "identity"] = "uniform"
        scale: float = 1.0
        sharpness: float = bounded(1.0, below=40)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        identity = options.init == "identity"
        initial = torch.eye(size) if identity else torch.empty(size, size).uniform_(-1, 1) / size**0.5
        self.U = nn.Parameter(initial * options.scale)  # (c, c)
        self.sharpness = options.sharpness

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the vectors r and the attention weights σ of both texts of n pairs: equations 13 to 18.

        tanh is monotonic, so the maximum is taken first: g is the same, with M + L values of tanh instead of
        M · L.
        """
        Q, mask_q = questions.padded()  # eq. 1 or 8: (n, M, c), (n, M)
        A, mask_a = answers.padded()  # eq. 2 or 8: (n, L, c), (n, L)
        G = (Q @ self.U) @ A.transpose(1, 2)  # eq. 13 before its tanh: (n, M, L)
        both = mask_q[:, :, None] & mask_a[:, None, :]
        G = G.masked_fill(~both, -torch.inf)  # padding is never a maximum
        g_q = G.amax(2).tanh()  # eq. 14: (n, M)
        g_a = G.amax(1).tanh()  # eq. 15: (n, L)
        sigma_q = self.attention_weights(g_q, mask_q)  # eq. 16: (n, M)
        sigma_a = self.attention_weights(g_a, mask_a)  # eq. 16 for the answer: (n, L)
        r_q = torch.einsum("nm,nmc->nc", sigma_q, Q)  # eq. 17: (n, c)
        r_a = torch.einsum("nl,nlc->nc", sigma_a, A)  # eq. 18: (n, c)
        return r_q, r_a, sigma_q, sigma_a

    def attention_weights(self, g: Tensor, mask: Tensor) -> Tensor:
        """Eq. 16: softmax of the importance scores g (n, T) over the tokens of each text, ``mask`` (n, T)."""
        return self.scale_logits(g).masked_fill(~mask, -torch.inf).softmax(1)

    @override
    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, k) scores of all pairs of n questions and k answers: equations 11 and 13 to 18."""
        if type(self) is not AttentivePooling:  # a subclass has its own definition
            return super().score_matrix(questions, answers)
        G = (questions.values @ self.U) @ answers.values.T  # eq. 13 before its tanh, of all pairs: (N, N')
        g_q = self.scale_logits(segment_max(G.T.contiguous(), answers).tanh())  # eq. 14: (k, N)
        g_a = self.scale_logits(segment_max(G, questions).tanh())  # eq. 15: (n, N')
        # Eq. 16 without its divisor, which a cosine cancels. g is within [-1, 1]: exp cannot overflow.
        r_q = self._weighted_sums(questions.with_values(g_q.T.exp()), questions)  # eq. 17: (n, k, c)
        r_a = self._weighted_sums(answers.with_values(g_a.T.exp()), answers)  # eq. 18: (k, n, c)
        return self.similarity(r_q, r_a.transpose(0, 1))  # eq. 11: (n, k)

    def _weighted_sums(self, weights: Ragged, states: Ragged) -> Tensor:
        """(n, k, c) weighted sums of the states (N, c) of n texts, by k weights per state, values (N, k)."""
        groups = similar_lengths(states)
        sums = []
        for weight_group, state_group in zip(weights.grouped(groups), states.grouped(groups), strict=True):
            sigma, dense = state_group.pad(weight_group.values, state_group.values)  # (n', T, k), (n', T, c)
            if not self.similarity.is_cosine:
                sigma = sigma / sigma.sum(1, keepdim=True)
            sums.append(sigma.transpose(1, 2) @ dense)
        if len(groups) == 1:
            return sums[0]
        inverse = send(np.argsort(np.concatenate(groups)), states.values.device)
        return torch.cat(sums).index_select(0, inverse)

    @override
    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """Attention weights σ_q (n, M) and σ_a (n, L) of n pairs."""
        _, _, sigma_q, sigma_a = self(questions, answers)
        return sigma_q, sigma_a

    def scale_logits(self, g: Tensor) -> Tensor:
        """Multiply g by the sharpness: the logits of the softmax."""
        return g if self.sharpness == 1 else g * self.sharpness
