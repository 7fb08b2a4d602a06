"""The training loop: plain torch, reproducible to the bit with a fixed number of threads.

Each epoch samples negatives anew, keeps the hardest of each sample, takes gradient steps on the loss, and is
evaluated on the dev split. The weights of the best epoch are the result, or the average of those of the last
epochs.

All randomness of an epoch follows from the seed and the epoch's number, so training that resumes after any
epoch ends in the same weights as training that never stopped. The processes of a group sample alike, and each
takes its shard of every minibatch.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.config import TrainingOptions
from aptool.errors import AptoolError
from aptool.models.device import send
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.progress import Update, get_progress
from aptool.training.data import Shares, TrainingSet
from aptool.training.losses import loss
from aptool.training.negatives import NegativeSampler, mine
from aptool.training.optimization import (
    build_optimizers,
    clip_gradients,
    learning_rate,
    take_step,
    trainable_parameters,
)
from aptool.training.process_group import (
    SINGLE_PROCESS,
    MinibatchShard,
    ProcessGroup,
    all_gather,
    all_reduce_gradients,
)

# Updates between two readings of the loss from a GPU.
UPDATES_PER_READING = 50


class TrainingState(NamedTuple):
    """Training after an epoch: all that resuming needs.

    Attributes:
        history: one entry an epoch.
        best_epoch: the epoch with the best dev figure, 0 before the first; with ``average_epochs``, the last.
        weights: the current state dict.
        best_weights: the state dict of the best epoch, or the average of the last epochs so far.
        optimizers: the state dict of each optimizer.
    """

    history: list[dict[str, Any]]
    best_epoch: int
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]


class Trained(NamedTuple):
    """The result of training; the ranker itself holds the resulting weights.

    Attributes:
        best_epoch: the epoch whose weights they are, or the last of those that they are averaged over.
        history: one entry an epoch.
        dev: measures of the resulting weights.
    """

    best_epoch: int
    history: list[dict[str, Any]]
    dev: dict[str, float]


def train(
    ranker: Ranker,
    examples: TrainingSet,
    options: TrainingOptions,
    *,
    seed: int,
    evaluate: Callable[[Ranker], dict[str, float]],
    resume_from: TrainingState | None = None,
    save: Callable[[TrainingState], None] = lambda state: None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Trained:
    """Trains a ranker in place, on its device.

    Args:
        ranker: with initial weights.
        examples: the training split.
        options: the procedure.
        seed: of shuffling, sampling and dropout.
        evaluate: dev measures of a ranker by name, ``options.dev_measure`` among them.
        resume_from: the state after an earlier epoch; None starts from the beginning.
        save: called with the state after each epoch, before the epoch is reported.
        group: the processes that train together; each calls this with the same arguments.

    Raises:
        AptoolError: the loss is no longer finite, or no question has a negative or no weight is trainable.
    """
    sampler = NegativeSampler(examples, options.negatives, options.sampled_negatives, options.shared_draw)
    pairs = examples.pairs[sampler.trainable()[examples.pairs[:, 0]]]
    if not len(pairs):
        raise AptoolError("training needs negatives: every answer is relevant to every question")
    optimizers = build_optimizers(ranker, options)
    history: list[dict[str, Any]] = []
    best_epoch, best_weights = 0, copy.deepcopy(ranker.state_dict())
    if resume_from is not None:
        history, best_epoch = list(resume_from.history), resume_from.best_epoch
        best_weights = resume_from.best_weights
        ranker.load_state_dict(resume_from.weights)
        for optimizer, state in zip(optimizers, resume_from.optimizers, strict=True):
            optimizer.load_state_dict(state)
    with get_progress().task("train") as update:
        for epoch in range(len(history) + 1, options.epochs + 1):
            if options.patience and epoch - 1 - best_epoch >= options.patience:
                break
            started = time.perf_counter()
            losses = _train_epoch(
                ranker, examples, pairs, options, epoch, seed, sampler, optimizers, group, update
            )
            trained = time.perf_counter()
            measures = evaluate(ranker.eval())
            entry = {
                "epoch": epoch,
                "loss": losses.mean,
                "active": losses.active,
                "learning_rate": learning_rate(options, epoch, epoch / options.epochs),
                "dev": measures,
                "seconds": {
                    "train": trained - started,
                    "mining": losses.mining_seconds,
                    "dev": time.perf_counter() - trained,
                },
            }
            history.append(entry)
            best = history[best_epoch - 1]["dev"][options.dev_measure] if best_epoch else -math.inf
            if options.average_epochs:
                best_epoch = epoch
                _average(best_weights, ranker.state_dict(), epoch - options.epochs + options.average_epochs)
            elif measures[options.dev_measure] > best:
                best_epoch, best_weights = epoch, copy.deepcopy(ranker.state_dict())
            optimizer_states = [optimizer.state_dict() for optimizer in optimizers]
            save(TrainingState(history, best_epoch, ranker.state_dict(), best_weights, optimizer_states))
            get_progress().epoch(entry)
    ranker.load_state_dict(best_weights)
    # The figures of an average, or of weights that were never trained, are not in the history.
    known = best_epoch and options.average_epochs < 2
    dev = history[best_epoch - 1]["dev"] if known else evaluate(ranker.eval())
    return Trained(best_epoch, history, dev)


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
        batch: (n, 2 + k) question, positive answer and k negative answers, perhaps none.
        in_batch: score every answer of the minibatch, on whichever process, against every question.
        group: the processes that share the minibatch.

    Returns:
        (n', 1 + m) for the n' questions of the shard: the positive answer in column 0, its m negatives in the
        others, -inf for a relevant answer.
    """
    device = next(ranker.parameters()).device
    shard = MinibatchShard(group, len(batch))
    place = np.arange(len(batch))[shard.rows]
    asked = examples.questions.take(batch[place, 0])
    questions = ranker.encode(Ragged.of(asked, device))
    columns = batch.shape[1] - 1
    rows = batch[:, 1:].T.reshape(-1)  # (n (1 + k),) answers: positives, then negatives
    own = (np.arange(columns)[:, None] * len(batch) + place).reshape(-1)  # the shard's indices into rows
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
    positive = scores[torch.arange(len(place), device=device), send(place, device), None]
    return torch.cat([positive, scores.masked_fill(relevant, -torch.inf)], dim=1)


