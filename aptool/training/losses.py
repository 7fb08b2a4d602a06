"""Hard negatives and losses of a minibatch.

Each epoch samples answers that are not relevant, and trains on the highest-scored of them. The samples depend
only on the seed and the epoch, not on weights or earlier samples. In a loss, a positive answer should
outscore its negatives. ``scores`` is (n, k), one row per question: its positive answer in column 0, its
negatives in the other columns, -inf in a column without an answer.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.config import TrainingOptions
from aptool.models.build import Ranker
from aptool.models.device import send
from aptool.models.encoders import WordEncoder
from aptool.models.ragged import Ragged
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.text.tokenizer import Tokens
from aptool.training.data import TrainingSet
from aptool.training.process_group import SINGLE_PROCESS, MinibatchShard, ProcessGroup, all_gather

PAIRS_PER_BLOCK = 1 << 22  # scored at once in mining over all answers


class NegativeSampler:
    """Samples answers of a training set that are not relevant to a question."""

    def __init__(self, examples: TrainingSet, source: str, sampled: int) -> None:
        """Sample ``sampled`` negatives per question; ``source`` is ``TrainingOptions.negatives``."""
        self._answers = len(examples.answers)
        self._positives = examples.positives
        self._pools = examples.pool_negatives
        self._sampled = sampled
        self._from_pool = {"pool": sampled, "bm25": sampled, "mix": sampled // 2}.get(source, 0)

    def sample(self, questions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """(n, sampled) int64: answers drawn with replacement for each of (n,) questions.

        If the pool of a question has no negative, all of its negatives are from the corpus.
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
        """(questions,) bool: whether a question has a negative."""
        return self._positives.lengths < self._answers

    def _from_corpus(self, questions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Draw uniformly from all answers except the positives, which are skipped in ascending order."""
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
    negatives: np.ndarray | None,
    hard_negatives: int,
    group: ProcessGroup,
) -> np.ndarray:
    """(n, hard_negatives) int64: hard negatives of (n,) questions, from (n, sampled) or all answers.

    Each process scores its shard of the questions. The ranker remains in evaluation mode.
    """
    if negatives is not None and negatives.shape[1] <= hard_negatives:
        return negatives
    shard = group.shard(len(questions))
    mined = np.zeros((len(questions), hard_negatives), dtype=np.int64)
    if shard.start < shard.stop:
        ranker.eval()
        if negatives is None:
            mined[shard] = hardest_of_all(ranker, examples, questions[shard], hard_negatives)
        else:
            mined[shard] = hardest(ranker, examples, questions[shard], negatives[shard], hard_negatives)
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
    tokens = sum(len(side.ids) for side in texts)
    scorer = RankerScorer(ranker, device=next(ranker.parameters()).device, expected_tokens=tokens)
    scores = scorer.score(*texts, np.repeat(row, sampled), column.reshape(-1))
    best = np.argsort(-scores.reshape(negatives.shape), axis=1, kind="stable")[:, :hard_negatives]
    return np.take_along_axis(negatives, best, axis=1)


def hardest_of_all(
    ranker: Ranker, examples: TrainingSet, questions: np.ndarray, hard_negatives: int
) -> np.ndarray:
    """(n, hard_negatives) int64: the highest-scored of all answers that are not relevant, best first.

    Each answer is encoded once. If a question has fewer negatives, its best one is repeated.
    """
    distinct, row = np.unique(questions, return_inverse=True)
    question_tokens = examples.questions.take(distinct)
    tokens = len(question_tokens.ids) + len(examples.answers.ids)
    scorer = RankerScorer(ranker, device=next(ranker.parameters()).device, expected_tokens=tokens)
    best = np.zeros((len(distinct), hard_negatives), dtype=np.int64)
    best_scores = np.full(best.shape, -np.inf, dtype=np.float32)
    size = max(PAIRS_PER_BLOCK // len(distinct), 1)
    for start in range(0, len(examples.answers), size):
        block = np.arange(start, min(start + size, len(examples.answers)))
        pair_question, pair_answer = np.indices((len(distinct), len(block))).reshape(2, -1)
        scores = scorer.score(question_tokens, examples.answers.take(block), pair_question, pair_answer)
        scores = scores.reshape(len(distinct), len(block))
        scores[examples.positives.contain(distinct, block)] = -np.inf
        scores = np.concatenate([best_scores, scores], axis=1)
        answers = np.concatenate([best, np.broadcast_to(block, (len(distinct), len(block)))], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :hard_negatives]
        best, best_scores = np.take_along_axis(answers, order, 1), np.take_along_axis(scores, order, 1)
    return np.where(np.isfinite(best_scores), best, best[:, :1])[row]


def hinge(scores: Tensor, margin: float) -> Tensor:
    """(n,) max(0, m - s(q, a+) + s(q, a-)) with the highest-scored negative (paper, eq. 12).

    Only the scores of the positive and of this negative have a gradient.
    """
    return torch.clamp(margin - scores[:, 0] + scores[:, 1:].amax(1), min=0)


def softmax(scores: Tensor, temperature: float) -> Tensor:
    """(n,) cross-entropy of the positive in a softmax over s / temperature of all answers."""
    return -F.log_softmax(scores / temperature, dim=1)[:, 0]


def logistic(scores: Tensor) -> Tensor:
    """(n,) −ln σ(s(q, a+)), plus the mean of −ln(1 − σ(s(q, a-))) over the negatives of each question."""
    negatives = torch.isfinite(scores[:, 1:])
    terms = F.softplus(scores[:, 1:].masked_fill(~negatives, 0.0)) * negatives
    return F.softplus(-scores[:, 0]) + terms.sum(1) / negatives.sum(1).clamp_min(1)


def loss(scores: Tensor, options: TrainingOptions) -> Tensor:
    """(n,) losses by the recipe's loss function."""
    if options.loss == "softmax":
        return softmax(scores, options.temperature)
    if options.loss == "logistic":
        return logistic(scores)
    return hinge(scores, options.margin)


def score_batch(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    in_batch: bool,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Tensor:
    """Score the shard of this process of a minibatch; each text is encoded once.

    ``batch`` is (n, 2 + k): question, its positive answer and k ≥ 0 negative answers. Returns (n', 1 + m)
    scores of the n' questions of the shard: the positive answer, then m negatives. With ``in_batch``, these
    are all (1 + k) n answers of the minibatch, of all processes; -inf for a relevant answer.
    """
    device = next(ranker.parameters()).device
    shard = MinibatchShard(group, len(batch))
    rows = np.arange(len(batch))[shard.rows]  # (n',)
    question_tokens = examples.questions.take(batch[rows, 0])
    columns = batch.shape[1] - 1
    all_answers = batch[:, 1:].T.reshape(-1)  # (n (1 + k),) positives, then negatives
    columns_of = np.arange(columns)[:, None] * len(batch) + rows  # (1 + k, n') indices into all_answers
    in_shard = columns_of.reshape(-1)
    # Small pools are sampled repeatedly: equal answers are encoded once.
    distinct, distinct_of = np.unique(all_answers[in_shard], return_inverse=True)
    answer_tokens = examples.answers.take(distinct)
    questions, answers = _encode(ranker, question_tokens, answer_tokens, device)
    if not in_batch:
        # Equal pairs are scored once.
        pairs = np.tile(np.arange(len(rows)), columns) * len(distinct) + distinct_of
        distinct_pairs, pair_of = np.unique(pairs, return_inverse=True)
        question_of, answer_of = distinct_pairs // len(distinct), distinct_pairs % len(distinct)
        features = ranker.features_of(question_tokens, answer_tokens)(question_of, answer_of)
        scores = ranker.score_pairs(questions.select(question_of), answers.select(answer_of), features)
        return scores[send(pair_of, device)].view(columns, -1).T
    answers = answers.select(distinct_of)
    if not shard.complete:
        answers = all_gather(group, answers, examples.answers.lengths[all_answers], in_shard)
    question_of = np.repeat(np.arange(len(rows)), len(all_answers))
    answer_of = np.tile(all_answers, len(rows))
    features = ranker.features_of(question_tokens, examples.answers)(question_of, answer_of)
    scores = ranker.score_matrix(questions, answers, features)  # (n', n (1 + k))
    relevant = send(examples.positives.contain(batch[rows, 0], all_answers), device)
    positive = scores.gather(1, send(columns_of[:1].T, device))
    return torch.cat([positive, scores.masked_fill(relevant, -torch.inf)], dim=1)


def _encode(
    ranker: Ranker, questions: Tokens, answers: Tokens, device: torch.device
) -> tuple[Ragged, Ragged]:
    """Return the states of questions and answers; on a GPU, an encoder of words reads both in one call."""
    if device.type != "cuda" or not isinstance(ranker.encoder, WordEncoder):
        return ranker.encode(Ragged.of(questions, device)), ranker.encode(Ragged.of(answers, device))
    offsets = np.concatenate([questions.offsets, len(questions.ids) + answers.offsets[1:]])
    both = Tokens(np.concatenate([questions.ids, answers.ids]), offsets)
    states = ranker.encode(Ragged.of(both, device))
    parts = states.values.split([len(questions.ids), len(answers.ids)])
    return Ragged.of_sizes(parts[0], questions.lengths), Ragged.of_sizes(parts[1], answers.lengths)


def batch_losses(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    options: TrainingOptions,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Tensor:
    """(n',) losses of the shard of this process of a minibatch; arguments as in ``score_batch``."""
    scores = score_batch(ranker, examples, batch, options.in_batch, group)
    return loss(scores, options)
