"""Similarities of the vectors of a question and an answer: ``similarity.type`` of a recipe.

A similarity is computed in three steps: per question, per answer and per pair. The scorer computes the first
two once per text.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from aptool.config import NoOptions, bounded

# Minimum norm that a vector is divided by.
EPSILON = 1e-8

# Minimum squared distance: the square root has no gradient at 0.
_MIN_SQUARE = 1e-12


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

    def every_pair(self, r_q: Tensor, r_a: Tensor) -> Tensor:
        """(n, k) similarities of all pairs of r_q (n, c) and r_a (k, c)."""
        return self.matrix(self.prepare_questions(r_q), self.prepare_answers(r_a))

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