class _EpochLosses(NamedTuple):
    """The mean loss of an epoch's pairs, the fraction of them with a loss, and the time mining took."""

    mean: float
    active: float
    mining_seconds: float


def _train_epoch(
    ranker: Ranker,
    examples: TrainingSet,
    pairs: np.ndarray,
    options: TrainingOptions,
    epoch: int,
    seed: int,
    sampler: NegativeSampler,
    optimizers: list[torch.optim.Optimizer],
    group: ProcessGroup,
    update: Update,
) -> _EpochLosses:
    """Takes the gradient steps of one epoch."""
    generator = np.random.default_rng([seed, epoch])
    _seed_dropout(seed, epoch, group.rank)
    pairs = _epoch_pairs(pairs, options.pairs, examples.shares, generator)
    device = next(ranker.parameters()).device
    # Reading the loss waits for a GPU.
    reading = 1 if device.type == "cpu" else UPDATES_PER_READING
    totals = torch.zeros(2, dtype=torch.float64, device=device)
    total = active = mining = 0.0
    done = updates = 0
    for block in _blocks(pairs, options.minibatch * options.mining_interval):
        started = time.perf_counter()
        if options.sampled_negatives:
            negatives = sampler.sample(block[:, 0], generator, options.minibatch)
            mined = mine(ranker, examples, block[:, 0], negatives, options.hard_negatives, group)
            block = np.column_stack([block, mined])
        mining += time.perf_counter() - started
        ranker.train()
        for batch in _blocks(block, options.minibatch):
            progress = (epoch - 1 + done / len(pairs)) / options.epochs
            rate = learning_rate(options, epoch, progress)
            totals.add_(_step(ranker, examples, batch, options, optimizers, rate, group))
            done += len(batch)
            updates += 1
            if updates % reading and done < len(pairs):
                continue
            total, active = totals.tolist()
            if not math.isfinite(total):
                updates += (epoch - 1) * math.ceil(len(pairs) / options.minibatch)
                raise AptoolError(
                    f"training diverged in epoch {epoch}: the loss is {total} after {updates} updates; "
                    "expected a lower training.learning_rate, or a training.clip such as 5"
                )
            update(done, len(pairs), f"pairs, epoch {epoch}, loss {total / done:.4f}")
    return _EpochLosses(total / done, active / done, mining)


def _step(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    options: TrainingOptions,
    optimizers: list[torch.optim.Optimizer],
    rate: float,
    group: ProcessGroup,
) -> Tensor:
    """One update by the mean loss of a minibatch; (2,) the sum of its losses, the number of nonzero ones."""
    losses = loss(score_batch(ranker, examples, batch, options.in_batch, group), options)
    weight = MinibatchShard(group, len(batch)).weight
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    (losses.sum() * (weight / len(batch))).backward()
    losses = losses.detach()
    totals = torch.stack([losses.sum(), (losses > 0).sum().to(losses.dtype)]) * weight
    totals = all_reduce_gradients(group, trainable_parameters(ranker), totals)
    if options.clip:
        clip_gradients(ranker, options.clip)
    take_step(optimizers, rate)
    return totals


def _average(average: dict[str, Tensor], weights: dict[str, Tensor], number: int) -> None:
    """Makes ``average`` the mean of the ``number`` latest weights: 1 or less starts anew."""
    for name, value in weights.items():
        if number > 1 and value.is_floating_point():
            average[name].lerp_(value, 1 / number)
        else:
            average[name].copy_(value)


def _seed_dropout(seed: int, epoch: int, rank: int) -> None:
    """Seeds the dropout of an epoch from these three only, so that a resumed epoch repeats it."""
    torch.manual_seed(int(np.random.SeedSequence([seed, epoch, rank]).generate_state(1, np.uint64)[0] >> 1))


def _epoch_pairs(
    pairs: np.ndarray, policy: str, shares: Shares | None, generator: np.random.Generator
) -> np.ndarray:
    """The (question, positive answer) pairs of one epoch, shuffled; with ``one``, one pair a question."""
    shuffled = pairs[generator.permutation(len(pairs))]
    if policy == "one":
        _, first = np.unique(shuffled[:, 0], return_index=True)
        shuffled = shuffled[np.sort(first)]
    return shuffled if shares is None else shares.sampled(shuffled)


def _blocks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
