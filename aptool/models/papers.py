"""Poolings of other papers on answer selection, for comparison with attentive pooling.

- ``AbcnnPooling``: convolutions with attention between the words of both texts (Yin et al. 2015).
- ``JointPooling``: an LSTM that reads question and answer as one text (Wang and Nyberg 2015).
- ``OneWayPooling``: attention of the question to the states of the answer (Tan et al. 2015).
- ``AlignmentPooling``: the best match of each word in the other text (Wang and Ittycheriah 2015).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from typing_extensions import override

from aptool.config import NoOptions, bounded
from aptool.models.matching import normalized
from aptool.models.pooling import EPSILON, Pooling, VectorPooling, segment_max
from aptool.models.ragged import Ragged

# Minimum cosine of an aligned word.
_ALIGNED = 0.99


class AbcnnPooling(Pooling):
    """Blocks of wide convolution and window pooling, with attention before and after the convolution.

    The encoder gives word vectors. The columns of a pair are the cosines of the mean states at every level,
    from the word vectors up. One block, on padded states Q (n, M, d) and A (n, L, d) of both texts:

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

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        Q, mask_q = questions.padded()  # (n, M, d), (n, M)
        A, mask_a = answers.padded()  # (n, L, d), (n, L)
        columns = [_cosine_of_means(Q, mask_q, A, mask_a)]
        for layer in range(self.options.layers):
            Q, A = self._block(layer, Q, mask_q, A, mask_a)
            columns.append(_cosine_of_means(Q, mask_q, A, mask_a))
        return torch.stack(columns, dim=1)

    def _block(
        self, layer: int, Q: Tensor, mask_q: Tensor, A: Tensor, mask_a: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the states of the next level, (n, M, c) and (n, L, c)."""
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
        if self.on_output:  # weighted states are summed over a window, unweighted states averaged
            G = attend(wide_q, wide_mask_q, wide_a, wide_mask_a)
            wide_q, wide_a, scale = wide_q * G.sum(2)[..., None], wide_a * G.sum(1)[..., None], 1.0
        pooled_q, pooled_a = (windows(wide, window).sum(2) * scale for wide in (wide_q, wide_a))
        return pooled_q * mask_q[..., None], pooled_a * mask_a[..., None]

    def _convolved(self, layer: int, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(n, T + w − 1, c) wide convolution of (n, T, d), zero past the end of a text, and its mask."""
        window = self.options.window
        padded = F.pad(states * mask[..., None], (0, 0, window - 1, window - 1))
        wide = self.convolutions[layer](windows(padded, window).flatten(2)).tanh()
        wide_mask = F.pad(mask, (window - 1, 0), value=True)  # a text of length T has T + w - 1 states
        return wide * wide_mask[..., None], wide_mask


def attend(Q: Tensor, mask_q: Tensor, A: Tensor, mask_a: Tensor) -> Tensor:
    """G (n, M, L) = 1 / (1 + ‖q_i − a_j‖) of states (n, M, d) and (n, L, d); 0 on padding (equation 1)."""
    # Products would cancel for close states.
    distance = torch.cdist(Q, A, compute_mode="donot_use_mm_for_euclid_dist")
    return 1 / (1 + distance) * (mask_q[:, :, None] & mask_a[:, None])


def windows(states: Tensor, window: int) -> Tensor:
    """(n, T − w + 1, w, c) windows of w successive states of (n, T, c)."""
    return states.unfold(1, window, 1).transpose(2, 3)


def _cosine_of_means(Q: Tensor, mask_q: Tensor, A: Tensor, mask_a: Tensor) -> Tensor:
    """(n,) cosines of the mean states of two texts."""
    mean_q = (Q * mask_q[..., None]).sum(1) / mask_q.sum(1, keepdim=True)
    mean_a = (A * mask_a[..., None]).sum(1) / mask_a.sum(1, keepdim=True)
    return F.cosine_similarity(mean_q, mean_a, dim=1, eps=EPSILON)


class JointPooling(Pooling):
    """A linear function of the mean state of a stacked biLSTM over question and answer.

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

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        joined = self._joined(questions, answers)
        (dense,) = joined.pad(joined.values)  # (n, T, d)
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


class OneWayPooling(VectorPooling):
    """Pooling of answer states that are weighted by attention of the question.

    The question's vector is o_q. The state h_t of an answer has the weight s_t ∝ exp(wᵀ m_t) with
    m_t = tanh(W_a h_t + W_q o_q); the weighted states are pooled like the question's states.
    """

    Options = NoOptions

    def __init__(self, size: int, options: NoOptions) -> None:
        super().__init__()
        self.W_a = nn.Linear(size, size, bias=False)  # W_am
        self.W_q = nn.Linear(size, size, bias=False)  # W_qm
        self.w = nn.Linear(size, 1, bias=False)  # w_ms

    @override
    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """Compute the vectors (n, c) of both texts."""
        r_q = segment_max(questions.values, questions)  # (n, c): o_q
        A, mask = answers.padded()  # (n, L, c), (n, L)
        m = (self.W_a(A) + self.W_q(r_q)[:, None]).tanh()  # (n, L, c)
        sigma_a = self.w(m)[..., 0].masked_fill(~mask, -torch.inf).softmax(1)  # (n, L)
        # Scale weights by text length, so that uniform weights change nothing.
        weights = (sigma_a * mask.sum(1, keepdim=True)).flatten()
        weights = weights.index_select(0, answers.slots(mask.shape[1]))  # (N,)
        r_a = segment_max(answers.values * weights[:, None], answers)
        return r_q, r_a


class AlignmentPooling(Pooling):
    """Columns from the maximum cosines of the words of both texts, for a small head.

    The encoder gives word vectors. The similarity of a word to the other text is its maximum cosine with the
    words of that text; its dissimilarity is 1 minus the similarity.
    """

    Options = NoOptions
    many_columns = True

    def __init__(self, size: int, options: NoOptions) -> None:
        super().__init__()
        # The importance of a word is the softmax of v · x over its text, initially uniform.
        self.v = nn.Parameter(torch.zeros(size))

    @property
    @override
    def columns(self) -> int:
        return 8  # four per text

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, 8) columns, four per text.

        The columns are: mean similarity; mean similarity weighted by importance; sum of the dissimilarities
        of unaligned words, divided by the length; maximum dissimilarity.
        """
        best_q, mask_q, best_a, mask_a = self._best(questions, answers)
        columns = []
        for texts, best, mask in ((questions, best_q, mask_q), (answers, best_a, mask_a)):
            length = mask.sum(1)
            (importance,) = texts.pad(texts.values @ self.v)
            weights = importance.masked_fill(~mask, -torch.inf).softmax(1)
            dissimilarity = (1 - best) * mask
            columns += [
                (best * mask).sum(1) / length,
                (best * weights).sum(1),
                (dissimilarity * (best < _ALIGNED)).sum(1) / length,
                dissimilarity.amax(1),
            ]
        return torch.stack(columns, dim=1)

    def _best(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(n, M) maximum cosines of the question's words and their mask, then (n, L) of the answer's."""
        Q, mask_q = normalized(questions).padded()
        A, mask_a = normalized(answers).padded()
        S = Q @ A.transpose(1, 2)  # (n, M, L)
        best_q = S.masked_fill(~mask_a[:, None], -1.0).amax(2)
        best_a = S.masked_fill(~mask_q[:, :, None], -1.0).amax(1)
        return best_q, mask_q, best_a, mask_a
