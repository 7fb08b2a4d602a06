"""A variant of attentive pooling: the importance of a word is the mean of its alignments, not their maximum.

A subclass of a pooling redefines some of its methods. All steps compute the new definition: training, scoring
of files, `Model.rank`, explanations. A kernel serves one class and no subclass, so here pairs are scored by
`forward` itself.

    import soft_attention
    aptool.train(data, preset="examples/extending/soft-attention.toml")
"""

import torch
from torch import Tensor

from aptool.models.attention import AttentivePooling
from aptool.models.build import POOLINGS
from aptool.models.ragged import Ragged


class SoftAttentivePooling(AttentivePooling):
    """Equations 13 to 18 with the mean over the other text in equations 14 and 15."""

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the vectors (n, c) and the attention weights (n, M) and (n, L) of both texts of n pairs."""
        Q, mask_q = questions.padded()  # (n, M, c), (n, M)
        A, mask_a = answers.padded()  # (n, L, c), (n, L)
        G = ((Q @ self.U) @ A.transpose(1, 2)).tanh()  # eq. 13: (n, M, L)
        G = G * (mask_q[:, :, None] & mask_a[:, None, :])
        sigma_q = self.attention_weights(G.sum(2) / mask_a.sum(1)[:, None], mask_q)  # (n, M)
        sigma_a = self.attention_weights(G.sum(1) / mask_q.sum(1)[:, None], mask_a)  # (n, L)
        r_q = torch.einsum("nm,nmc->nc", sigma_q, Q)  # eq. 17: (n, c)
        r_a = torch.einsum("nl,nlc->nc", sigma_a, A)  # eq. 18: (n, c)
        return r_q, r_a, sigma_q, sigma_a


POOLINGS["soft-attentive"] = SoftAttentivePooling
