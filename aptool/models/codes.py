"""Poolings with codes: one text becomes a few vectors, one for each of m learned codes that attend to it.

The codes attend to a text by itself, so its vectors do not depend on its partner; only a choice among them
does. States of which a code likes none more than others have their mean as its vector, so a text whose codes
are nearly zero has m vectors close to its mean.

- ``polyencoder``: Poly-encoder (Humeau et al., 2020); the question has the m vectors, an answer one.
- ``multi-vector``: an answer has the m vectors, of which the best counts (ME-BERT: Luan et al., 2021; MVR:
  Zhang et al., 2022); the question has one.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.models.pooling import StateOptions, VectorPooling, segment_max, segment_mean
from aptool.models.ragged import Ragged
from aptool.options import bounded


class CodePooling(VectorPooling):
    """A pooling of a few vectors of each text, of which each pair has its own mixture or choice."""

    @dataclass(frozen=True)
    class Options(StateOptions):
        """Options of ``polyencoder`` and ``multi-vector`` pooling.

        Attributes:
            codes: Number m of codes.
        """

        codes: int = bounded(16, least=1, below=1025)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(options.codes, size) / size**0.5)  # (m, c)

    @classmethod
    def max_weights(cls, size: int, options: Any) -> int:
        """See ``Pooling.max_weights``: the codes."""
        return int(size * options.codes)

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor, Tensor]:
        """See ``VectorPooling.forward``; and (n, m) the shares of the codes."""
        return self.join(self.question_vectors(questions), self.answer_vectors(answers))

    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_matrix``."""
        Q, A = self.question_vectors(questions), self.answer_vectors(answers)
        n, k = len(Q), len(A)
        r_q, r_a, _ = self.join(Q.repeat_interleave(k, 0), A.repeat(n, 1, 1))
        return self.similarity(r_q, r_a).view(n, k)

    @abstractmethod
    def question_vectors(self, states: Ragged) -> Tensor:
        """(n, i, c) the vectors of n questions, from their states, values (N, c)."""

    @abstractmethod
    def answer_vectors(self, states: Ragged) -> Tensor:
        """(n, j, c) the vectors of n answers, from their states, values (N, c)."""

    @abstractmethod
    def join(self, Q: Tensor, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors of n pairs.

        Args:
            Q: (n, i, c) ``question_vectors`` of their questions.
            A: (n, j, c) ``answer_vectors`` of their answers.

        Returns:
            r_q (n, c), r_a (n, c) and the shares (n, m) of the codes in the one of the text that has them.
        """

    def code_weights(self, states: Ragged) -> Tensor:
        """(N, m) the attention of each code x_i to the states h_t of a text: softmax over t of x_i · h_t."""
        logits = states.values @ self.codes.T
        weights = (logits - states.spread(segment_max(logits, states))).exp()
        sums = torch.segment_reduce(weights, "sum", lengths=states.lengths, axis=0, unsafe=True)
        return weights / states.spread(sums)

    def code_vectors(self, states: Ragged) -> Tensor:
        """(n, m, c) the mean of each text's states by the attention of each code."""
        rows, starts = states.row_numbers(), states.offsets[:-1]
        vectors = [
            F.embedding_bag(rows, states.values, starts, mode="sum", per_sample_weights=weights)
            for weights in self.code_weights(states).T.contiguous()
        ]
        return torch.stack(vectors, 1)


class PolyEncoderPooling(CodePooling):
    """y_i = Σ_t softmax_t(x_i · q_t) q_t, r_q = Σ_i softmax_i(r_a · y_i) y_i, and r_a is the mean."""

    def question_vectors(self, states: Ragged) -> Tensor:
        """See ``CodePooling.question_vectors``: (n, m, c) y."""
        return self.code_vectors(states)

    def answer_vectors(self, states: Ragged) -> Tensor:
        """See ``CodePooling.answer_vectors``: (n, 1, c) r_a."""
        return segment_mean(states)[:, None]

    def join(self, Q: Tensor, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See ``CodePooling.join``."""
        shares = (Q @ A.transpose(1, 2))[:, :, 0].softmax(1)  # (n, m)
        return (shares[:, None] @ Q)[:, 0], A[:, 0], shares

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) the weight of each state in r_q and (n, L) even weights of the answers."""
        shares = self(questions, answers)[2]
        of_tokens = (self.code_weights(questions) * questions.spread(shares)).sum(1)
        return questions.with_values(of_tokens).padded()[0], even_weights(answers)


class MultiVectorPooling(CodePooling):
    """z_i = Σ_t softmax_t(x_i · a_t) a_t, r_a is the z_i most similar to r_q, and r_q is the mean."""

    def question_vectors(self, states: Ragged) -> Tensor:
        """See ``CodePooling.question_vectors``: (n, 1, c) r_q."""
        return segment_mean(states)[:, None]

    def answer_vectors(self, states: Ragged) -> Tensor:
        """See ``CodePooling.answer_vectors``: (n, m, c) z."""
        return self.code_vectors(states)

    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_pairs``: the similarity of the chosen vector is the largest."""
        return self._similarities(self.question_vectors(questions), self.answer_vectors(answers)).amax(1)

    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_matrix``."""
        Q, A = self.question_vectors(questions), self.answer_vectors(answers)
        return self.similarity.every_pair(Q[:, 0], A.flatten(0, 1)).view(len(Q), *A.shape[:2]).amax(2)

    def join(self, Q: Tensor, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See ``CodePooling.join``."""
        chosen = self._similarities(Q, A).argmax(1)  # (n,)
        return Q[:, 0], A[torch.arange(len(A), device=A.device), chosen], F.one_hot(chosen, A.shape[1])

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) even weights of the questions and (n, L) the weight of each state in r_a."""
        shares = self(questions, answers)[2]
        of_tokens = (self.code_weights(answers) * answers.spread(shares)).sum(1)
        return even_weights(questions), answers.with_values(of_tokens).padded()[0]

    def _similarities(self, Q: Tensor, A: Tensor) -> Tensor:
        """(n, m) similarities of r_q (n, 1, c) to each z (n, m, c), each vector prepared once."""
        return self.similarity.pairs(self.similarity.prepare_questions(Q), self.similarity.prepare_answers(A))


def even_weights(texts: Ragged) -> Tensor:
    """(n, T) equal weights of the states of each text, zero on padding."""
    mask = texts.padded()[1]
    return mask / mask.sum(1, keepdim=True)
