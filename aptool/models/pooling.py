"""Poolings: from two state sequences to a score, usually the similarity of two vectors (paper, section 2.3).

These are the differentiable definitions; ``aptool.scoring.kernels`` computes the same scores for many pairs
that share texts. This module has the interface and the poolings of single texts.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.models.ragged import Ragged
from aptool.models.similarity import Cosine, Similarity


@dataclass(frozen=True)
class StateOptions:
    """Options of all poolings of states.

    Attributes:
        dim: Features after a learned projection of the states; 0 does not project. Fewer features take less
            memory and time per answer.
    """

    dim: int = 0


class Pooling(nn.Module, ABC):
    """The interface of poolings."""

    Options: ClassVar[type]
    # Whether the pooling returns several features per pair, from which a head computes the score.
    many_columns: ClassVar[bool] = False

    @property
    def columns(self) -> int:
        """C, columns per pair."""
        return 1

    @abstractmethod
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) or (n, C) columns of n pairs from their states; pair i is question i with answer i."""

    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, k) or (n, k, C) columns of n questions with k answers, from their states."""
        n, k = len(questions.sizes), len(answers.sizes)
        first, second = np.repeat(np.arange(n), k), np.tile(np.arange(k), n)
        return self.score_pairs(questions.select(first), answers.select(second)).unflatten(0, (n, k))

    @property
    def has_weights(self) -> bool:
        """Whether ``attention`` returns the weights of states."""
        return type(self).attention is not Pooling.attention

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) weights of the states of n pairs, for explanations; see ``has_weights``.

        The weights of a text sum to one and are 0 on padding.
        """
        raise NotImplementedError(type(self).__name__)

    def alignment(self, questions: Tensor, answers: Tensor) -> Tensor | None:
        """(M, L) alignment of the states (M, c) of a question and (L, c) of an answer; None without one."""
        return None


class VectorPooling(Pooling):
    """A pooling of each text of a pair to one vector; the score is the similarity of both (eq. 11)."""

    def __init__(self) -> None:
        super().__init__()
        self.similarity: Similarity = Cosine(0, Cosine.Options())

    @abstractmethod
    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, ...]:
        """Compute r_q (n, c), r_a (n, c), and optionally further tensors, from the states of n pairs."""

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        r_q, r_a = self(questions, answers)[:2]
        return self.similarity(r_q, r_a)


class JoinedPooling(Pooling):
    """The similarity and both vectors of a pooling as 1 + 2 c columns, for a head."""

    def __init__(self, inner: VectorPooling, size: int) -> None:
        super().__init__()
        self.inner = inner
        self._size = size

    @property
    @override
    def columns(self) -> int:
        return 1 + 2 * self._size

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        r_q, r_a = self.inner(questions, answers)[:2]
        if type(self.inner).score_pairs is VectorPooling.score_pairs:
            scores = self.inner.similarity(r_q, r_a)
        else:
            scores = self.inner.score_pairs(questions, answers)
        return torch.cat([scores[:, None], r_q, r_a], dim=1)


class IndependentPooling(VectorPooling):
    """A pooling in which the vector of a text does not depend on the other text of the pair."""

    Options = StateOptions

    def __init__(self, size: int, options: StateOptions) -> None:
        super().__init__()

    @abstractmethod
    def represent(self, states: Ragged) -> Tensor:
        """(n, c) vectors of n texts, from their states, values (N, c)."""

    @override
    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        return self.represent(questions), self.represent(answers)

    @override
    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        if type(self) not in (MaxPooling, MeanPooling) or not self.similarity.has_matrix:
            return super().score_matrix(questions, answers)
        return self.similarity.every_pair(self.represent(questions), self.represent(answers))


class MaxPooling(IndependentPooling):
    """QA-CNN's and QA-biLSTM's pooling: r = tanh(maximum of each feature over the states) (eq. 9, 10)."""

    @override
    def represent(self, states: Ragged) -> Tensor:
        return segment_max(states.values, states).tanh()

    @property
    @override
    def has_weights(self) -> bool:
        return type(self) is MaxPooling or type(self).attention is not MaxPooling.attention

    @override
    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) shares of the features that have their maximum in a state."""
        return _shares_of_maxima(questions), _shares_of_maxima(answers)


class MeanPooling(IndependentPooling):
    """r = mean of the states, as in most sentence encoders."""

    @override
    def represent(self, states: Ragged) -> Tensor:
        return segment_mean(states)


def _shares_of_maxima(states: Ragged) -> Tensor:
    """(n, T) shares of the features that have their maximum in a state; ties are shared equally."""
    dense, mask = states.padded()  # (n, T, c), (n, T)
    dense = dense.masked_fill(~mask[..., None], -torch.inf)
    is_maximum = (dense == dense.amax(1, keepdim=True)).float()  # (n, T, c)
    return (is_maximum / is_maximum.sum(1, keepdim=True)).mean(2)  # (n, T)


def segment_max(values: Tensor, sequences: Ragged) -> Tensor:
    """(n, ...) maximum of ``values`` (N, ...) over each of n sequences."""
    # unsafe: verifying the lengths would synchronize with the GPU.
    return torch.segment_reduce(values, "max", lengths=sequences.lengths, axis=0, unsafe=True)


def segment_mean(sequences: Ragged) -> Tensor:
    """(n, ...) mean of the values (N, ...) over each of n sequences."""
    lengths = sequences.lengths
    return torch.segment_reduce(sequences.values, "mean", lengths=lengths, axis=0, unsafe=True)


def orthonormal_projection(size: int, dim: int) -> nn.Module:
    """Build a linear function from ``size`` to ``dim`` features with orthonormal rows, without bias.

    It approximately preserves inner products, so training starts close to the scores without a projection.
    """
    linear = nn.Linear(size, dim, bias=False)
    nn.init.orthogonal_(linear.weight)
    return nn.Sequential(OrderedDict(linear=linear))
