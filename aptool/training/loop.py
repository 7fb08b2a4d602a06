"""The training loop: plain torch, one process, repeatable bit for bit on one number of threads.

Each epoch draws negatives anew, keeps the best-scored of each draw, takes gradient steps on the hinge loss,
and is then judged on the dev split. The weights of the best epoch are what training returns.
"""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aptool.config import TrainingOptions
from aptool.errors import AptoolError
from aptool.models.encoders import WordEncoder
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.training.examples import TrainingSet
from aptool.training.losses import loss
from aptool.training.negatives import NegativeSampler, hardest


class Progress(NamedTuple):
    """How far training is, told after every minibatch."""

    epoch: int
    pairs: int  # trained on in this epoch
    pairs_in_epoch: int
    loss: float  # mean over the epoch so far


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
    report: Callable[[Progress], None] = lambda progress: None,
    finished: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> Trained:
    """Trains a ranker in place.

    Args:
        ranker: with fresh weights.
        examples: the training split.
        options: the procedure.
        seed: of shuffling, drawing and dropout.
        evaluate: dev measures of a ranker by name; ``options.dev_measure`` must be one of them.
        report: told of progress within an epoch.
        finished: told each epoch's entry of the history.

    Raises:
        AptoolError: the loss is no longer a number, or there is no negative answer to train with.
    """
    torch.manual_seed(seed)
    sampler = NegativeSampler(examples, options.negatives, options.draws)
    pairs = examples.pairs[sampler.trainable()[examples.pairs[:, 0]]]
    if not len(pairs):
        raise AptoolError(
            "training needs an answer that is not relevant: every answer is relevant to every question"
        )
    optimizers = _optimizers(ranker, options)
    history: list[dict[str, Any]] = []
    best, best_epoch, best_weights = -1.0, 0, copy.deepcopy(ranker.state_dict())
    updates = 0
    for epoch in range(1, options.epochs + 1):
        started = time.perf_counter()
        generator = np.random.default_rng([seed, epoch])
        todo = _epoch_pairs(pairs, options.pairs, generator)
        total = active = 0.0
        done = 0
        mining = 0.0
        for round_ in _blocks(todo, options.minibatch * options.refresh):
            clock = time.perf_counter()
            if options.draws:
                drawn = sampler.draw(round_[:, 0], generator)
                negatives = hardest(ranker.eval(), examples, round_[:, 0], drawn, options.keep)
                round_ = np.column_stack([round_, negatives])
            mining += time.perf_counter() - clock
            ranker.train()
            for batch in _blocks(round_, options.minibatch):
                progress = (epoch - 1 + done / len(todo)) / options.epochs
                rate = learning_rate(options, epoch, progress)
                losses = _step(ranker, examples, batch, options, optimizers, rate)
                updates += 1
                done += len(batch)
                total += float(losses.sum())
                active += float((losses > 0).sum())
                if not np.isfinite(total):
                    raise AptoolError(
                        f"epoch {epoch}: the loss is {total} after {updates} updates: expected a number; "
                        "a lower training.learning_rate or a training.clip (such as 5) keeps it finite"
                    )
                report(Progress(epoch, done, len(todo), total / done))
        trained = time.perf_counter() - started
        ranker.eval()
        measures = evaluate(ranker)
        entry = {
            "epoch": epoch,
            "loss": total / done,
            "active": active / done,
            "learning_rate": learning_rate(options, epoch, epoch / options.epochs),
            "dev": measures,
            "seconds": {"train": trained, "mining": mining, "dev": time.perf_counter() - started - trained},
        }
        history.append(entry)
        finished(entry)
        if measures[options.dev_measure] > best:
            best, best_epoch = measures[options.dev_measure], epoch
            best_weights = copy.deepcopy(ranker.state_dict())
        elif options.patience and epoch - best_epoch >= options.patience:
            break
    ranker.load_state_dict(best_weights)
    return Trained(best_epoch, history)


def learning_rate(options: TrainingOptions, epoch: int, progress: float) -> float:
    """λ of an update.

    Args:
        options: with the schedule.
        epoch: counted from 1.
        progress: share of all epochs that is done, from 0 to 1.
    """
    if options.schedule == "inverse":
        return options.learning_rate / epoch
    if options.schedule == "linear":
        return options.learning_rate * (1 - progress)
    return options.learning_rate


def score_batch(ranker: Ranker, examples: TrainingSet, batch: np.ndarray, in_batch: bool) -> Tensor:
    """Scores of a minibatch, each text encoded once.

    Args:
        ranker: in training mode or not.
        examples: the training set.
        batch: (n, 2 + k) question, positive answer and k negative answers, maybe none.
        in_batch: score every answer of the minibatch against every question.

    Returns:
        (n, k): the positive answer in column 0, its negatives in the others, -inf where one is not.
    """
    questions = ranker.encode(Ragged.of(examples.questions.take(batch[:, 0])))
    rows = batch[:, 1:].T.reshape(-1)  # positives, then negatives
    answers = ranker.encode(Ragged.of(examples.answers.take(rows)))
    own = torch.arange(len(batch))
    if not in_batch:
        columns = batch.shape[1] - 1
        return ranker.compare(questions.select(own.repeat(columns)), answers).view(columns, -1).T
    scores = ranker.compare_all(questions, answers)  # (n, n (1 + k))
    relevant = torch.from_numpy(examples.positives.contain(batch[:, 0], rows))
    return torch.cat([scores[own, own, None], scores.masked_fill(relevant, -torch.inf)], dim=1)


def _step(
    ranker: Ranker,
    examples: TrainingSet,
    batch: np.ndarray,
    options: TrainingOptions,
    optimizers: list[torch.optim.Optimizer],
    rate: float,
) -> Tensor:
    losses = loss(score_batch(ranker, examples, batch, options.in_batch), options)
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    losses.mean().backward()
    if options.clip:
        clip_gradients(ranker, options.clip)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return losses.detach()


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
    """SGD takes sparse gradients as they come; Adam needs its own variant for the embeddings."""
    trained = [parameter for parameter in ranker.parameters() if parameter.requires_grad]
    if options.optimizer == "sgd":
        return [torch.optim.SGD(trained, lr=options.learning_rate)]
    embeddings = [part.embedding.weight for part in ranker.modules() if isinstance(part, WordEncoder)]
    sparse = [parameter for parameter in trained if any(parameter is weight for weight in embeddings)]
    dense = [parameter for parameter in trained if not any(parameter is weight for weight in embeddings)]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam(dense, lr=options.learning_rate)]
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
