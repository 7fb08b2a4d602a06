"""The training loop: plain torch, repeatable bit for bit on one number of threads.

Each epoch draws negatives anew, keeps the best-scored of each draw, takes gradient steps on the loss, and is
then judged on the dev split. The weights of the best epoch are what training returns.

All that an epoch draws follows from the seed, the epoch and nothing before it, so training goes on from the
state after any epoch as if it had never stopped. Where several processes train together (``ProcessGroup``) they draw
alike, and each takes its share of every minibatch.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aptool.config import TrainingOptions
from aptool.errors import AptoolError
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.models.words import WordEncoder
from aptool.progress import get_progress
from aptool.training.data import TrainingSet
from aptool.training.losses import loss
from aptool.training.negatives import NegativeSampler, hardest
from aptool.training.process_group import (
    SINGLE_PROCESS,
    MinibatchShard,
    ProcessGroup,
    add_gradients,
    gathered,
)


class State(NamedTuple):
    """Training after an epoch: all that going on needs.

    Attributes:
        history: one entry an epoch.
        best_epoch: the one with the best dev figure, 0 before the first.
        weights: as they stand now.
        best_weights: those of the best epoch.
        optimizers: what each optimizer remembers, as its ``state_dict`` has it.
    """

    history: list[dict[str, Any]]
    best_epoch: int
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]


class Trained(NamedTuple):
    """What training returns; the ranker itself holds the weights of the best epoch."""

    best_epoch: int
    history: list[dict[str, Any]]  # one entry an epoch


def train(
    ranker: Ranker,
    examples: TrainingSet,
    options: TrainingOptions,
    *,
    seed: int,
    evaluate: Callable[[Ranker], dict[str, float]],
    start: State | None = None,
    keep: Callable[[State], None] = lambda state: None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Trained:
    """Trains a ranker in place, on the device that it is on.

    Args:
        ranker: with fresh weights.
        examples: the training split.
        options: the procedure.
        seed: of shuffling, drawing and dropout.
        evaluate: dev measures of a ranker by name; ``options.dev_measure`` must be one of them.
        start: where to go on from; from the beginning if None.
        keep: given the state after each epoch, before its end is reported; to be written down before it
            returns.
        group: the processes that train together; each calls this with the same arguments.

    Raises:
        AptoolError: the loss is no longer a number, or there is no negative answer to train with.
    """
    sampler = NegativeSampler(examples, options.negatives, options.sampled_negatives, options.shared_draw)
    pairs = examples.pairs[sampler.trainable()[examples.pairs[:, 0]]]
    if not len(pairs):
        raise AptoolError(
            "training needs an answer that is not relevant: every answer is relevant to every question"
        )
    optimizers = _optimizers(ranker, options)
    history: list[dict[str, Any]] = []
    best_epoch, best_weights = 0, copy.deepcopy(ranker.state_dict())
    if start is not None:
        history, best_epoch, best_weights = list(start.history), start.best_epoch, start.best_weights
        ranker.load_state_dict(start.weights)
        for optimizer, remembered in zip(optimizers, start.optimizers, strict=True):
            optimizer.load_state_dict(remembered)
    with get_progress().task("train") as update:
        for epoch in range(len(history) + 1, options.epochs + 1):
            if options.patience and epoch - 1 - best_epoch >= options.patience:
                break
            started = time.perf_counter()
            generator = np.random.default_rng([seed, epoch])
            _seed_dropout(seed, epoch, group.rank)
            todo = _epoch_pairs(pairs, options.pairs, generator)
            total = active = mining = 0.0
            done = 0
            for round_ in _blocks(todo, options.minibatch * options.mining_interval):
                clock = time.perf_counter()
                if options.sampled_negatives:
                    drawn = sampler.draw(round_[:, 0], generator, options.minibatch)
                    mined = _mined(ranker, examples, round_[:, 0], drawn, options.hard_negatives, group)
                    round_ = np.column_stack([round_, mined])
                mining += time.perf_counter() - clock
                ranker.train()
                for batch in _blocks(round_, options.minibatch):
                    progress = (epoch - 1 + done / len(todo)) / options.epochs
                    rate = learning_rate(options, epoch, progress)
                    loss_here, active_here = _step(ranker, examples, batch, options, optimizers, rate, group)
                    done += len(batch)
                    total += loss_here
                    active += active_here
                    if not np.isfinite(total):
                        updates = (epoch - 1) * math.ceil(len(todo) / options.minibatch)
                        updates += math.ceil(done / options.minibatch)
                        raise AptoolError(
                            f"epoch {epoch}: the loss is {total} after {updates} updates: expected a number; "
                            "a lower training.learning_rate or a training.clip (such as 5) keeps it finite"
                        )
                    update(done, len(todo), f"pairs, epoch {epoch}, loss {total / done:.4f}")
            trained = time.perf_counter() - started
            measures = evaluate(ranker.eval())
            entry = {
                "epoch": epoch,
                "loss": total / done,
                "active": active / done,
                "learning_rate": learning_rate(options, epoch, epoch / options.epochs),
                "dev": measures,
                "seconds": {
                    "train": trained,
                    "mining": mining,
                    "dev": time.perf_counter() - started - trained,
                },
            }
            history.append(entry)
            if not best_epoch or measures[options.dev_measure] > _best(history, best_epoch, options):
                best_epoch, best_weights = epoch, copy.deepcopy(ranker.state_dict())
            remembered_now = [optimizer.state_dict() for optimizer in optimizers]
            keep(State(history, best_epoch, ranker.state_dict(), best_weights, remembered_now))
            get_progress().epoch(entry)
    ranker.load_state_dict(best_weights)
    return Trained(best_epoch, history)


def learning_rate(options: TrainingOptions, epoch: int, progress: float) -> float:
    """λ of an update.

    Args:
        options: with the schedule.
        epoch: counted from 1.
        progress: share of all epochs that is done, from 0 to 1.
    """
    if progress < options.warmup:
        return options.learning_rate * progress / options.warmup
    if options.schedule == "inverse":
        return options.learning_rate / epoch
    if options.schedule == "linear":
        return options.learning_rate * (1 - progress) / (1 - options.warmup)
    return options.learning_rate


def score_batch(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    in_batch: bool,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Tensor:
    """Scores of this process's share of a minibatch, each text encoded once.

    Args:
        ranker: in training mode or not.
        examples: the training set.
        batch: (n, 2 + k) question, positive answer and k negative answers, perhaps none.
        in_batch: score every answer of the minibatch, whoever encodes it, against every question.
        group: the processes that share the minibatch.

    Returns:
        (n', k) for the n' questions of the share: the positive answer in column 0, its negatives in the
        others, -inf where one is not.
    """
    device = next(ranker.parameters()).device
    share = MinibatchShard(group, len(batch))
    place = np.arange(len(batch))[share.rows]
    questions = ranker.encode(Ragged.of(examples.questions.take(batch[place, 0]), device))
    rows = batch[:, 1:].T.reshape(-1)  # positives, then negatives
    own = (np.arange(batch.shape[1] - 1)[:, None] * len(batch) + place).reshape(-1)  # of the share, in rows
    # Small pools are drawn from over and over: what is the same is worked out once.
    distinct, which = np.unique(rows[own], return_inverse=True)
    answers = ranker.encode(Ragged.of(examples.answers.take(distinct), device))
    index = torch.arange(len(place), device=device)
    if not in_batch:
        columns = batch.shape[1] - 1
        every = np.tile(np.arange(len(place)), columns) * len(distinct) + which
        pairs, again = (torch.from_numpy(some).to(device) for some in np.unique(every, return_inverse=True))
        of_pair, answer_of_pair = pairs // len(distinct), pairs % len(distinct)
        scores = ranker.score_pairs(questions.select(of_pair), answers.select(answer_of_pair))
        return scores[again].view(columns, -1).T
    answers = answers.select(torch.from_numpy(which).to(device))
    if not share.whole:
        lengths = torch.from_numpy(examples.answers.lengths[rows]).to(device)
        answers = gathered(group, answers, lengths, torch.from_numpy(own).to(device))
    scores = ranker.score_matrix(questions, answers)  # (n', n (1 + k))
    relevant = torch.from_numpy(examples.positives.contain(batch[place, 0], rows)).to(device)
    right = scores[index, torch.from_numpy(place).to(device), None]
    return torch.cat([right, scores.masked_fill(relevant, -torch.inf)], dim=1)


def _step(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    options: TrainingOptions,
    optimizers: list[torch.optim.Optimizer],
    rate: float,
    group: ProcessGroup,
) -> tuple[float, float]:
    """One update by the mean loss of a minibatch; the sum of its losses, and how many were not zero."""
    losses = loss(score_batch(ranker, examples, batch, options.in_batch, group), options)
    weight = MinibatchShard(group, len(batch)).weight
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    (losses.sum() * (weight / len(batch))).backward()
    losses = losses.detach()
    totals = torch.stack([losses.sum(), (losses > 0).sum().to(losses.dtype)]) * weight
    totals = add_gradients(group, [one for one in ranker.parameters() if one.requires_grad], totals)
    if options.clip:
        clip_gradients(ranker, options.clip)
    for optimizer in optimizers:
        for parameters in optimizer.param_groups:
            parameters["lr"] = rate
        optimizer.step()
    summed, active = totals.tolist()
    return summed, active


def _mined(
    ranker: Ranker,
    examples: TrainingSet,
    questions: np.ndarray,
    drawn: np.ndarray,
    hard_negatives: int,
    group: ProcessGroup,
) -> np.ndarray:
    """(n, hard_negatives) int64: the best-scored of the (n, draws) answers drawn for each question.

    Each process finds those of its share of the questions.
    """
    part = group.part(len(questions))
    chosen = np.zeros((len(questions), min(hard_negatives, drawn.shape[1])), dtype=np.int64)
    if part.start < part.stop:
        chosen[part] = hardest(ranker.eval(), examples, questions[part], drawn[part], hard_negatives)
    device = next(ranker.parameters()).device
    return group.all_reduce(torch.from_numpy(chosen).to(device)).cpu().numpy()


def _seed_dropout(seed: int, epoch: int, rank: int) -> None:
    """Dropout of an epoch follows from these three, whatever was drawn before."""
    torch.manual_seed(int(np.random.SeedSequence([seed, epoch, rank]).generate_state(1, np.uint64)[0] >> 1))


def _best(history: list[dict[str, Any]], best_epoch: int, options: TrainingOptions) -> float:
    return float(history[best_epoch - 1]["dev"][options.dev_measure])


def clip_gradients(ranker: nn.Module, largest: float) -> None:
    """Scales the gradient down to the norm ``largest``; unlike torch's own, sparse parts count as well."""
    gradients = []
    for parameter in ranker.parameters():
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad)
    parts = [(grad.values() if grad.is_sparse else grad).norm() for grad in gradients]
    norm = float(torch.stack(parts).norm())
    if norm > largest:
        for grad in gradients:
            grad.mul_(largest / norm)


