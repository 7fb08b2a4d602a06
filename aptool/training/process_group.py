"""The process group of a training: several processes that train one model in parallel.

``ProcessGroup`` itself is a single process, whose collective operations do nothing; ``TorchProcessGroup`` is
a process group of torch. All processes iterate over the same minibatches in the same order and each computes
the gradient of its shard; the sum is the gradient that a single process would compute.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn
from typing_extensions import override

from aptool.errors import AptoolError, error_with
from aptool.models.ragged import Ragged


class ProcessGroup:
    """A single process.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
        raised: the last error that several processes have raised together.
    """

    rank = 0
    size = 1
    raised: AptoolError | None = None

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place and identical in all of them."""
        return tensor

    def broadcast(self, value: Any) -> Any:
        """The value of process 0."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes by rank, in each of them."""
        return [value]

    def raise_in_all(self, error: AptoolError | None) -> None:
        """Waits for all processes; raises in each of them if any passes an error."""
        if error is not None:
            raise error

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that every process runs; an AptoolError in any of them is raised in all.

        All processes wait for each other at its end.
        """
        error = None
        try:
            yield
        except AptoolError as found:
            error = found
        self.raise_in_all(error)

    @contextmanager
    def first_process_first(self) -> Iterator[None]:
        """A block that process 0 completes before the others begin, so that they find its files on disk.

        An AptoolError in any process is raised in all.
        """
        if self.rank > 0:
            self.raise_in_all(None)
        error = None
        try:
            yield
        except AptoolError as found:
            error = found
        if self.rank == 0:
            self.raise_in_all(error)
            error = None
        self.raise_in_all(error)

    def shard(self, rows: int) -> slice:
        """This process's part of ``rows`` rows; the parts are consecutive and disjoint."""
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
        """The message names the node."""
        own = None
        if error is not None:
            own = error.exit_code, f"node {socket.gethostname()}: {error}"
        for one in self.gather(own):
            if one is not None:
                self.raised = error_with(*one)
                raise self.raised


class MinibatchShard:
    """The rows of a minibatch whose gradient this process computes.

    With fewer rows than processes, every process takes all rows and divides their weight, so that none is
    without a gradient.

    Attributes:
        complete: whether the shard is all rows.
        rows: the slice of them.
        weight: of each row's loss.
    """

    def __init__(self, group: ProcessGroup, rows: int) -> None:
        self.complete = rows < group.size or group.size == 1
        self.rows = slice(0, rows) if self.complete else group.shard(rows)
        self.weight = 1 / group.size if self.complete else 1.0


def all_gather(group: ProcessGroup, own: Ragged, sizes: np.ndarray, members: np.ndarray) -> Ragged:
    """The sequences of all processes, in each of them; differentiable.

    Args:
        group: the processes.
        own: this process's sequences, values (N', c).
        sizes: (n,) lengths of all sequences.
        members: the indices of ``own`` among them.

    Returns:
        All n sequences, values (N, c).
    """
    everything = Ragged.of_sizes(own.values.new_zeros(int(sizes.sum()), *own.values.shape[1:]), sizes)
    values = everything.values.index_copy(0, everything.rows(members), own.values)
    values = _AllReduce.apply(values, group)
    return everything.with_values(values)


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
    """Sums the gradients of all processes in place, and some totals in the same message.

    Sparse gradients stay sparse: only the rows that any process touched are sent.

    Args:
        group: the processes.
        parameters: the trainable ones.
        totals: (n,) float32 numbers to sum as well.

    Returns:
        (n,) the sums of the totals.
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
    """The same sparse gradient with a row, if need be of zeros, wherever any process has one."""
    own = gradient.indices()[0]
    touched = torch.zeros(gradient.shape[0], dtype=torch.int32, device=gradient.device)
    touched[own] = 1
    rows = group.all_reduce(touched).nonzero().squeeze(1)
    values = gradient.values().new_zeros(len(rows), *gradient.shape[1:])
    values = values.index_copy(0, torch.searchsorted(rows, own), gradient.values())
    return torch.sparse_coo_tensor(
        rows[None], values, gradient.shape, is_coalesced=True, check_invariants=False
    )
