"""Poolings: two state sequences to a score, as a rule the cosine of two vectors (paper, sections 2.3 and 3).

These are the definitions, differentiable and pair by pair. ``aptool.scoring.kernels.pair_scorer`` computes the same scores
for many pairs that share texts.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.config import bounded
from aptool.models.encoder import Encoder
from aptool.models.ragged import Ragged

# The least norm that a vector is divided by.
EPSILON = 1e-8


class Pooling(nn.Module, ABC):
    """What every pooling offers."""

    Options: ClassVar[type]
    # What it takes of a text: states, or the ids of its tokens, which it then reads itself.
    input_kind: ClassVar[Literal["vectors", "ids"]] = "vectors"

    @classmethod
    def over(cls, encoder: Encoder, options: Any) -> Self:
        """The pooling for an encoder, with fresh weights."""
        return cls(encoder.size, options)

    @classmethod
    def reads_first(cls, options: Any) -> bool:
        """Whether it reads of a text its first state alone."""
        return False

    @abstractmethod
    def scores(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) scores of n pairs from their states; pair i is question i with answer i."""

    @abstractmethod
    def all_scores(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, k) scores of every one of n questions with every one of k answers."""

    def in_bf16(self) -> "Pooling":
        """The pooling for texts that are encoded in bf16; its own work stays in fp32, unless it encodes."""
        return self


class VectorPooling(Pooling):
    """A pooling that makes a vector of each text of a pair; their cosine is the score (eq. 11)."""

    @abstractmethod
    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """Vectors of pairs.

        Args:
            questions: states, values (N, c), of n questions.
            answers: states, values (N', c), of n answers; pair i is question i with answer i.

        Returns:
            r_q (n, c) and r_a (n, c).
        """

    def scores(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.scores``: within [-1, 1], and 0 where a vector is zero."""
        r_q, r_a = self(questions, answers)
        return F.cosine_similarity(r_q, r_a, eps=EPSILON)


class IndependentPooling(VectorPooling):
    """A pooling in which a text has the same vector whatever it is paired with."""

    @dataclass(frozen=True)
    class Options:
        """These poolings have no options."""

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()

    @abstractmethod
    def represent(self, states: Ragged) -> Tensor:
        """(n, c): the vector of each text."""

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """See ``VectorPooling.forward``."""
        return self.represent(questions), self.represent(answers)

    def all_scores(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.all_scores``."""
        return unit(self.represent(questions)) @ unit(self.represent(answers)).T


class MaxPooling(IndependentPooling):
    """QA-*: r = tanh(max over time), each side by itself (eq. 9, 10)."""

    def represent(self, states: Ragged) -> Tensor:
        """See ``IndependentPooling.represent``."""
        return _maxima(states.values, states).tanh()


class MeanPooling(IndependentPooling):
    """r = the mean of the states: what sentence encoders are trained to be compared by."""

    def represent(self, states: Ragged) -> Tensor:
        """See ``IndependentPooling.represent``."""
        return torch.segment_reduce(states.values, "mean", lengths=states.lengths, axis=0)


class FirstPooling(IndependentPooling):
    """r = the first state: with many transformers that of a mark which stands for the whole text."""

    @classmethod
    def reads_first(cls, options: Any) -> bool:
        """See ``Pooling.reads_first``."""
        return True

    def represent(self, states: Ragged) -> Tensor:
        """See ``IndependentPooling.represent``."""
        return states.values.index_select(0, states.offsets[:-1])


class AttentivePooling(VectorPooling):
    """AP-*: each side weighted by how well its best match on the other side aligns (eq. 13 to 18).

    G = tanh(Qᵀ U A), g_q and g_a its maxima over the answer and over the question, σ = softmax(g),
    r_q = Q σ_q, r_a = A σ_a. As tanh increases, the maximum is taken before it: same values, and M + L
    of them in place of M × L.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of ``attentive`` pooling.

        Attributes:
            init: how U starts: ``uniform`` in ±1/√c, or ``identity``, in which G begins as the inner product
                of states.
            scale: multiplies that start.
            sharpness: what g is multiplied by before its softmax. As g is within [-1, 1], the greatest
                weight of a text is at most exp(2 · sharpness) times its least: 7.4 times in the paper.
            residual: share of a text's weight that its states have alike, whatever attention says of them.
            normalise: states are brought to length one before anything else is made of them.
        """

        init: Literal["uniform", "identity"] = "uniform"
        scale: float = 1.0
        sharpness: float = bounded(1.0, below=40)
        residual: float = bounded(0.0, below=1)
        normalise: bool = False

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        start = (
            torch.eye(size)
            if options.init == "identity"
            else torch.empty(size, size).uniform_(-1, 1) / size**0.5
        )
        self.U = nn.Parameter(start * options.scale)  # (c, c)
        self.sharpness = options.sharpness
        self.residual = options.residual
        self.normalise = options.normalise

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """See ``VectorPooling.forward``."""
        questions, answers = self.normalize_states(questions), self.normalize_states(answers)
        Q, _ = questions.padded()  # (n, M, c)
        A, _ = answers.padded()  # (n, L, c)
        weights_q, weights_a = self._attention(questions, answers)
        return torch.einsum("nm,nmc->nc", weights_q, Q), torch.einsum("nl,nlc->nc", weights_a, A)

    def all_scores(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.all_scores``."""
        questions, answers = self.normalize_states(questions), self.normalize_states(answers)
        alignment = (questions.values @ self.U) @ answers.values.T  # (N, N'), G of all pairs before its tanh
        g_q = self.scale_logits(_maxima(alignment.T.contiguous(), answers).tanh())  # (k, N)
        g_a = self.scale_logits(_maxima(alignment, questions).tanh())  # (n, N')
        # g is within [-1, 1]: exp needs no shift. A cosine does not see the divisor of a softmax.
        weights_q, _ = questions.with_values(g_q.T.exp()).padded()  # (n, M, k)
        weights_a, _ = answers.with_values(g_a.T.exp()).padded()  # (k, L, n)
        if self.residual:
            weights_q = self._mixed(weights_q / weights_q.sum(1, keepdim=True), questions)
            weights_a = self._mixed(weights_a / weights_a.sum(1, keepdim=True), answers)
        r_q = weights_q.transpose(1, 2) @ questions.padded()[0]  # (n, k, c)
        r_a = weights_a.transpose(1, 2) @ answers.padded()[0]  # (k, n, c)
        return (unit(r_q) * unit(r_a.transpose(0, 1))).sum(2)

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """σ_q (n, M) and σ_a (n, L): each row sums to one over its text and is zero behind it."""
        return self._attention(self.normalize_states(questions), self.normalize_states(answers))

    def alignment(self, questions: Tensor, answers: Tensor) -> Tensor:
        """(M, L) G of the states (M, c) of a question and those (L, c) of an answer."""
        return ((self._read(questions) @ self.U) @ self._read(answers).T).tanh()

    def normalize_states(self, states: Ragged) -> Ragged:
        """States as the pooling takes them."""
        return states.with_values(self._read(states.values))

    def scale_logits(self, g: Tensor) -> Tensor:
        """What of g goes into the softmax."""
        return g if self.sharpness == 1 else g * self.sharpness

    def _read(self, values: Tensor) -> Tensor:
        return unit(values) if self.normalise else values

    def _attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        Q, mask_q = questions.padded()  # (n, M, c), (n, M)
        A, mask_a = answers.padded()  # (n, L, c), (n, L)
        alignment = (Q @ self.U) @ A.transpose(1, 2)  # (n, M, L), G before its tanh
        alignment = alignment.masked_fill(~(mask_q[:, :, None] & mask_a[:, None, :]), -torch.inf)
        g_q = self.scale_logits(alignment.amax(2).tanh())  # (n, M)
        g_a = self.scale_logits(alignment.amax(1).tanh())  # (n, L)
        weights_q = g_q.masked_fill(~mask_q, -torch.inf).softmax(1)
        weights_a = g_a.masked_fill(~mask_a, -torch.inf).softmax(1)
        if self.residual:
            weights_q = self._mixed(weights_q[..., None], questions)[..., 0]
            weights_a = self._mixed(weights_a[..., None], answers)[..., 0]
        return weights_q, weights_a

    def _mixed(self, weights: Tensor, states: Ragged) -> Tensor:
        """(n, T, k) weights that sum to one over each text, with the share of even ones that is asked for."""
        even, _ = states.with_values((1 / states.lengths).repeat_interleave(states.lengths)).padded()
        return torch.lerp(weights, even[..., None].expand_as(weights), self.residual)


def unit(vectors: Tensor) -> Tensor:
    """Vectors (..., c) scaled to length one; the zero vector stays."""
    return F.normalize(vectors, dim=-1, eps=EPSILON)


def _maxima(values: Tensor, sequences: Ragged) -> Tensor:
    """(n, ...) the maximum of ``values`` (N, ...) over each of n sequences."""
    return torch.segment_reduce(values, "max", lengths=sequences.lengths, axis=0)
