"""Kernels of poolings that represent each text independently: one vector per text, inner products."""

from collections.abc import Sequence

import torch
from torch import Tensor

from aptool.models.pooling import unit
from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import PairScorer


class IndependentPairScorer(PairScorer):
    """Inner products of unit vectors, one per text."""

    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """See ``PairScorer.cache_answers``: (1, c) each."""
        return self.prepare_questions(states).split(1)

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, c)."""
        return unit(self.pooling.represent(states).float())

    def score_pairs(
        self, questions: Tensor, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
    ) -> Tensor:
        """See ``PairScorer.score_pairs``: from one matrix product, or row by row where that is less work."""
        vectors = torch.cat(list(answers))  # (n, c)
        present, q = pairs[0].unique(return_inverse=True)
        if len(present) * len(vectors) <= 64 * pairs.shape[1]:
            return (questions[present] @ vectors.T)[q, pairs[1]]
        return (questions[pairs[0]] * vectors[pairs[1]]).sum(1)


class FirstPairScorer(IndependentPairScorer):
    """The same for a pooling that reads only the first state of a text."""

    def select_states(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """See ``PairScorer.select_states``."""
        return lengths.cumsum(0) - lengths, torch.ones_like(lengths)
