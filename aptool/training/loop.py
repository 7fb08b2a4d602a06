"""The training loop: plain torch, reproducible to the bit with a fixed number of threads.

Each epoch samples negatives, mines the hardest ones, takes gradient steps on the loss, and is evaluated on
the dev split. The result is the weights of the best epoch, or the average over the last epochs.

The seed and the number of an epoch decide its random choices, so resumed training ends in the same weights as
uninterrupted training; within an epoch, the states of random generators are saved too. All processes of a
group draw the same samples, and each takes its shard of every minibatch.
"""

import copy
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.config import CHECKPOINT_MINUTES, TrainingOptions
from aptool.errors import AptoolError, counted
from aptool.models.device import memory_for, repeatable_sums
from aptool.models.ranker import Ranker
from aptool.progress import Bar, measures_line, progress
from aptool.training.checkpoint import (
    CheckpointTimer,
    EpochState,
    TrainingState,
    dropout_states,
    restore_dropout,
    seed_dropout,
)
from aptool.training.data import TrainingSet
from aptool.training.losses import NegativeSampler, batch_losses, mine
from aptool.training.optimization import (
    build_optimizers,
    clip_gradients,
    learning_rate,
    take_step,
    trainable_parameters,
)
from aptool.training.process_group import SINGLE_PROCESS, MinibatchShard, ProcessGroup, all_reduce_gradients

logger = logging.getLogger(__name__)

MEMORY_HINT = "a smaller training.minibatch, with training.accumulate for the same updates, or --device cpu"

# Updates between two reads of the loss from a GPU, which block the host.
UPDATES_PER_READ = 50

# Seconds of updates, after the first ones, from which the duration of a training is estimated.
ESTIMATE_SECONDS = 10.0


@dataclass(frozen=True)
class _Context:
    """Objects that all epochs share."""

    ranker: Ranker
    examples: TrainingSet
    options: TrainingOptions
    seed: int
    group: ProcessGroup
    pairs: np.ndarray  # (n, 2) question and positive answer, of questions that have a negative answer
    sampler: NegativeSampler
    optimizers: list[torch.optim.Optimizer]
    timer: CheckpointTimer

    @property
    def device(self) -> torch.device:
        """The ranker's device."""
        return next(self.ranker.parameters()).device


class Trained(NamedTuple):
    """The result of training; the weights are in the ranker."""

    best_epoch: int  # the last epoch if weights are averaged
    history: list[dict[str, Any]]  # one entry per epoch
    dev: dict[str, float]  # measures of the resulting weights


