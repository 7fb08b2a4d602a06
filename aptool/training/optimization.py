"""Optimizers, learning-rate schedule and gradient clipping."""

from typing import Any

import torch
from torch import nn

from aptool.config import TrainingOptions
from aptool.errors import AptoolError
from aptool.models.encoders import WordEncoder
from aptool.models.ranker import Ranker

# Key of a parameter group: the factor of its learning rate.
RELATIVE_RATE = "relative_rate"


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
                mean.add_((gradient - mean) * (1 - beta1) * touched)
                square.add_((gradient * gradient - square) * (1 - beta2) * touched)
                corrections = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                rate = group["lr"] * corrections[1] ** 0.5 / corrections[0]
                parameter.sub_(mean / (square.sqrt() + group["eps"]) * touched * rate)


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


def take_step(optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    """Update the parameters at a learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get(RELATIVE_RATE, 1.0)
        optimizer.step()


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
