"""The training loop: plain torch, reproducible to the bit with a fixed number of threads.

Each epoch samples negatives, mines the hardest ones, takes gradient steps on the loss, and is evaluated on
the dev split. The result is the weights of the best epoch, or the average over the last epochs.

The seed and the number of an epoch decide its random choices, so resumed training ends in the same weights as
uninterrupted training; within an epoch, the states of random generators are saved too. All processes of a
group draw the same samples, and each takes its shard of every minibatch.
"""

import logging
import math
import time
from collections.abc import Generator, Iterator
from datetime import timedelta
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aptool.config import TrainingOptions
from aptool.errors import AptoolError, counted
from aptool.models.build import Ranker
from aptool.models.device import memory_for, repeatable_sums
from aptool.models.encoders import WordEncoder
from aptool.progress import measures_line, progress
from aptool.training.checkpoint import (
    CheckpointTimer,
    EpochState,
    TrainingState,
    dropout_states,
    restore_dropout,
    seed_dropout,
)
from aptool.training.data import DevSet, TrainingSet
from aptool.training.losses import NegativeSampler, batch_losses, mine
from aptool.training.process_group import SINGLE_PROCESS, MinibatchShard, ProcessGroup, all_reduce_gradients

logger = logging.getLogger(__name__)

MEMORY_HINT = "a smaller training.minibatch, with training.accumulate for the same updates, or --device cpu"

# Updates between two reads of the loss from a GPU, which block the host.
UPDATES_PER_READ = 50

# Key of a parameter group: the factor of its learning rate.
RELATIVE_RATE = "relative_rate"

# Seconds of updates, after the first ones, from which the duration of a training is estimated.
ESTIMATE_SECONDS = 10.0