@memory_for("training", MEMORY_HINT)
def train(
    ranker: Ranker,
    examples: TrainingSet,
    options: TrainingOptions,
    *,
    seed: int,
    evaluate: Callable[[Ranker], dict[str, float]],
    resume_from: TrainingState | None = None,
    save: Callable[[TrainingState], None] = lambda state: None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
    group: ProcessGroup = SINGLE_PROCESS,
    is_preempted: Callable[[], bool] | None = None,
) -> Trained:
    """Train a ranker in place, on its device.

    ``evaluate`` returns dev measures by name, including ``options.dev_measure``. ``save`` is called with the
    state after each epoch, before the epoch is reported, and within epochs: every ``checkpoint_minutes`` (0:
    never), on SIGTERM before the signal takes effect, and while ``is_preempted`` says that a machine of the
    group is about to be taken away. The processes of a group call this with the same arguments, and the
    functions after the same updates.
    """
    sampler = NegativeSampler(examples, options.negatives, options.sampled_negatives)
    pairs = examples.pairs[sampler.trainable()[examples.pairs[:, 0]]]
    if not len(pairs):
        raise AptoolError("training needs negatives: every answer is relevant to every question")
    optimizers = build_optimizers(ranker, options)
    timer = CheckpointTimer(checkpoint_minutes, is_preempted)
    context = _Context(ranker, examples, options, seed, group, pairs, sampler, optimizers, timer)
    history: list[dict[str, Any]] = []
    best_epoch, best_weights = 0, copy.deepcopy(ranker.state_dict())
    within = None
    if resume_from is not None:
        within = resume_from.within
        history, best_epoch = list(resume_from.history), resume_from.best_epoch
        ranker.load_state_dict(resume_from.weights)
        best_weights = {name: weight.to(context.device) for name, weight in resume_from.best_weights.items()}
        for optimizer, state in zip(optimizers, resume_from.optimizers, strict=True):
            optimizer.load_state_dict(state)

    def save_now(within: EpochState | None = None) -> None:
        states = [optimizer.state_dict() for optimizer in optimizers]
        save(TrainingState(history, best_epoch, ranker.state_dict(), best_weights, states, within))
        timer.restart()
        timer.terminate()

    first = len(history) + 1
    pairs_per_epoch = len(np.unique(pairs[:, 0])) if options.pairs == "one" else len(pairs)
    with repeatable_sums(context.device, options.deterministic), timer.deferring_termination():
        for epoch in range(first, options.epochs + 1):
            if options.patience and epoch - 1 - best_epoch >= options.patience:
                break
            name, resumed = f"train: epoch {epoch} of {options.epochs}", within.pairs if within else 0
            with progress(name, pairs_per_epoch, "pairs", resumed) as bar:
                loss, active, seconds = _train_epoch(
                    context, epoch, within, save_now, bar, estimates=epoch == first
                )
            within = None
            trained = time.perf_counter()
            measures = evaluate(ranker.eval())
            seconds["dev"] = time.perf_counter() - trained
            entry = {
                "epoch": epoch,
                "loss": loss,
                "active": active,
                "learning_rate": learning_rate(options, epoch, epoch / options.epochs),
                "dev": measures,
                "seconds": seconds,
            }
            history.append(entry)
            best = history[best_epoch - 1]["dev"][options.dev_measure] if best_epoch else -math.inf
            if options.average_epochs:
                best_epoch = epoch
                _average(best_weights, ranker.state_dict(), epoch - options.epochs + options.average_epochs)
            elif measures[options.dev_measure] > best:
                best_epoch, best_weights = epoch, copy.deepcopy(ranker.state_dict())
            save_now()
            took = seconds["train"] + seconds["dev"]  # training includes mining
            logger.info(f"epoch {epoch}: loss {loss:.4f}, dev {measures_line(measures)}, {took:.0f} s")
    ranker.load_state_dict(best_weights)
    # The history lacks the measures of an average and of untrained weights.
    in_history = best_epoch and options.average_epochs < 2
    dev = history[best_epoch - 1]["dev"] if in_history else evaluate(ranker.eval())
    return Trained(best_epoch, history, dev)


def _train_epoch(
    context: _Context,
    epoch: int,
    resume_from: EpochState | None,
    save: Callable[[EpochState], None],
    bar: Bar,
    *,
    estimates: bool,
) -> tuple[float, float, dict[str, float]]:
    """Take the remaining gradient steps of an epoch; ``estimates`` logs how long the epochs will take.

    Returns the mean loss, the fraction of pairs with a nonzero loss, and the seconds of ``train`` and of its
    part ``mining``.
    """
    start = time.perf_counter()
    ranker, options, group, device = context.ranker, context.options, context.group, context.device
    generator = np.random.default_rng([context.seed, epoch])
    seed_dropout(device, context.seed, epoch, group.rank)
    pairs = _epoch_pairs(context.pairs, options.pairs, generator)
    updates_per_read = 1 if device.type == "cpu" else UPDATES_PER_READ
    totals = torch.zeros(2, dtype=torch.float64, device=device)  # sum of losses, number of nonzero losses
    total = active = mining = 0.0
    done = updates = 0
    block = pairs[:0]
    if resume_from is not None:
        done, updates, mining = resume_from.pairs, resume_from.updates, resume_from.mining_seconds
        totals.copy_(torch.tensor(resume_from.losses, dtype=torch.float64))
        start -= resume_from.train_seconds
        generator.bit_generator.state = resume_from.sampling
        block = resume_from.sampled.numpy()
        if len(resume_from.dropout) == group.size:
            restore_dropout(resume_from.dropout[group.rank], device)
        else:
            seed_dropout(device, context.seed, epoch, group.rank, updates)
    ranker.train()
    size = options.minibatch * options.accumulate  # questions per update
    shown = done  # pairs on the bar
    warm: tuple[float, int] | None = None  # seconds without mining, and pairs, after the first updates
    while done < len(pairs):
        if not len(block):
            block = pairs[done : done + (size * options.mining_interval or len(pairs))]
            mining_start = time.perf_counter()
            if options.sampled_negatives:
                is_sampled = options.negatives != "all"
                negatives = context.sampler.sample(block[:, 0], generator) if is_sampled else None
                mined = mine(ranker, context.examples, block[:, 0], negatives, options.hard_negatives, group)
                block = np.column_stack([block, mined])
            mining += time.perf_counter() - mining_start
            ranker.train()
        batch, block = block[:size], block[size:]
        share = (epoch - 1 + done / len(pairs)) / options.epochs
        rate = learning_rate(options, epoch, share)
        totals.add_(_step(context, batch, rate))
        done += len(batch)
        updates += 1
        if updates % updates_per_read and done < len(pairs):
            continue
        total, active = totals.tolist()
        if not math.isfinite(total):
            updates += (epoch - 1) * math.ceil(len(pairs) / size)
            raise AptoolError(
                f"training diverged in epoch {epoch}: the loss is {total} after {updates} updates; "
                "expected a lower training.learning_rate, or a training.clip such as 5"
            )
        bar.set_postfix_str(f"loss {total / done:.4f}", refresh=False)
        bar.update(done - shown)
        shown = done
        now = time.perf_counter() - mining
        if warm is None:
            warm = now, done
        elif estimates and now - warm[0] >= ESTIMATE_SECONDS:
            estimates = False
            speed, fraction = (done - warm[1]) / (now - warm[0]), (done + len(block)) / len(pairs)
            logger.info(estimate(options.epochs - epoch + 1, len(pairs), speed, mining / fraction))
        if done < len(pairs) and context.timer.is_due(group):
            state = EpochState(
                pairs=done,
                updates=updates,
                losses=(total, active),
                train_seconds=time.perf_counter() - start,
                mining_seconds=mining,
                sampling=generator.bit_generator.state,
                sampled=torch.from_numpy(block),
                dropout=dropout_states(group, device),
            )
            save(state)
    return total / done, active / done, {"train": time.perf_counter() - start, "mining": mining}


