"""The kernels of poolings with codes: vectors of each text once, their mixture or choice for each pair."""

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from aptool.models.codes import CodePooling, MultiVectorPooling, PolyEncoderPooling
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels.pair_scorer import PairScorer

# Numbers of the vectors of pairs that are held at one time: on a CPU few enough for a core's cache.
ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}


class CodePairScorer(PairScorer):
    """Similarities of a few vectors of each text; on a GPU, where launches are expensive, in large blocks."""

    pooling: CodePooling

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: as many rows as an answer has vectors."""
        vectors = self.pooling.answer_vectors(states.with_values(states.values.float()))  # (n, j, c)
        return Ragged.of_sizes(vectors.flatten(0, 1), np.full(len(vectors), vectors.shape[1]))

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, i, c)."""
        return self.pooling.question_vectors(states.with_values(states.values.float()))

    def score_pairs(self, questions: Tensor, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``."""
        rows = answers.ragged().values
        vectors = rows.view(len(answers.counts), -1, rows.shape[1])  # (n, j, c)
        if not rows.is_cuda and self.in_groups(pairs):
            return self.score_groups(questions, vectors, pairs)
        each = rows.shape[1] * max(questions.shape[1], vectors.shape[1])
        block = max(1, ELEMENTS["cuda" if rows.is_cuda else "cpu"] // each)
        return torch.cat(
            [
                self.score_block(questions[q], vectors[a])
                for q, a in zip(*(part.split(block) for part in pairs.on(rows.device)), strict=True)
            ]
        )

    @abstractmethod
    def in_groups(self, pairs: Pairs) -> bool:
        """Whether pairs have so many texts in common that ``score_groups`` is faster than blocks."""

    @abstractmethod
    def score_groups(self, questions: Tensor, answers: Tensor, pairs: Pairs) -> Tensor:
        """(P,) scores, a product for all pairs of a text, from questions (n, i, c) and answers (k, j, c)."""

    @abstractmethod
    def score_block(self, Q: Tensor, A: Tensor) -> Tensor:
        """(P,) scores of pairs from (P, i, c) of their questions and (P, j, c) of their answers."""


class PolyEncoderPairScorer(CodePairScorer):
    """The question's vectors are mixed for each pair; the answer's one is prepared once."""

    pooling: PolyEncoderPooling

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """See ``PairScorer.kept_rows``."""
        return np.ones_like(lengths)

    def in_groups(self, pairs: Pairs) -> bool:
        """See ``CodePairScorer.in_groups``: by question, which is never slower."""
        return True

    def score_groups(self, questions: Tensor, answers: Tensor, pairs: Pairs) -> Tensor:
        """See ``CodePairScorer.score_groups``."""
        similarity, A = self.pooling.similarity, answers[:, 0]  # (k, c)
        prepared, of_pairs = similarity.prepare_answers(A), pairs.answers
        order = np.argsort(pairs.questions, kind="stable")
        present, firsts = np.unique(pairs.questions[order], return_index=True)
        scores = torch.empty(len(order))
        for question, members in zip(present.tolist(), np.split(order, firsts[1:]), strict=True):
            own, Q = torch.from_numpy(of_pairs[members]), questions[question]  # (K,), (m, c)
            r_q = (A[own] @ Q.T).softmax(1) @ Q  # (K, c)
            found = similarity.pairs(similarity.prepare_questions(r_q), prepared[own])
            scores[torch.from_numpy(members)] = found
        return scores

    def score_block(self, Q: Tensor, A: Tensor) -> Tensor:
        """See ``CodePairScorer.score_block``."""
        r_q, r_a, _ = self.pooling.join(Q, A)
        return self.pooling.similarity(r_q, r_a)


class MultiVectorPairScorer(CodePairScorer):
    """All vectors are prepared once, such as scaled to unit length; the best of an answer counts."""

    pooling: MultiVectorPooling

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """See ``PairScorer.kept_rows``."""
        return np.full_like(lengths, len(self.pooling.codes))

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: the vectors of each answer, prepared."""
        found = super().cache_answers(states)
        return found.with_values(self.pooling.similarity.prepare_answers(found.values))

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, 1, c), prepared."""
        return self.pooling.similarity.prepare_questions(super().prepare_questions(states))

    def in_groups(self, pairs: Pairs) -> bool:
        """See ``CodePairScorer.in_groups``: by answer, where it has several questions."""
        return len(pairs.questions) >= 2 * len(pairs.counts)

    def score_groups(self, questions: Tensor, answers: Tensor, pairs: Pairs) -> Tensor:
        """See ``CodePairScorer.score_groups``."""
        asked = torch.from_numpy(pairs.questions).split(pairs.counts.tolist())
        matrix, Q = self.pooling.similarity.matrix, questions[:, 0]
        return torch.cat([matrix(Q[own], A).amax(1) for own, A in zip(asked, answers, strict=True)])

    def score_block(self, Q: Tensor, A: Tensor) -> Tensor:
        """See ``CodePairScorer.score_block``."""
        return self.pooling.similarity.pairs(Q, A).amax(1)
