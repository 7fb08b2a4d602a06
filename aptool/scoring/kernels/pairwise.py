"""Kernels of poolings of which nothing is computed per text: each pair goes through the pooling itself."""

import numpy as np
import torch
from torch import Tensor

from aptool.models.device import send
from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels.pair_scorer import PairScorer


class PairwisePairScorer(PairScorer):
    """The pooling's own ``score_pairs``, pairs of similar length in one batch: for any pooling."""

    pooling: Pooling
    # Tokens of pairs in one batch.
    tokens_per_batch = 1 << 14

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: the states of each answer, or its token ids."""
        return states

    def prepare_questions(self, states: Ragged) -> Ragged:
        """See ``PairScorer.prepare_questions``: the states, or the token ids."""
        return _in_fp32(states)

    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``."""
        joined, pair_answers = answers.ragged(), pairs.answers
        tokens = questions.sizes[pairs.questions] + answers.lengths[pair_answers]  # (P,)
        order = np.argsort(tokens, kind="stable")
        batch_of = (np.cumsum(tokens[order]) - 1) // self.tokens_per_batch
        scores = []
        for batch in np.split(order, np.flatnonzero(np.diff(batch_of)) + 1):
            some = questions.select(pairs.questions[batch])
            scores.append(self.score_batch(some, _in_fp32(joined.select(pair_answers[batch]))))
            pairs.scored(len(batch))
        return torch.cat(scores)[send(np.argsort(order), questions.values.device)]

    def score_batch(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) scores of n pairs, from what ``prepare_questions`` and ``cache_answers`` gave."""
        return self.pooling.score_pairs(questions, answers)


class CrossPairScorer(PairwisePairScorer):
    """One pass of the network per pair; "states" are token ids, so that more of them fit in a batch."""

    tokens_per_batch = 1 << 18


def _in_fp32(states: Ragged) -> Ragged:
    """States in fp32, which poolings compute in; token ids as they are."""
    return states.with_values(states.values.float()) if states.values.is_floating_point() else states
