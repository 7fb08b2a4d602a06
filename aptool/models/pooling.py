"""Poolings: from two state sequences to a score, usually the similarity of two vectors (paper, section 2.3).

These are the differentiable definitions; ``aptool.scoring.kernels`` computes the same scores for many pairs
that share texts. This module has the interface, the poolings of single texts, and the similarities.

A similarity is computed in three steps: per question, per answer and per pair. The scorer computes the first
two once per text.
"""

import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from aptool.config import NoOptions, bounded
from aptool.models.ragged import Ragged

# At the first sparse tensor of a process, PyTorch warns that they are in beta. This is the first one.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0], [], [], (0, 0))

# Minimum norm that a vector is divided by.
EPSILON = 1e-8

# Minimum squared distance: the square root has no gradient at 0.
_MIN_SQUARE = 1e-12


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

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) weights of the states of n pairs, for explanations.

        The weights of a text sum to one and are 0 on padding.
        """
        raise NotImplementedError(type(self).__name__)


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
        similarity = self.similarity
        if type(self) not in (MaxPooling, MeanPooling) or not similarity.has_matrix:
            return super().score_matrix(questions, answers)
        prepared = similarity.prepare_questions(self.represent(questions))
        return similarity.matrix(prepared, similarity.prepare_answers(self.represent(answers)))


class MaxPooling(IndependentPooling):
    """QA-CNN's and QA-biLSTM's pooling: r = tanh(maximum of each feature over the states) (eq. 9, 10)."""

    @override
    def represent(self, states: Ragged) -> Tensor:
        return segment_max(states.values, states).tanh()

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
    offsets = sequences.offsets
    if values.is_cuda or values.requires_grad:
        # unsafe: verifying the offsets would synchronize with the GPU.
        return torch.segment_reduce(values, "max", offsets=offsets, axis=0, unsafe=True)
    # The product with a sparse matrix of ones, whose reduction is a maximum instead of a sum, takes a fourth
    # to a fourteenth of the time.
    count = len(values)
    ones = torch.sparse_csr_tensor(
        offsets, torch.arange(count), values.new_ones(count), (len(offsets) - 1, count)
    )
    return torch.sparse.mm(ones, values.flatten(1), reduce="amax").unflatten(1, values.shape[1:])


def segment_mean(sequences: Ragged) -> Tensor:
    """(n, ...) mean of the values (N, ...) over each of n sequences."""
    offsets = sequences.offsets
    return torch.segment_reduce(sequences.values, "mean", offsets=offsets, axis=0, unsafe=True)


def orthonormal_projection(size: int, dim: int) -> nn.Module:
    """Build a linear function from ``size`` to ``dim`` features with orthonormal rows, without bias.

    It approximately preserves inner products, so training starts close to the scores without a projection.
    """
    linear = nn.Linear(size, dim, bias=False)
    nn.init.orthogonal_(linear.weight)
    return nn.Sequential(OrderedDict(linear=linear))


class Similarity(nn.Module, ABC):
    """The interface of similarities."""

    Options: ClassVar[type] = NoOptions

    def __init__(self, size: int, options: Any) -> None:
        super().__init__()

    def forward(self, r_q: Tensor, r_a: Tensor) -> Tensor:
        """(...,) similarities of r_q (..., c) and r_a (..., c)."""
        return self.pairs(self.prepare_questions(r_q), self.prepare_answers(r_a))

    @property
    def is_cosine(self) -> bool:
        """Whether the similarity is the cosine, which no positive factor of a vector changes."""
        return type(self) is Cosine

    @property
    def has_matrix(self) -> bool:
        """Whether ``matrix`` computes ``forward``: a subclass of a similarity has its own definition."""
        return type(self) in SIMILARITIES.values()

    def prepare_questions(self, r_q: Tensor) -> Tensor:
        """(..., c) transformed r_q (..., c); computed once per question."""
        return r_q

    def prepare_answers(self, r_a: Tensor) -> Tensor:
        """(..., c) transformed r_a (..., c); computed once per answer."""
        return r_a

    @abstractmethod
    def pairs(self, questions: Tensor, answers: Tensor) -> Tensor:
        """(...,) similarities of prepared questions (..., c) and answers (..., c)."""

    @abstractmethod
    def matrix(self, questions: Tensor, answers: Tensor) -> Tensor:
        """(n, k) similarities of all pairs of prepared questions (n, c) and answers (k, c)."""


class Dot(Similarity):
    """x · y."""

    @override
    def pairs(self, questions: Tensor, answers: Tensor) -> Tensor:
        return (questions * answers).sum(-1)

    @override
    def matrix(self, questions: Tensor, answers: Tensor) -> Tensor:
        return questions @ answers.T


class Cosine(Dot):
    """x · y / (‖x‖ ‖y‖), within [-1, 1], and 0 if a vector is zero (paper, eq. 11)."""

    @override
    def forward(self, r_q: Tensor, r_a: Tensor) -> Tensor:
        if not self.is_cosine or not r_q.is_cuda or r_q.shape != r_a.shape:
            return super().forward(r_q, r_a)
        q, a = unit(torch.stack([r_q, r_a]))  # fewer launches
        return self.pairs(q, a)

    @override
    def prepare_questions(self, r_q: Tensor) -> Tensor:
        return unit(r_q)

    @override
    def prepare_answers(self, r_a: Tensor) -> Tensor:
        return unit(r_a)


class Bilinear(Dot):
    """xᵀ M y with a matrix M (c, c) that is learned (Severyn and Moschitti 2015, eq. 2).

    M is initially the identity, so the similarity is initially the inner product.
    """

    def __init__(self, size: int, options: Any) -> None:
        super().__init__(size, options)
        self.M = nn.Parameter(torch.eye(size))  # (c, c)

    @override
    def prepare_questions(self, r_q: Tensor) -> Tensor:
        return r_q @ self.M


class Gesd(Similarity):
    """1 / (1 + ‖x − y‖) · 1 / (1 + exp(−γ (x · y + c))), within (0, 1): Feng et al. 2015, table 4.

    Feng et al. call it the geometric mean of the two factors; it is their product.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of a ``gesd`` similarity.

        Attributes:
            gamma: Factor γ of the inner product.
            offset: Number c added to the inner product.
        """

        gamma: float = bounded(1.0, below=1e6)
        offset: float = bounded(1.0, below=1e6)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__(size, options)
        self.gamma, self.offset = options.gamma, options.offset

    @override
    def pairs(self, questions: Tensor, answers: Tensor) -> Tensor:
        distance = torch.linalg.vector_norm(questions - answers, dim=-1)
        return self._product(distance, (questions * answers).sum(-1))

    @override
    def matrix(self, questions: Tensor, answers: Tensor) -> Tensor:
        return self._product(distances(questions, answers), questions @ answers.T)

    def _product(self, distance: Tensor, dot: Tensor) -> Tensor:
        return torch.sigmoid(self.gamma * (dot + self.offset)) / (1 + distance)


# ``similarity.type`` of a recipe.
SIMILARITIES: dict[str, type[Similarity]] = {"cosine": Cosine, "gesd": Gesd, "bilinear": Bilinear, "dot": Dot}


def unit(vectors: Tensor) -> Tensor:
    """Vectors (..., c) scaled to unit length; a zero vector stays zero."""
    return F.normalize(vectors, dim=-1, eps=EPSILON)


def distances(first: Tensor, second: Tensor) -> Tensor:
    """(n, k) Euclidean distances of the rows of (n, c) and (k, c).

    In fp64, because ‖x‖² + ‖y‖² − 2 x · y cancels where vectors are close.
    """
    x, y = first.double(), second.double()
    squares = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * (x @ y.T)
    return squares.clamp_min(_MIN_SQUARE).sqrt().to(first.dtype)
