"""Kernels of poolings that represent each text independently: one vector per text, their similarities."""

import numpy as np
from torch import Tensor

from aptool.models.device import send
from aptool.models.pooling import IndependentPooling
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels.pair_scorer import PairScorer


class IndependentPairScorer(PairScorer):
    """Similarities of vectors, one per text."""

    pooling: IndependentPooling

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: one row per answer."""
        vectors = self.pooling.represent(states).float()
        rows = self.pooling.similarity.prepare_answers(vectors)
        return Ragged.of_sizes(rows, np.ones_like(states.sizes))

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """See ``PairScorer.kept_rows``."""
        return np.ones_like(lengths)

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, c)."""
        return self.pooling.similarity.prepare_questions(self.pooling.represent(states).float())

    def score_pairs(self, questions: Tensor, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``: from one matrix product, or row by row where that is less work."""
        similarity, device = self.pooling.similarity, questions.device
        vectors = answers.ragged().values  # (n, c)
        q, a = pairs.on(device)
        present, turn = np.unique(pairs.questions, return_inverse=True)
        if len(present) * len(vectors) <= 64 * len(turn):
            return similarity.matrix(questions[send(present, device)], vectors)[send(turn, device), a]
        return similarity.pairs(questions[q], vectors[a])


class FirstPairScorer(IndependentPairScorer):
    """The same for a pooling that reads only the first state of a text."""

    def select_states(self, tokens: Ragged) -> tuple[Tensor, np.ndarray]:
        """See ``PairScorer.select_states``."""
        return tokens.offsets[:-1], np.ones_like(tokens.sizes)
