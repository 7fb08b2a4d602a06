"""Kernels of poolings that represent each text independently: one vector per text, their similarities."""

from collections.abc import Sequence

import torch
from torch import Tensor

from aptool.models.pooling import IndependentPooling
from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import PairScorer


class IndependentPairScorer(PairScorer):
    """Similarities of vectors, one per text."""

    pooling: IndependentPooling

    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """See ``PairScorer.cache_answers``: (1, c) each."""
        vectors = self.pooling.represent(states).float()
        return self.pooling.similarity.prepare_answers(vectors).split(1)

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, c)."""
        return self.pooling.similarity.prepare_questions(self.pooling.represent(states).float())

    def score_pairs(
        self, questions: Tensor, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
    ) -> Tensor:
        """See ``PairScorer.score_pairs``: from one matrix product, or row by row where that is less work."""
        similarity = self.pooling.similarity
        vectors = torch.cat(list(answers))  # (n, c)
        present, q = pairs[0].unique(return_inverse=True)
        if len(present) * len(vectors) <= 64 * pairs.shape[1]:
            return similarity.matrix(questions[present], vectors)[q, pairs[1]]
        return similarity.pairs(questions[pairs[0]], vectors[pairs[1]])


class FirstPairScorer(IndependentPairScorer):
    """The same for a pooling that reads only the first state of a text."""

    def select_states(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """See ``PairScorer.select_states``."""
        return lengths.cumsum(0) - lengths, torch.ones_like(lengths)