def estimate(epochs: int, pairs: int, speed: float, mining: float) -> str:
    """How long epochs take, from pairs per epoch, pairs per second, and seconds of mining per epoch."""
    duration = timedelta(seconds=round(epochs * (pairs / speed + mining)))
    shown = f"{speed:,.{0 if speed >= 10 else 1}f} pairs/s"
    shorter = "fewer training.epochs or training.sampled_negatives, or a sample, take less"
    return f"about {duration} for {counted(epochs, 'epoch')} of {counted(pairs, 'pair')}, {shown}; {shorter}"


def _step(context: _Context, batch: np.ndarray, rate: float) -> Tensor:
    """Update the weights by the mean loss of a batch of minibatches.

    Returns:
        (2,) sum of losses and number of nonzero losses, over all processes.
    """
    ranker, options, group = context.ranker, context.options, context.group
    for optimizer in context.optimizers:
        optimizer.zero_grad(set_to_none=True)
    parts = []
    for minibatch in np.split(batch, range(options.minibatch, len(batch), options.minibatch)):
        losses = batch_losses(ranker, context.examples, minibatch, options, group)
        weight = MinibatchShard(group, len(minibatch)).weight
        (losses.sum() * (weight / len(batch))).backward()
        losses = losses.detach()
        parts.append(torch.stack([losses.sum(), (losses > 0).sum().to(losses.dtype)]) * weight)
    totals = all_reduce_gradients(group, trainable_parameters(ranker), torch.stack(parts).sum(0))
    if options.clip:
        clip_gradients(ranker, options.clip)
    take_step(context.optimizers, rate)
    return totals


def _average(average: dict[str, Tensor], weights: dict[str, Tensor], number: int) -> None:
    """Make ``average`` the mean of the ``number`` latest weights; 1 or less starts again."""
    for name, value in weights.items():
        if number > 1 and value.is_floating_point():
            average[name].lerp_(value, 1 / number)
        else:
            average[name].copy_(value)


def _epoch_pairs(pairs: np.ndarray, policy: str, generator: np.random.Generator) -> np.ndarray:
    """Shuffle the (question, positive answer) pairs; the policy ``one`` keeps one pair per question."""
    shuffled = pairs[generator.permutation(len(pairs))]
    if policy == "one":
        _, first = np.unique(shuffled[:, 0], return_index=True)
        shuffled = shuffled[np.sort(first)]
    return shuffled
