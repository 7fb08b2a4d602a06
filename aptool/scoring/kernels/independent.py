"""Poolings that give a text the same vector whatever it is paired with: one vector a text, inner products."""

from collections.abc import Sequence

import torch
from torch import Tensor

from aptool.models.pooling import unit
from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import PairScorer


class IndependentPairScorer(PairScorer):
    """One unit vector a text, and inner products."""

    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """See ``PairScorer.cache_answers``: (1, c) each."""
        return self.prepare_questions(states).split(1)

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, c)."""
        return unit(self.pooling.represent(states).float())

    def scores(self, asked: Tensor, kept: Sequence[Tensor], lengths: Tensor, pairs: Tensor) -> Tensor:
        """All inner products of these questions and answers, or each pair's own where that is less."""
        answers = torch.cat(list(kept))
        present, q = pairs[0].unique(return_inverse=True)
        if len(present) * len(answers) <= 64 * pairs.shape[1]:
            return (asked[present] @ answers.T)[q, pairs[1]]
        return (asked[pairs[0]] * answers[pairs[1]]).sum(1)


class FirstPairScorer(IndependentPairScorer):
    """The same of the first state, the only one that is asked for."""

    def select_states(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """See ``PairScorer.select_states``."""
        return lengths.cumsum(0) - lengths, torch.ones_like(lengths)
