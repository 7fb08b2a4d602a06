"""A minibatch: scores of its questions and answers, and losses by the labels and by a teacher."""

import numpy as np
import torch
from torch import Tensor

from aptool.config import TrainingOptions
from aptool.models.device import send
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.training.data import TrainingSet
from aptool.training.losses import loss
from aptool.training.process_group import SINGLE_PROCESS, MinibatchShard, ProcessGroup, all_gather


def score_batch(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    in_batch: bool,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Tensor:
    """Scores of this process's shard of a minibatch; each text is encoded once.

    Args:
        ranker: in any mode.
        examples: the training set.
        batch: (n, 2 + k) question, its positive answer and k negative answers, perhaps none.
        in_batch: score every answer of the minibatch, on whichever process, against every question.
        group: the processes that share the minibatch.

    Returns:
        (n', 1 + m) for the n' questions of the shard: the positive answer first, the m negatives after it;
        with ``in_batch`` these are all (1 + k) n answers, -inf for a relevant one.
    """
    device = next(ranker.parameters()).device
    shard = MinibatchShard(group, len(batch))
    place = np.arange(len(batch))[shard.rows]
    asked = examples.questions.take(batch[place, 0])
    questions = ranker.encode(Ragged.of(asked, device))
    columns = batch.shape[1] - 1
    rows = batch[:, 1:].T.reshape(-1)  # (n (1 + k),) answers: positives, then negatives
    places = np.arange(columns)[:, None] * len(batch) + place  # (1 + k, n') the shard's indices into rows
    own = places.reshape(-1)
    # Small pools are sampled from again and again: equal answers are encoded once.
    distinct, which = np.unique(rows[own], return_inverse=True)
    texts = examples.answers.take(distinct)
    answers = ranker.encode(Ragged.of(texts, device))
    if not in_batch:
        # Equal pairs are scored once.
        pairs = np.tile(np.arange(len(place)), columns) * len(distinct) + which
        scored, again = np.unique(pairs, return_inverse=True)
        question_of, answer_of = scored // len(distinct), scored % len(distinct)
        features = ranker.pair_features(asked, texts, question_of, answer_of)
        scores = ranker.score_pairs(questions.select(question_of), answers.select(answer_of), features)
        return scores[send(again, device)].view(columns, -1).T
    answers = answers.select(which)
    if not shard.complete:
        answers = all_gather(group, answers, examples.answers.lengths[rows], own)
    question_of, row_of = np.repeat(np.arange(len(place)), len(rows)), np.tile(rows, len(place))
    features = ranker.pair_features(asked, examples.answers, question_of, row_of)
    scores = ranker.score_matrix(questions, answers, features)  # (n', n (1 + k))
    relevant = send(examples.positives.contain(batch[place, 0], rows), device)
    positive = scores.gather(1, send(places[:1].T, device))
    return torch.cat([positive, scores.masked_fill(relevant, -torch.inf)], dim=1)


def batch_losses(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    options: TrainingOptions,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Tensor:
    """(n',) losses of this process's shard of a minibatch, by the labels and by the teacher if there is one.

    Args:
        ranker: in training mode.
        examples: the training set.
        batch: (n, 2 + k) question, its positive answer and k negative answers.
        options: with the loss.
        group: the processes that share the minibatch.
    """
    scores = score_batch(ranker, examples, batch, options.in_batch, group)
    losses = loss(scores, options)
    if examples.teacher is None:
        return losses
    own = batch[MinibatchShard(group, len(batch)).rows]  # (n', 2 + k)
    answers = own[:, 1:]
    if options.in_batch:  # the columns of ``score_batch``
        answers = np.column_stack([own[:, 1], np.tile(batch[:, 1:].T.reshape(-1), (len(own), 1))])
    taught = send(examples.teacher.of(own[:, 0], answers), scores.device)
    return examples.teacher.mixed(losses, scores, taught, options)
