"""Poolings: two state sequences to a score, as a rule the similarity of two vectors (paper, section 2.3).

These are the definitions, differentiable and pair by pair; ``aptool.scoring.kernels`` computes the same
scores for many pairs that share texts. Here are the interface and the poolings of each text by itself.
Attentive pooling is in ``attention.py``, the cross-encoder's in ``cross.py``; ``build.py`` names them for
recipes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.models.encoders import Encoder
from aptool.models.ragged import Ragged
from aptool.models.similarity import Cosine, Similarity


@dataclass(frozen=True)
class StateOptions:
    """Options of every pooling of states.

    Attributes:
        dim: Features that states are projected to before they are pooled, by a matrix that is learned; 0
            pools them as they are. Fewer features take less memory and time for each answer.
    """

    dim: int = 0


class Pooling(nn.Module, ABC):
    """The interface of every pooling."""

    Options: ClassVar[type]
    # What it reads of a text: the states of its tokens, or their ids, which it then encodes itself.
    input_kind: ClassVar[Literal["states", "ids"]] = "states"
    # Whether it gives several numbers per pair, which need a head to become one score.
    many_columns: ClassVar[bool] = False

    @classmethod
    def for_encoder(cls, encoder: Encoder, options: Any) -> Self:
        """The pooling for the states of an encoder, with fresh weights; projected, if the options say so."""
        return cls(getattr(options, "dim", 0) or encoder.size, options)

    @classmethod
    def max_weights(cls, size: int, options: Any) -> int:
        """An upper bound on the number of weights, for states of c = ``size`` features."""
        return 0

    @classmethod
    def reads_first_state_only(cls, options: Any) -> bool:
        """Whether the pooling reads only the first state of a text."""
        return False

    @property
    def columns(self) -> int:
        """C, numbers per pair."""
        return 1

    @property
    def pools(self) -> "Pooling":
        """The pooling of the states, within one that adds columns to it."""
        return self

    @abstractmethod
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """Scores of n pairs from their states; pair i is question i with answer i.

        Returns:
            (n,), or (n, C) of a pooling with C > 1 columns.
        """

    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """Scores of every one of n questions with every one of k answers, from their states.

        Returns:
            (n, k), or (n, k, C) of a pooling with C > 1 columns.
        """
        n, k = len(questions.sizes), len(answers.sizes)
        first, second = np.repeat(np.arange(n), k), np.tile(np.arange(k), n)
        return self.score_pairs(questions.select(first), answers.select(second)).unflatten(0, (n, k))

    def in_bf16(self) -> "Pooling":
        """The pooling for texts encoded in bf16. It computes in fp32 itself, unless it is the encoder."""
        return self


class VectorPooling(Pooling):
    """A pooling that reduces each text of a pair to one vector; the score is their similarity.

    Attributes:
        similarity: of the two vectors; the cosine (eq. 11) unless the recipe names another one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.similarity: Similarity = Cosine(0, Cosine.Options())

    @abstractmethod
    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, ...]:
        """Vectors of n pairs.

        Args:
            questions: states, values (N, c), of n questions.
            answers: states, values (N', c), of n answers; pair i is question i with answer i.

        Returns:
            r_q (n, c) and r_a (n, c) first, then whatever else the pooling computes.
        """

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        r_q, r_a = self(questions, answers)[:2]
        return self.similarity(r_q, r_a)


class JoinedPooling(Pooling):
    """Another pooling's similarity and vectors as columns, for a head that reads all of them.

    Attributes:
        inner: the pooling that gives the vectors.
        columns: 1 + 2 c: the similarity, r_q and r_a.
    """

    def __init__(self, inner: VectorPooling, size: int) -> None:
        super().__init__()
        self.inner = inner
        self._size = size

    @property
    @override
    def columns(self) -> int:
        return 1 + 2 * self._size

    @property
    @override
    def pools(self) -> Pooling:
        return self.inner

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        r_q, r_a = self.inner(questions, answers)[:2]
        return torch.cat([self.inner.similarity(r_q, r_a)[:, None], r_q, r_a], dim=1)


