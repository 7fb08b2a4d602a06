"""Data-parallel training: processes that train one model together.

``ProcessGroup`` is a single process, whose collective operations do nothing; ``TorchProcessGroup`` wraps
``torch.distributed``. All processes iterate over the same minibatches, and each computes the gradient of its
shard. The sum of these gradients is the gradient of a single process.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn
from typing_extensions import override

from aptool.errors import AptoolError, located
from aptool.models.ragged import Ragged

T = TypeVar("T")


class ProcessGroup:
    """A single process."""

    rank = 0
    size = 1
    raised: AptoolError | None = None  # the last error that all processes raised together

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum over all processes, in place; identical in all processes."""
        return tensor

    def broadcast(self, value: Any) -> Any:
        """Return the value of process 0."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        return [value]

    def raise_in_all(self, error: AptoolError | None) -> None:
        """Wait for all processes; raise in all of them if any passes an error."""
        if error is not None:
            raise error

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block in every process, then wait for all; an AptoolError of a process is raised in all."""
        error = None
        try:
            yield
        except AptoolError as raised:
            error = raised
        self.raise_in_all(error)

    def in_first(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call a function in process 0 only; return its value, or raise its AptoolError, in all processes."""
        value = None
        with self.together():
            if self.rank == 0:
                value = work(*arguments)
        shared: T = self.broadcast(value)
        return shared

    @contextmanager
    def first_process_first(self) -> Iterator[None]:
        """Run a block in process 0, then in the other processes, which can read its files.

        An AptoolError of a process is raised in all.
        """
        if self.rank > 0:
            self.raise_in_all(None)
        with self.together():
            yield
        if self.rank == 0:
            self.raise_in_all(None)

    def shard(self, rows: int) -> slice:
        """Return the rows of this process; the shards of all processes are consecutive and disjoint."""
        return slice(rows * self.rank // self.size, rows * (self.rank + 1) // self.size)


SINGLE_PROCESS = ProcessGroup()


class TorchProcessGroup(ProcessGroup):
    """A process group that ``torch.distributed`` has initialized."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @override
    def all_reduce(self, tensor: Tensor) -> Tensor:
        torch.distributed.all_reduce(tensor)
        return tensor

    @override
    def broadcast(self, value: Any) -> Any:
        values = [value if self.rank == 0 else None]
        torch.distributed.broadcast_object_list(values, src=0)
        return values[0]

    @override
    def gather(self, value: Any) -> list[Any]:
        gathered = [None] * self.size
        torch.distributed.all_gather_object(gathered, value)
        return gathered

    @override
    def raise_in_all(self, error: AptoolError | None) -> None:
        located_error = None if error is None else located(error, f"node {socket.gethostname()}")
        for gathered in self.gather(located_error):
            if gathered is not None:
                self.raised = gathered
                raise gathered


class MinibatchShard:
    """The rows of a minibatch whose gradient this process computes, and the weight of their losses.

    With fewer rows than processes the shard is ``complete``: every process takes all rows with a fraction of
    the weight, so that every process has a gradient.
    """

    def __init__(self, group: ProcessGroup, rows: int) -> None:
        self.complete = rows < group.size or group.size == 1
        self.rows = slice(0, rows) if self.complete else group.shard(rows)
        self.weight = 1 / group.size if self.complete else 1.0


def all_gather(group: ProcessGroup, shard: Ragged, sizes: np.ndarray, members: np.ndarray) -> Ragged:
    """Gather the (N', c) sequences of all processes to (N, c); differentiable.

    ``sizes`` are the (n,) lengths of all sequences, ``members`` the indices of ``shard`` in them.
    """
    sequences = Ragged.of_sizes(shard.values.new_zeros(int(sizes.sum()), *shard.values.shape[1:]), sizes)
    values = sequences.values.index_copy(0, sequences.rows(members), shard.values)
    return sequences.with_values(_AllReduce.apply(values, group))


class _AllReduce(torch.autograd.Function):
    """The sum over processes; its gradient is the sum of the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return group.all_reduce(values.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.group.all_reduce(gradient.clone(memory_format=torch.contiguous_format)), None


def all_reduce_gradients(group: ProcessGroup, parameters: list[nn.Parameter], totals: Tensor) -> Tensor:
    """Sum the gradients of all processes in place, and (n,) float32 ``totals`` in the same message.

    Sparse gradients remain sparse: only the rows of at least one process are sent.
    """
    if group.size == 1:
        return totals
    pieces = [totals]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.is_sparse:
            parameter.grad = _on_common_rows(group, parameter.grad.coalesce())
            pieces.append(parameter.grad.values().view(-1))
        else:
            parameter.grad = parameter.grad.contiguous()
            pieces.append(parameter.grad.view(-1))
    sums = group.all_reduce(torch.cat(pieces)).split([len(piece) for piece in pieces])
    for piece, total in zip(pieces[1:], sums[1:], strict=True):
        piece.copy_(total)
    return sums[0]


def _on_common_rows(group: ProcessGroup, gradient: Tensor) -> Tensor:
    """Add rows of zeros to a sparse gradient, wherever another process has a row."""
    indices = gradient.indices()[0]
    touched = torch.zeros(gradient.shape[0], dtype=torch.int32, device=gradient.device)
    touched[indices] = 1
    rows = group.all_reduce(touched).nonzero().squeeze(1)
    values = gradient.values().new_zeros(len(rows), *gradient.shape[1:])
    values = values.index_copy(0, torch.searchsorted(rows, indices), gradient.values())
    return torch.sparse_coo_tensor(
        rows[None], values, gradient.shape, is_coalesced=True, check_invariants=False
    )
