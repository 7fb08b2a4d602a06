"""Negative answers: sampled anew for each epoch, never a positive; the hardest of each sample are trained on.

What is sampled depends on the seed and the epoch only, not on weights or on earlier samples.
"""

import hashlib

import numpy as np
import polars as pl
import torch

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import location
from aptool.formats.trec import read_run
from aptool.models.ranker import Ranker
from aptool.options import expected_without
from aptool.scoring.scorer import Scorer
from aptool.training.data import IndexLists, TrainingSet
from aptool.training.losses import Teacher
from aptool.training.process_group import ProcessGroup
from aptool.training.texts import numbered_pairs


class NegativeSampler:
    """Samples answers of a training set that are not relevant to a question."""

    def __init__(self, examples: TrainingSet, source: str, sampled: int) -> None:
        """Prepares the sampling.

        Args:
            examples: the training set.
            source: ``corpus``, ``pool`` or ``mix``, as in ``TrainingOptions.negatives``.
            sampled: negatives per question.
        """
        self._answers = len(examples.answers)
        self._positives = examples.positives
        self._pools = examples.pool_negatives
        self._sampled = sampled
        self._from_pool = {"corpus": 0, "pool": sampled, "mix": sampled // 2}[source]

    def sample(self, questions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Samples negatives with replacement.

        A question whose own pool has no negative gets all of its negatives from the corpus. If every answer
        of the corpus is relevant to a question, it has no negative; ``trainable`` excludes such questions.

        Args:
            questions: (n,) int64.
            generator: the source of randomness.

        Returns:
            (n, sampled) int64 answers.
        """
        negatives = self._from_corpus(questions, generator)
        if not self._from_pool or not len(self._pools.values):
            return negatives
        sizes = self._pools.lengths[questions]
        places = (generator.random((len(questions), self._from_pool)) * sizes[:, None]).astype(np.int64)
        rows = self._pools.offsets[questions][:, None] + places
        pool = self._pools.values[np.minimum(rows, len(self._pools.values) - 1)]
        from_pool = slice(0, self._from_pool)
        negatives[:, from_pool] = np.where(sizes[:, None] > 0, pool, negatives[:, from_pool])
        return negatives

    def trainable(self) -> np.ndarray:
        """(questions,) bool: whether some answer is not relevant to the question."""
        return self._positives.lengths < self._answers

    def _from_corpus(self, questions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Uniform over the answers that are not positive: the x-th of them, counted without the positives."""
        remaining = self._answers - self._positives.lengths[questions]  # (n,)
        sample = (generator.random((len(questions), self._sampled)) * remaining[:, None]).astype(np.int64)
        for rank in range(int(self._positives.lengths[questions].max(initial=0))):
            positive = _member(self._positives, questions, rank, default=self._answers)
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
    """The hardest of the negatives sampled for each question; each process scores its shard of the questions.

    Args:
        ranker: in any mode; it scores in evaluation mode.
        examples: the training set.
        questions: (n,) int64.
        negatives: (n, sampled) int64 answers.
        hard_negatives: how many to find.
        group: the processes that train together.

    Returns:
        (n, hard_negatives) int64 answers, highest score first.
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
    """(n, hard_negatives) int64: the highest-scored of the (n, sampled) negatives, best first."""
    sampled = negatives.shape[1]
    distinct_questions, row = np.unique(questions, return_inverse=True)
    distinct_answers, column = np.unique(negatives, return_inverse=True)
    texts = examples.questions.take(distinct_questions), examples.answers.take(distinct_answers)
    tokens = sum(int(some.offsets[-1]) for some in texts)
    scorer = Scorer(ranker, device=next(ranker.parameters()).device, expected_tokens=tokens)
    scores = scorer.score(*texts, np.repeat(row, sampled), column.reshape(-1))
    best = np.argsort(-scores.reshape(negatives.shape), axis=1, kind="stable")[:, :hard_negatives]
    return np.take_along_axis(negatives, best, axis=1)


def _member(lists: IndexLists, rows: np.ndarray, rank: int, default: int) -> np.ndarray:
    """The ``rank``-th member of each list, or ``default`` where a list is shorter."""
    has = lists.lengths[rows] > rank
    index = np.minimum(lists.offsets[rows] + rank, max(0, len(lists.values) - 1))
    return np.where(has, lists.values[index], default)


def read_teacher(collection: CollectionFiles, recipe: Recipe, split: str) -> Teacher | None:
    """The scores of a recipe's teacher; None if it has none."""
    options = recipe.teacher
    if not options.run:
        return None
    pairs = numbered_pairs(collection, split)
    found = pairs.frame.join(read_run(options.run).frame, on=["question_id", "answer_id"], how="left")
    missing = found.filter(pl.col("score").is_null())
    if len(missing) == len(found):
        wanted = f"scores of the pairs of {collection.pools(split)}"
        raise InputError(options.run, problem="scores of other pools only", expected=wanted)
    if len(missing):
        question, answer = missing.select("question_id", "answer_id").row(0)
        problem = f"{len(missing):,} of {len(found):,} training pairs have no score"
        place = f"question {question!r}, answer {answer!r}"
        raise InputError(options.run, place=place, problem=problem, expected="a score of every pair")
    keys = found["question"].to_numpy() * len(pairs.answers) + found["answer"].to_numpy()
    keys, first = np.unique(keys, return_index=True)  # an answer with two ids is one
    return Teacher(keys, found["score"].to_numpy()[first].astype(np.float32), len(pairs.answers), options)


def teacher_fingerprint(recipe: Recipe) -> str | None:
    """Hash of the run file; None without a teacher."""
    if not recipe.teacher.run:
        return None
    path = location(recipe.teacher.run)
    if path.is_dir():
        raise InputError(path, problem="a folder", expected=expected_without("a run file as a teacher"))
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="a run that scores the training pools")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
