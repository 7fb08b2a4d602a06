"""The kernel of cross-encoders: nothing can be computed per text, so each pair is one pass of the network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from aptool.models.cross import CrossPooling
from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import PairScorer

# Tokens of pairs in one batch.
TOKENS_PER_BATCH = 1 << 18


class CrossPairScorer(PairScorer):
    """One pass of the network per pair, pairs of similar length in one batch; "states" are token ids."""

    pooling: CrossPooling

    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """See ``PairScorer.cache_answers``: the token ids of each answer."""
        return states.values.split(states.lengths.tolist())

    def prepare_questions(self, states: Ragged) -> Ragged:
        """See ``PairScorer.prepare_questions``: the token ids."""
        return states

    def score_pairs(
        self, questions: Ragged, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
    ) -> Tensor:
        """See ``PairScorer.score_pairs``."""
        answer_ids = Ragged.join(list(answers))
        tokens = questions.lengths[pairs[0]] + lengths[pairs[1]]  # (P,)
        order = tokens.argsort(stable=True)
        batch_of = (tokens[order].cumsum(0) - 1) // TOKENS_PER_BATCH
        scores = torch.empty(pairs.shape[1], device=tokens.device)
        for batch in order.split(batch_of.unique_consecutive(return_counts=True)[1].tolist()):
            scores[batch] = self.pooling.score_pairs(
                questions.select(pairs[0, batch]), answer_ids.select(pairs[1, batch])
            )
        return scores
