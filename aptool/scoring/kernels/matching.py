"""The kernel of poolings that match tokens: one product of each answer with all its questions."""

import numpy as np
import torch
from torch import Tensor

from aptool.models.matching import MatchPooling
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels.pairwise import PairwisePairScorer


class MatchPairScorer(PairwisePairScorer):
    """Similarities of tokens, whose states are scaled to unit length once."""

    pooling: MatchPooling

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: what the pooling keeps of each answer."""
        found = self.pooling.kept(states.with_values(states.values.float()))
        return found.with_values(found.values.to(states.values.dtype))

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """See ``PairScorer.kept_rows``."""
        return lengths + self.pooling.more_rows

    def prepare_questions(self, states: Ragged) -> Ragged:
        """See ``PairScorer.prepare_questions``: what the pooling keeps."""
        return self.pooling.kept(states.with_values(states.values.float()))

    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``. On a GPU, where launches are expensive, pairs are batched."""
        if questions.values.is_cuda:
            return super().score_pairs(questions, answers, pairs)
        rows = questions.rows(pairs.questions)  # the tokens of every pair's question, pair after pair
        sizes = questions.sizes[pairs.questions]
        ends = np.cumsum(pairs.counts)
        tokens = np.add.reduceat(sizes, ends - pairs.counts)  # (n,) question tokens of each answer's pairs
        products = (
            questions.values.index_select(0, asked) @ answers.rows(answer).float().T  # (s, L)
            for answer, asked in enumerate(rows.split(tokens.tolist()))
        )
        if self.pooling.one_way:
            return self.pooling.score(
                Ragged.of_sizes(torch.cat([self.pooling.match(S) for S in products]), sizes)
            )
        own = np.split(sizes, ends[:-1])
        return torch.cat(
            [self.pooling.reduce_one(Ragged.of_sizes(S, some)) for S, some in zip(products, own, strict=True)]
        )

    def score_batch(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``PairwisePairScorer.score_batch``."""
        return self.pooling.score_kept(questions, answers)