def _optimizers(ranker: Ranker, options: TrainingOptions) -> list[torch.optim.Optimizer]:
    """SGD takes sparse gradients as they come; Adam needs its own variant for the embeddings.

    Raises:
        AptoolError: the recipe leaves nothing to train.
    """
    trained = [parameter for parameter in ranker.parameters() if parameter.requires_grad]
    if not trained:
        if options.epochs:
            raise AptoolError(
                "nothing of this system is trained: expected encoder.tune=all or last, a pooling with "
                "weights, or training.epochs=0 to use it as it is"
            )
        return []
    if options.optimizer == "sgd":
        return [torch.optim.SGD(trained, lr=options.learning_rate)]
    embeddings = [part.embedding.weight for part in ranker.modules() if isinstance(part, WordEncoder)]
    sparse = [parameter for parameter in trained if any(parameter is weight for weight in embeddings)]
    dense = [parameter for parameter in trained if not any(parameter is weight for weight in embeddings)]
    optimizers: list[torch.optim.Optimizer] = []
    if options.optimizer == "adamw":
        kinds = [[one for one in dense if one.dim() > 1], [one for one in dense if one.dim() < 2]]
        groups = [
            {"params": some, "weight_decay": decay}
            for some, decay in zip(kinds, (options.weight_decay, 0.0), strict=True)
            if some
        ]
        optimizers.append(torch.optim.AdamW(groups, lr=options.learning_rate, fused=True))
    elif dense:
        optimizers.append(torch.optim.Adam(dense, lr=options.learning_rate))
    if sparse:
        optimizers.append(torch.optim.SparseAdam(sparse, lr=options.learning_rate))
    return optimizers


def _epoch_pairs(pairs: np.ndarray, policy: str, generator: np.random.Generator) -> np.ndarray:
    """The (question, positive answer) pairs of one epoch, shuffled."""
    shuffled = pairs[generator.permutation(len(pairs))]
    if policy == "one":
        _, first = np.unique(shuffled[:, 0], return_index=True)
        return shuffled[np.sort(first)]
    return shuffled


def _blocks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