class Training:
    """A training of a ranker in place, on its device, in every process of a group.

    Attributes:
        history: one entry per complete epoch.
        best_epoch: the best epoch on the dev split, from 1; the last one if weights are averaged.
    """

    def __init__(
        self,
        ranker: Ranker,
        examples: TrainingSet,
        dev: DevSet,
        options: TrainingOptions,
        seed: int,
        *,
        resume_from: TrainingState | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
        timer: CheckpointTimer | None = None,
    ) -> None:
        """Prepare a training, or its continuation; ``timer`` says when a state within an epoch is due."""
        self.ranker, self.examples, self.options, self.group = ranker, examples, options, group
        self.sampler = NegativeSampler(examples, options.negatives, options.sampled_negatives)
        # (n, 2) question and positive answer, of questions that have a negative answer
        self.pairs = examples.pairs[self.sampler.trainable()[examples.pairs[:, 0]]]
        if not len(self.pairs):
            raise AptoolError("training needs negatives: every answer is relevant to every question")
        self.optimizers = build_optimizers(ranker, options)
        self.history: list[dict[str, Any]] = []
        self.best_epoch = 0
        self.device = next(ranker.parameters()).device
        self._dev, self._seed, self._timer = dev, seed, timer
        self._within: EpochState | None = None
        if resume_from is not None:
            self._within = resume_from.within
            self.history, self.best_epoch = list(resume_from.history), resume_from.best_epoch
            ranker.load_state_dict(resume_from.weights)
            for optimizer, state in zip(self.optimizers, resume_from.optimizers, strict=True):
                optimizer.load_state_dict(state)
        best = ranker.state_dict() if resume_from is None else resume_from.best_weights
        self._best_weights = {name: weight.to(self.device, copy=True) for name, weight in best.items()}

    def states(self) -> Iterator[TrainingState]:
        """Train the remaining epochs; yield the state after each epoch, and whenever one within it is due.

        An epoch is reported after its state was taken. The processes of a group get the states after the same
        updates.
        """
        options, first = self.options, len(self.history) + 1
        with memory_for("training", MEMORY_HINT), repeatable_sums(self.device, options.deterministic):
            for epoch in range(first, options.epochs + 1):
                if options.patience and epoch - 1 - self.best_epoch >= options.patience:
                    break
                entry = yield from self._epoch(epoch, estimates=epoch == first)
                self._within = None
                trained = time.perf_counter()
                measures = self._measures()
                entry["dev"] = measures
                entry["seconds"]["dev"] = time.perf_counter() - trained
                self._keep_best(epoch, measures[options.dev_measure])
                self.history.append(entry)
                yield self._state()
                took = entry["seconds"]["train"] + entry["seconds"]["dev"]  # training includes mining
                logger.info(
                    f"epoch {epoch}: loss {entry['loss']:.4f}, dev {measures_line(measures)}, {took:.0f} s"
                )

    def finish(self) -> dict[str, float]:
        """Set the weights of the result; return its dev measures."""
        self.ranker.load_state_dict(self._best_weights)
        # The history lacks the measures of an average and of untrained weights.
        in_history = self.best_epoch and self.options.average_epochs < 2
        return self.history[self.best_epoch - 1]["dev"] if in_history else self._measures()

    def _measures(self) -> dict[str, float]:
        return self._dev.measures(self.ranker.eval(), self.options.dev_measure, self.group)

    def _state(self, within: EpochState | None = None) -> TrainingState:
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        weights = self.ranker.state_dict()
        return TrainingState(self.history, self.best_epoch, weights, self._best_weights, optimizers, within)

    def _keep_best(self, epoch: int, measure: float) -> None:
        """Keep the weights after an epoch if they are the best ones, or average them with the last ones."""
        options = self.options
        best = self.history[self.best_epoch - 1]["dev"][options.dev_measure] if self.best_epoch else -math.inf
        # Number of the epoch among those that are averaged.
        number = epoch - options.epochs + options.average_epochs if options.average_epochs else 0
        if options.average_epochs or measure > best:
            self.best_epoch = epoch
            for name, weight in self.ranker.state_dict().items():
                if number > 1 and weight.is_floating_point():
                    self._best_weights[name].lerp_(weight, 1 / number)
                else:
                    self._best_weights[name].copy_(weight)

    def _epoch(self, epoch: int, *, estimates: bool) -> Generator[TrainingState, None, dict[str, Any]]:
        """Take the remaining gradient steps of an epoch; ``estimates`` logs how long the epochs will take.

        Yields the states within the epoch. Returns its entry of the history, without dev measures.
        """
        start = time.perf_counter()
        ranker, options, group, device = self.ranker, self.options, self.group, self.device
        generator = np.random.default_rng([self._seed, epoch])
        seed_dropout(device, self._seed, epoch, group.rank)
        pairs = _epoch_pairs(self.pairs, options.pairs, generator)
        updates_per_read = 1 if device.type == "cpu" else UPDATES_PER_READ
        totals = torch.zeros(2, dtype=torch.float64, device=device)  # sum of losses, number of nonzero losses
        total = active = mining = 0.0
        done = updates = 0
        block = pairs[:0]
        if self._within is not None:
            within = self._within
            done, updates, mining = within.pairs, within.updates, within.mining_seconds
            totals.copy_(torch.tensor(within.losses, dtype=torch.float64))
            start -= within.train_seconds
            generator.bit_generator.state = within.sampling
            block = within.sampled.numpy()
            if len(within.dropout) == group.size:
                restore_dropout(within.dropout[group.rank], device)
            else:
                seed_dropout(device, self._seed, epoch, group.rank, updates)
        ranker.train()
        size = options.minibatch * options.accumulate  # questions per update
        shown = done  # pairs on the bar
        warm: tuple[float, int] | None = None  # seconds without mining, and pairs, after the first updates
        with progress(f"train: epoch {epoch} of {options.epochs}", len(pairs), "pairs", done) as bar:
            while done < len(pairs):
                if not len(block):
                    block = pairs[done : done + (size * options.mining_interval or len(pairs))]
                    mining_start = time.perf_counter()
                    block = self._mined(block, generator)
                    mining += time.perf_counter() - mining_start
                batch, block = block[:size], block[size:]
                share = (epoch - 1 + done / len(pairs)) / options.epochs
                totals.add_(_step(self, batch, learning_rate(options, epoch, share)))
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
                if done < len(pairs) and self._timer is not None and self._timer.is_due(group):
                    yield self._state(
                        EpochState(
                            pairs=done,
                            updates=updates,
                            losses=(total, active),
                            train_seconds=time.perf_counter() - start,
                            mining_seconds=mining,
                            sampling=generator.bit_generator.state,
                            sampled=torch.from_numpy(block),
                            dropout=dropout_states(group, device),
                        )
                    )
        return {
            "epoch": epoch,
            "loss": total / done,
            "active": active / done,
            "learning_rate": learning_rate(options, epoch, epoch / options.epochs),
            "dev": {},
            "seconds": {"train": time.perf_counter() - start, "mining": mining},
        }

    def _mined(self, block: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Add (n, k) negatives to the (n, 2) pairs of a block."""
        options = self.options
        if not options.sampled_negatives:
            return block
        questions = block[:, 0]
        is_sampled = options.negatives != "all"
        negatives = self.sampler.sample(questions, generator) if is_sampled else None
        mined = mine(self.ranker, self.examples, questions, negatives, options.hard_negatives, self.group)
        self.ranker.train()
        return np.column_stack([block, mined])


def estimate(epochs: int, pairs: int, speed: float, mining: float) -> str:
    """How long epochs take, from pairs per epoch, pairs per second, and seconds of mining per epoch."""
    duration = timedelta(seconds=round(epochs * (pairs / speed + mining)))
    shown = f"{speed:,.{0 if speed >= 10 else 1}f} pairs/s"
    shorter = "fewer training.epochs or training.sampled_negatives, or a sample, take less"
    return f"about {duration} for {counted(epochs, 'epoch')} of {counted(pairs, 'pair')}, {shown}; {shorter}"


def _step(training: Training, batch: np.ndarray, rate: float) -> Tensor:
    """Update the weights by the mean loss of a batch of minibatches.

    Returns:
        (2,) sum of losses and number of nonzero losses, over all processes.
    """
    ranker, options, group = training.ranker, training.options, training.group
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=True)
    parts = []
    for minibatch in np.split(batch, range(options.minibatch, len(batch), options.minibatch)):
        losses = batch_losses(ranker, training.examples, minibatch, options, group)
        weight = MinibatchShard(group, len(minibatch)).weight
        total, active = losses.sum(), (losses > 0).sum(dtype=losses.dtype)
        (total * (weight / len(batch))).backward()
        parts.append(torch.stack([total.detach(), active]) * weight)
    totals = all_reduce_gradients(group, trainable_parameters(ranker), reduce(torch.add, parts))
    if options.clip:
        clip_gradients(ranker, options.clip)
    for optimizer in training.optimizers:
        for parameters in optimizer.param_groups:
            parameters["lr"] = rate * parameters.get(RELATIVE_RATE, 1.0)
        optimizer.step()
    return totals


def _epoch_pairs(pairs: np.ndarray, policy: str, generator: np.random.Generator) -> np.ndarray:
    """Shuffle the (question, positive answer) pairs; the policy ``one`` keeps one pair per question."""
    shuffled = pairs[generator.permutation(len(pairs))]
    if policy == "one":
        _, first = np.unique(shuffled[:, 0], return_index=True)
        shuffled = shuffled[np.sort(first)]
    return shuffled


def build_optimizers(ranker: Ranker, options: TrainingOptions) -> list[torch.optim.Optimizer]:
    """Build the optimizers of a ranker's trainable parameters.

    On a CPU the gradients of word embeddings are sparse, which Adam does not support: they get a separate
    optimizer. On a GPU sparse gradients would block the host, so they are dense, and `LazyAdam` updates them.
    """
    trainable = trainable_parameters(ranker)
    if not trainable:
        if options.epochs:
            raise AptoolError(
                "no parameter of this system is trainable: expected encoder.tune=all, a pooling with "
                "weights, or training.epochs=0 to use it untrained"
            )
        return []
    word_encoders = [part for part in ranker.modules() if isinstance(part, WordEncoder)]
    on_gpu = trainable[0].is_cuda
    for part in word_encoders:
        part.embedding.sparse = not on_gpu
    embeddings = {id(part.embedding.weight) for part in word_encoders}
    sparse = [parameter for parameter in trainable if id(parameter) in embeddings]
    dense = [parameter for parameter in trainable if id(parameter) not in embeddings]
    word_vectors = [{"params": sparse, RELATIVE_RATE: options.embedding_rate}] if sparse else []
    if options.optimizer == "sgd":
        groups: list[dict[str, Any]] = [{"params": dense}, *word_vectors]
        return [torch.optim.SGD(groups, lr=options.learning_rate)]
    optimizers: list[torch.optim.Optimizer] = []
    if dense and options.optimizer == "adamw":
        matrices = [parameter for parameter in dense if parameter.dim() > 1]
        vectors = [parameter for parameter in dense if parameter.dim() < 2]  # biases, norms
        decays = ((matrices, options.weight_decay), (vectors, 0.0))
        groups = [{"params": part, "weight_decay": decay} for part, decay in decays if part]
        optimizers.append(torch.optim.AdamW(groups, lr=options.learning_rate, fused=True))
    elif dense:
        optimizers.append(torch.optim.Adam(dense, lr=options.learning_rate, fused=on_gpu))
    if sparse:
        lazy = LazyAdam if on_gpu else torch.optim.SparseAdam
        optimizers.append(lazy(word_vectors, lr=options.learning_rate))
    return optimizers


class LazyAdam(torch.optim.Optimizer):
    """``torch.optim.SparseAdam`` for dense gradients: rows of zeros keep weights and moments.

    SparseAdam also updates the row of a word in the batch whose gradient is 0.
    A dense gradient does not distinguish it from the words that are not in the batch.

    It never synchronizes with the GPU. Its state has the layout of SparseAdam's.
    """

    def __init__(self, parameters: Any, lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # takes no closure
        """Update the rows (n, d) that have a gradient."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(parameter) for _ in range(2))
                state["step"] += 1
                mean, square, gradient = state["exp_avg"], state["exp_avg_sq"], parameter.grad
                touched = (gradient != 0).any(1, keepdim=True)  # (n, 1)
                mean.lerp_(gradient, touched * (1 - beta1))
                square.lerp_(gradient * gradient, touched * (1 - beta2))
                corrections = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                rate = group["lr"] * corrections[1] ** 0.5 / corrections[0]
                parameter.addcdiv_(mean * touched, square.sqrt().add_(group["eps"]), value=-rate)


def trainable_parameters(ranker: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that receive gradients."""
    return [parameter for parameter in ranker.parameters() if parameter.requires_grad]


def learning_rate(options: TrainingOptions, epoch: int, progress: float) -> float:
    """Return the learning rate λ in ``epoch``, from 1, after a fraction ``progress`` of all updates."""
    if progress < options.warmup:
        return options.learning_rate * progress / options.warmup
    if options.schedule == "inverse":
        return options.learning_rate / epoch
    if options.schedule == "linear":
        return options.learning_rate * (1 - progress) / (1 - options.warmup)
    return options.learning_rate


def clip_gradients(ranker: nn.Module, max_norm: float) -> None:
    """Scale all gradients, sparse ones too, to a total norm of at most ``max_norm``."""
    gradients = []
    for parameter in ranker.parameters():
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad)
    norms = [(gradient.values() if gradient.is_sparse else gradient).norm() for gradient in gradients]
    norm = torch.stack(norms).norm()
    factor = (max_norm / norm.double()).clamp(max=1).to(norm.dtype)  # stays on the device: no synchronization
    for gradient in gradients:
        gradient.mul_(factor)
