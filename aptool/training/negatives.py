"""Negative answers: drawn anew each round, never a positive, the best-scored of each draw trains.

The sampled_negatives depend on the seed and the epoch alone, not on weights or on what was drawn before.
"""

import numpy as np

from aptool.models.ranker import Ranker
from aptool.scoring.scorer import Scorer
from aptool.training.data import Lists, TrainingSet


class NegativeSampler:
    """Draws answers of a training set that are not relevant to a question."""

    def __init__(
        self, examples: TrainingSet, source: str, sampled_negatives: int, shared: bool = False
    ) -> None:
        """Prepares to draw.

        Args:
            examples: the training set.
            source: ``corpus``, ``pool`` or ``mix``, as in ``TrainingOptions.negatives``.
            sampled_negatives: negatives per question.
            shared: the questions of a minibatch share what is drawn for them from the corpus.
        """
        self._corpus = len(examples.answers)
        self._positives = examples.positives
        self._pools = examples.pool_negatives
        self._from_pool = {"corpus": 0, "pool": sampled_negatives, "mix": sampled_negatives // 2}[source]
        self._draws = sampled_negatives
        self._shared = shared

    def draw(self, questions: np.ndarray, generator: np.random.Generator, minibatch: int = 1) -> np.ndarray:
        """(n, sampled_negatives) int64 answers for (n,) questions, drawn with replacement.

        Where sampled_negatives are shared, each block of ``minibatch`` questions has one; where an answer of it is
        relevant to a question, that question alone is given another one.

        A question whose own pool has no negative sampled_negatives from the corpus instead. A question to which every
        answer of the corpus is relevant cannot be given one; ``trainable`` leaves such out.
        """
        corpus = self._corpus_draws(questions, generator)
        if self._shared:
            blocks = np.arange(len(questions)) // minibatch
            common = generator.integers(self._corpus, size=(int(blocks[-1]) + 1, self._draws))[blocks]
            corpus = np.where(self._relevant(questions, common), corpus, common)
        if not self._from_pool or not len(self._pools.values):
            return corpus
        sizes = self._pools.lengths[questions]
        places = (generator.random((len(questions), self._from_pool)) * sizes[:, None]).astype(np.int64)
        rows = self._pools.offsets[questions][:, None] + places
        pool = self._pools.values[np.minimum(rows, len(self._pools.values) - 1)]
        corpus[:, : self._from_pool] = np.where(sizes[:, None] > 0, pool, corpus[:, : self._from_pool])
        return corpus

    def trainable(self) -> np.ndarray:
        """(questions,) bool: whether there is an answer that is not relevant to the question."""
        return self._positives.lengths < self._corpus

    def _relevant(self, questions: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """(n, sampled_negatives) bool: which of the (n, sampled_negatives) answers are relevant to their question."""
        owner = np.repeat(np.arange(len(self._positives.lengths)), self._positives.lengths)
        known = owner * self._corpus + self._positives.values  # ascending
        asked = questions[:, None] * self._corpus + answers
        return np.isin(asked, known)

    def _corpus_draws(self, questions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Uniform over the answers that are not positive: the x-th of them, stepping over positives."""
        left = self._corpus - self._positives.lengths[questions]  # (n,)
        drawn = (generator.random((len(questions), self._draws)) * left[:, None]).astype(np.int64)
        for rank in range(int(self._positives.lengths[questions].max(initial=0))):
            positive = _member(self._positives, questions, rank, beyond=self._corpus)
            drawn += drawn >= positive[:, None]
        return drawn


def hardest(
    ranker: Ranker, examples: TrainingSet, questions: np.ndarray, drawn: np.ndarray, hard_negatives: int = 1
) -> np.ndarray:
    """(n, hard_negatives) int64: the best-scored of the (n, sampled_negatives) answers drawn for (n,) questions, best first."""
    if drawn.shape[1] <= hard_negatives:
        return drawn
    asked, row = np.unique(questions, return_inverse=True)
    present, column = np.unique(drawn, return_inverse=True)
    pair_question = np.repeat(row, drawn.shape[1])
    texts = examples.questions.take(asked), examples.answers.take(present)
    tokens = sum(int(some.offsets[-1]) for some in texts)
    scorer = Scorer(ranker, device=next(ranker.parameters()).device, expected_tokens=tokens)
    scores = scorer.score(*texts, pair_question, column.reshape(-1))
    best = np.argsort(-scores.reshape(drawn.shape), axis=1, kind="stable")[:, :hard_negatives]
    return np.take_along_axis(drawn, best, axis=1)


def _member(lists: Lists, rows: np.ndarray, rank: int, beyond: int) -> np.ndarray:
    """The ``rank``-th member of each list, or ``beyond`` where a list is shorter."""
    has = lists.lengths[rows] > rank
    index = np.minimum(lists.offsets[rows] + rank, max(0, len(lists.values) - 1))
    return np.where(has, lists.values[index], beyond)
