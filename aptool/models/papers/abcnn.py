"""ABCNN: convolutions with attention between the words of both texts (Yin et al. 2015).

The encoder gives word vectors. The columns of a pair are the cosines of the mean states at every level, from
the word vectors up.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.models.similarity import EPSILON
from aptool.options import bounded


class AbcnnPooling(Pooling):
    """Blocks of wide convolution and window pooling, with attention before and after the convolution.

    One block, on padded states Q (n, M, d) and A (n, L, d) of both texts:

    - attention on the input (ABCNN-1): G = attend(Q, A) (n, M, L); a second channel of the input is G A W for
      the question and Gᵀ Q W for the answer;
    - convolution over windows of w states of all channels, wide (M + w − 1 states), with tanh;
    - attention on the output (ABCNN-2): G of the convolved states; the sum of a row or column is the weight
      of a state in the sum over windows of w states, which gives M and L states.
    """

    many_columns = True

    @dataclass(frozen=True)
    class Options:
        """Options of ``abcnn`` pooling.

        Attributes:
            layers: Number of blocks.
            features: Convolutional filters of a block.
            window: States in the window of a filter and of the pooling after it, w.
            attention: Where texts attend to each other: on the ``input`` of a block (ABCNN-1), on the
                ``output`` of its convolution (ABCNN-2), on ``both`` (ABCNN-3) or nowhere (``none``: BCNN).
        """

        layers: int = bounded(1, least=1, below=17)
        features: int = bounded(50, least=1, below=1 << 14)
        window: int = bounded(4, least=1, below=129)
        attention: Literal["input", "output", "both", "none"] = "both"

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.options = options
        self.on_input = options.attention in ("input", "both")
        self.on_output = options.attention in ("output", "both")
        sizes = [size] + [options.features] * options.layers
        channels = 2 if self.on_input else 1
        self.convolutions = nn.ModuleList(
            nn.Linear(options.window * channels * before, after) for before, after in pairwise(sizes)
        )
        # The paper's W_0 (d, L) and W_1 (d, M) require texts of one length; W (d, d) allows any length.
        self.attended = nn.ModuleList(
            nn.Linear(before, before, bias=False) for before in sizes[:-1] if self.on_input
        )

    @property
    @override
    def columns(self) -> int:
        return 1 + self.options.layers

    @classmethod
    @override
    def max_weights(cls, size: int, options: Any) -> int:
        widest = max(size, options.features)
        of_block = options.features * (2 * options.window * widest + 1) + widest * widest
        return int(options.layers * of_block)

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        Q, mask_q = questions.padded()  # (n, M, d), (n, M)
        A, mask_a = answers.padded()  # (n, L, d), (n, L)
        columns = [_cosine_of_means(Q, mask_q, A, mask_a)]
        for layer in range(self.options.layers):
            Q, A = self._block(layer, Q, mask_q, A, mask_a)
            columns.append(_cosine_of_means(Q, mask_q, A, mask_a))
        return torch.stack(columns, dim=1)

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) shares of the attention between the word vectors of n pairs."""
        Q, mask_q = questions.padded()
        A, mask_a = answers.padded()
        G = attend(Q, mask_q, A, mask_a)
        weights_q, weights_a = G.sum(2), G.sum(1)
        return weights_q / weights_q.sum(1, keepdim=True), weights_a / weights_a.sum(1, keepdim=True)

    def alignment(self, questions: Tensor, answers: Tensor) -> Tensor:
        """G (M, L) of the word vectors (M, d) of a question and (L, d) of an answer."""
        masks = [states.new_ones(1, len(states), dtype=torch.bool) for states in (questions, answers)]
        return attend(questions[None], masks[0], answers[None], masks[1])[0]

    def _block(
        self, layer: int, Q: Tensor, mask_q: Tensor, A: Tensor, mask_a: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The states of the next level, (n, M, c) and (n, L, c)."""
        window = self.options.window
        in_q, in_a = Q, A
        if self.on_input:
            G = attend(Q, mask_q, A, mask_a)  # (n, M, L)
            project = self.attended[layer]
            in_q = torch.cat([Q, G @ project(A)], dim=2)  # (n, M, 2 d)
            in_a = torch.cat([A, G.transpose(1, 2) @ project(Q)], dim=2)  # (n, L, 2 d)
        wide_q, wide_mask_q = self._convolved(layer, in_q, mask_q)
        wide_a, wide_mask_a = self._convolved(layer, in_a, mask_a)
        scale = 1 / window
        if self.on_output:  # weighted states are summed over a window, others averaged
            G = attend(wide_q, wide_mask_q, wide_a, wide_mask_a)
            wide_q, wide_a, scale = wide_q * G.sum(2)[..., None], wide_a * G.sum(1)[..., None], 1.0
        pooled_q, pooled_a = (windows(wide, window).sum(2) * scale for wide in (wide_q, wide_a))
        return pooled_q * mask_q[..., None], pooled_a * mask_a[..., None]

    def _convolved(self, layer: int, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(n, T + w − 1, c) wide convolution of (n, T, d), zero past the end of a text, and its mask."""
        window = self.options.window
        padded = F.pad(states * mask[..., None], (0, 0, window - 1, window - 1))
        wide = self.convolutions[layer](windows(padded, window).flatten(2)).tanh()
        wide_mask = F.pad(mask, (window - 1, 0), value=True)  # a text of T has states up to T + w - 1
        return wide * wide_mask[..., None], wide_mask


def attend(Q: Tensor, mask_q: Tensor, A: Tensor, mask_a: Tensor) -> Tensor:
    """G (n, M, L) = 1 / (1 + ‖q_i − a_j‖) of states (n, M, d) and (n, L, d); 0 on padding (equation 1)."""
    # Products would cancel for close states.
    distance = torch.cdist(Q, A, compute_mode="donot_use_mm_for_euclid_dist")
    return 1 / (1 + distance) * (mask_q[:, :, None] & mask_a[:, None])


def windows(states: Tensor, window: int) -> Tensor:
    """(n, T − w + 1, w, c) every window of w successive states of (n, T, c)."""
    return states.unfold(1, window, 1).transpose(2, 3)


def _cosine_of_means(Q: Tensor, mask_q: Tensor, A: Tensor, mask_a: Tensor) -> Tensor:
    """(n,) cosines of the mean states of two texts."""
    mean_q = (Q * mask_q[..., None]).sum(1) / mask_q.sum(1, keepdim=True)
    mean_a = (A * mask_a[..., None]).sum(1) / mask_a.sum(1, keepdim=True)
    return F.cosine_similarity(mean_q, mean_a, dim=1, eps=EPSILON)
