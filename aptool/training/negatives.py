"""Hard negatives: each epoch samples answers that are not relevant and trains on the highest-scored ones.

The samples depend only on the seed and the epoch, not on weights or earlier samples.
"""

import numpy as np
import torch

from aptool.models.ranker import Ranker
from aptool.scoring.scorer import Scorer
from aptool.training.data import TrainingSet
from aptool.training.process_group import ProcessGroup


class NegativeSampler:
    """Samples answers of a training set that are not relevant to a question."""

    def __init__(self, examples: TrainingSet, source: str, sampled: int) -> None:
        """Sample ``sampled`` negatives per question from a source of ``TrainingOptions.negatives``."""
        self._answers = len(examples.answers)
        self._positives = examples.positives
        self._pools = examples.pool_negatives
        self._sampled = sampled
        self._from_pool = {"corpus": 0, "pool": sampled, "mix": sampled // 2}[source]

    def sample(self, questions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """(n, sampled) int64: answers drawn with replacement for each of (n,) questions.

        A question whose pool has no negative gets all of its negatives from the corpus.
        """
        negatives = self._from_corpus(questions, generator)
        if not self._from_pool or not len(self._pools.values):
            return negatives
        sizes = self._pools.lengths[questions]
        draws = (generator.random((len(questions), self._from_pool)) * sizes[:, None]).astype(np.int64)
        rows = self._pools.offsets[questions][:, None] + draws
        pool = self._pools.values[np.minimum(rows, len(self._pools.values) - 1)]
        from_pool = slice(0, self._from_pool)
        negatives[:, from_pool] = np.where(sizes[:, None] > 0, pool, negatives[:, from_pool])
        return negatives

    def trainable(self) -> np.ndarray:
        """(questions,) bool: whether the question has a negative."""
        return self._positives.lengths < self._answers

    def _from_corpus(self, questions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Draw uniformly from the answers that are not positive: skip each positive, in ascending order."""
        positives = self._positives
        remaining = self._answers - positives.lengths[questions]  # (n,)
        sample = (generator.random((len(questions), self._sampled)) * remaining[:, None]).astype(np.int64)
        for rank in range(int(positives.lengths[questions].max(initial=0))):
            index = np.minimum(positives.offsets[questions] + rank, len(positives.values) - 1)
            has_rank = positives.lengths[questions] > rank
            positive = np.where(has_rank, positives.values[index], self._answers)
            sample += sample >= positive[:, None]
        return sample


def mine(
    ranker: Ranker,
    examples: TrainingSet,
    questions: np.ndarray,
    negatives: np.ndarray,
    hard_negatives: int,
    group: ProcessGroup,
) -> np.ndarray:
    """(n, hard_negatives) int64: ``hardest``, where each process scores its shard of the questions.

    Leaves the ranker in evaluation mode.
    """
    if negatives.shape[1] <= hard_negatives:
        return negatives
    shard = group.shard(len(questions))
    mined = np.zeros((len(questions), min(hard_negatives, negatives.shape[1])), dtype=np.int64)
    if shard.start < shard.stop:
        mined[shard] = hardest(ranker.eval(), examples, questions[shard], negatives[shard], hard_negatives)
    if group.size == 1:
        return mined
    device = next(ranker.parameters()).device
    return group.all_reduce(torch.from_numpy(mined).to(device)).cpu().numpy()


def hardest(
    ranker: Ranker,
    examples: TrainingSet,
    questions: np.ndarray,
    negatives: np.ndarray,
    hard_negatives: int = 1,
) -> np.ndarray:
    """(n, hard_negatives) int64: the highest-scored of (n, sampled) negatives per question, best first."""
    sampled = negatives.shape[1]
    distinct_questions, row = np.unique(questions, return_inverse=True)
    distinct_answers, column = np.unique(negatives, return_inverse=True)
    texts = examples.questions.take(distinct_questions), examples.answers.take(distinct_answers)
    tokens = sum(int(some.offsets[-1]) for some in texts)
    scorer = Scorer(ranker, device=next(ranker.parameters()).device, expected_tokens=tokens)
    scores = scorer.score(*texts, np.repeat(row, sampled), column.reshape(-1))
    best = np.argsort(-scores.reshape(negatives.shape), axis=1, kind="stable")[:, :hard_negatives]
    return np.take_along_axis(negatives, best, axis=1)
