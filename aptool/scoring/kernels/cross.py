"""Pairs that a network reads as one text: nothing but the ids of a text is kept, all work is in the join."""

from collections.abc import Sequence

import torch
from torch import Tensor

from aptool.models.cross import CrossPooling
from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import PairScorer

# Tokens of pairs that are put together at one time.
TOKENS_AT_ONCE = 1 << 18


class CrossPairScorer(PairScorer):
    """One pass of the network a pair, pairs of like length together."""

    pooling: CrossPooling

    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """See ``PairScorer.cache_answers``: the ids of each answer."""
        return states.values.split(states.lengths.tolist())

    def prepare_questions(self, states: Ragged) -> Ragged:
        """See ``PairScorer.prepare_questions``."""
        return states

    def scores(self, asked: Ragged, kept: Sequence[Tensor], lengths: Tensor, pairs: Tensor) -> Tensor:
        """See ``PairScorer.scores``."""
        answers = Ragged.join(list(kept))
        tokens = asked.lengths[pairs[0]] + lengths[pairs[1]]
        order = tokens.argsort(stable=True)
        blocks = (tokens[order].cumsum(0) - 1) // TOKENS_AT_ONCE
        scores = torch.empty(pairs.shape[1], device=tokens.device)
        for some in order.split(blocks.unique_consecutive(return_counts=True)[1].tolist()):
            own = self.pooling.scores(asked.select(pairs[0, some]), answers.select(pairs[1, some]))
            scores[some] = own
        return scores
