"""The kernel of poolings with codes: the vectors of each text once, their mixture or choice for each pair."""

import numpy as np
import torch
from torch import Tensor

from aptool.models.codes import CodePooling
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels.pair_scorer import PairScorer

# Pairs whose vectors are held at one time.
PAIRS_PER_BLOCK = 1024


class CodePairScorer(PairScorer):
    """Similarities of vectors, a few for each text."""

    pooling: CodePooling

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: as many rows as an answer has vectors."""
        vectors = self.pooling.answer_vectors(states.with_values(states.values.float()))  # (n, j, c)
        return Ragged.of_sizes(vectors.flatten(0, 1), np.full(len(vectors), vectors.shape[1]))

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, i, c)."""
        return self.pooling.question_vectors(states.with_values(states.values.float()))

    def score_pairs(self, questions: Tensor, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``: a block of pairs at a time."""
        rows = answers.ragged().values
        vectors = rows.view(len(answers.counts), -1, rows.shape[1])  # (n, j, c)
        scores = []
        for q, a in zip(*(part.split(PAIRS_PER_BLOCK) for part in pairs.on(rows.device)), strict=True):
            r_q, r_a, _ = self.pooling.join(questions[q], vectors[a])
            scores.append(self.pooling.similarity(r_q, r_a))
        return torch.cat(scores)
