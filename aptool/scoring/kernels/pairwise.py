"""Kernels of poolings of which nothing is computed per text: each pair goes through the pooling itself."""

from collections.abc import Sequence

import torch
from torch import Tensor

from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import PairScorer


class PairwisePairScorer(PairScorer):
    """The pooling's own ``score_pairs``, pairs of similar length in one batch: for any pooling."""

    pooling: Pooling
    # Tokens of pairs in one batch.
    tokens_per_batch = 1 << 14

    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """See ``PairScorer.cache_answers``: the states of each answer, or its token ids."""
        return states.values.split(states.lengths.tolist())

    def prepare_questions(self, states: Ragged) -> Ragged:
        """See ``PairScorer.prepare_questions``: the states, or the token ids."""
        return _in_fp32(states)

    def score_pairs(
        self, questions: Ragged, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
    ) -> Tensor:
        """See ``PairScorer.score_pairs``."""
        joined = Ragged.join(list(answers))
        tokens = questions.lengths[pairs[0]] + lengths[pairs[1]]  # (P,)
        order = tokens.argsort(stable=True)
        batch_of = (tokens[order].cumsum(0) - 1) // self.tokens_per_batch
        batches = order.split(batch_of.unique_consecutive(return_counts=True)[1].tolist())
        scores = [
            self.pooling.score_pairs(
                questions.select(pairs[0, batch]), _in_fp32(joined.select(pairs[1, batch]))
            )
            for batch in batches
        ]
        return torch.cat(scores)[order.argsort()]


class CrossPairScorer(PairwisePairScorer):
    """One pass of the network per pair; "states" are token ids, so that more of them fit in a batch."""

    tokens_per_batch = 1 << 18


def _in_fp32(states: Ragged) -> Ragged:
    """States in fp32, which poolings compute in; token ids as they are."""
    return states.with_values(states.values.float()) if states.values.is_floating_point() else states