class IndependentPooling(VectorPooling):
    """A pooling under which a text has the same vector whatever it is paired with."""

    Options = StateOptions

    def __init__(self, size: int, options: StateOptions) -> None:
        super().__init__()

    @abstractmethod
    def represent(self, states: Ragged) -> Tensor:
        """(n, c) the vector of each of n texts, from their states, values (N, c)."""

    @override
    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        return self.represent(questions), self.represent(answers)

    @override
    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        return self.similarity.every_pair(self.represent(questions), self.represent(answers))


class MaxPooling(IndependentPooling):
    """QA-CNN's and QA-biLSTM's pooling: r = tanh(maximum of each feature over the states) (eq. 9, 10)."""

    @override
    def represent(self, states: Ragged) -> Tensor:
        return segment_max(states.values, states).tanh()


class MeanPooling(IndependentPooling):
    """r = mean of the states, the usual pooling of sentence encoders."""

    @override
    def represent(self, states: Ragged) -> Tensor:
        return segment_mean(states)


class FirstPooling(IndependentPooling):
    """r = the first state, with many transformers that of a special token for the whole text ([CLS])."""

    @classmethod
    @override
    def reads_first_state_only(cls, options: Any) -> bool:
        return True

    @override
    def represent(self, states: Ragged) -> Tensor:
        return states.values.index_select(0, states.offsets[:-1])


def segment_max(values: Tensor, sequences: Ragged) -> Tensor:
    """(n, ...) maximum of ``values`` (N, ...) over each of n sequences."""
    # Unsafe: lengths that do not add up would not be noticed, and a GPU is not waited for.
    return torch.segment_reduce(values, "max", lengths=sequences.lengths, axis=0, unsafe=True)


def segment_mean(sequences: Ragged) -> Tensor:
    """(n, ...) mean of the values (N, ...) over each of n sequences."""
    lengths = sequences.lengths
    return torch.segment_reduce(sequences.values, "mean", lengths=lengths, axis=0, unsafe=True)


Activation = Literal["identity", "tanh", "relu", "gelu", "sigmoid", "silu"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)


@dataclass(frozen=True)
class DenseOptions:
    """A linear layer.

    Attributes:
        inputs: features of its input.
        outputs: features of its output.
        bias: whether it has a bias.
        activation: the function of its output.
        residual: whether its input is added to its output, through a matrix of its own if their sizes differ.
    """

    inputs: int
    outputs: int
    bias: bool = False
    activation: str = "identity"
    residual: bool = False


class Dense(nn.Module):
    """y = f(W x + b), with the weights' names of sentence-transformers."""

    def __init__(self, options: DenseOptions) -> None:
        super().__init__()
        self.outputs = options.outputs
        self.activation = options.activation
        self.adds_input = options.residual
        self.linear = nn.Linear(options.inputs, options.outputs, bias=options.bias)
        self.residual: nn.Module = nn.Identity()
        if options.residual and options.inputs != options.outputs:
            self.residual = nn.Linear(options.inputs, options.outputs, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """(N, outputs) of (N, inputs)."""
        found = apply_activation(self.activation, self.linear(states))
        return found + self.residual(states) if self.adds_input else found


def apply_activation(name: str, values: Tensor) -> Tensor:
    """The activation function of that name, of each value."""
    if name == "identity":
        return values
    found: Tensor = getattr(nn.functional if name in ("gelu", "silu") else torch, name)(values)
    return found


def fresh_projection(size: int, dim: int) -> Dense:
    """A projection of states of c features to ``dim`` before training: the first rows of a random rotation.

    Orthonormal rows keep the inner products of states as well as so few random directions can, so that
    training starts close to the scores without a projection.
    """
    layer = Dense(DenseOptions(size, dim))
    nn.init.orthogonal_(layer.linear.weight)
    return layer
