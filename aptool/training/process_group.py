"""The processes that train one model together, as the training loop sees them.

``ProcessGroup`` is the usual case, a process that trains alone: every method does nothing. A launcher that starts
several hands the loop another one. All of them walk through the same minibatches in the same order, each does
its share of the work, and what they add up is the same as if one had done all of it.
"""

import socket
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from aptool.errors import error_with
from aptool.models.ragged import Ragged


class ProcessGroup:
    """One process alone.

    Attributes:
        rank: which of the processes this one is, counted from 0.
        size: how many there are.
    """

    rank = 0
    size = 1

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place; every process gets the same bits."""
        return tensor

    def broadcast(self, value: Any) -> Any:
        """The value that process 0 gave."""
        return value

    def check(self, problem: Exception | None) -> None:
        """Waits for all processes and raises in every one of them what went wrong in any.

        Raises:
            Exception: a problem of this process or another one.
        """
        if problem is not None:
            raise problem

    def part(self, rows: int) -> slice:
        """This process's share of ``rows`` rows: consecutive, and none of them twice."""
        return slice(rows * self.rank // self.size, rows * (self.rank + 1) // self.size)


SINGLE_PROCESS = ProcessGroup()


class MinibatchShard:
    """A minibatch's rows of which this process takes the gradient.

    Where there are fewer rows than processes every process takes all of them, for its part of the weight, so
    that none has nothing to do.

    Attributes:
        whole: whether the share is all of them.
        rows: the slice of them.
        weight: what their losses count.
    """

    def __init__(self, group: ProcessGroup, rows: int) -> None:
        self.whole = rows < group.size or group.size == 1
        self.rows = slice(0, rows) if self.whole else group.part(rows)
        self.weight = 1 / group.size if self.whole else 1.0


def gathered(group: ProcessGroup, own: Ragged, lengths: Tensor, members: Tensor) -> Ragged:
    """The sequences of all processes, for each of them; gradients find their way back.

    Args:
        group: the processes.
        own: this process's sequences, values (N', c).
        lengths: (n,) of all sequences.
        members: which of them are ``own``.

    Returns:
        All n sequences, values (N, c).
    """
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    whole = Ragged(own.values.new_zeros(int(offsets[-1]), *own.values.shape[1:]), offsets)
    placed = whole.values.index_copy(0, whole.rows(members), own.values)
    values: Tensor = _Added.apply(placed, group)
    return whole.with_values(values)


class _Added(torch.autograd.Function):
    """The sum over processes; a gradient of it is the sum of what every process made of it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return group.all_reduce(values.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.group.all_reduce(gradient.clone(memory_format=torch.contiguous_format)), None


def add_gradients(group: ProcessGroup, parameters: list[nn.Parameter], totals: Tensor) -> Tensor:
    """Sums the gradients of all processes in place, and some totals with them.

    Sparse gradients stay sparse: the rows that any process touched are what is sent.

    Args:
        group: the processes.
        parameters: those that are trained.
        totals: (n,) float32 numbers to add up as well.

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
    summed = group.all_reduce(torch.cat(pieces)).split([len(piece) for piece in pieces])
    for piece, total in zip(pieces[1:], summed[1:], strict=True):
        piece.copy_(total)
    return summed[0]


def _on_common_rows(group: ProcessGroup, gradient: Tensor) -> Tensor:
    """The same sparse gradient with a row, zero if need be, wherever any process has one."""
    own = gradient.indices()[0]
    touched = torch.zeros(gradient.shape[0], dtype=torch.int32, device=gradient.device)
    touched[own] = 1
    rows = group.all_reduce(touched).nonzero().squeeze(1)
    place = torch.searchsorted(rows, own)
    values = (
        gradient.values().new_zeros(len(rows), *gradient.shape[1:]).index_copy(0, place, gradient.values())
    )
    return torch.sparse_coo_tensor(
        rows[None], values, gradient.shape, is_coalesced=True, check_invariants=False
    )


class TorchProcessGroup(ProcessGroup):
    """The workers of a torch process group."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """See ``ProcessGroup.all_reduce``."""
        torch.distributed.all_reduce(tensor)
        return tensor

    def broadcast(self, value: Any) -> Any:
        """See ``ProcessGroup.broadcast``."""
        values = [value if self.rank == 0 else None]
        torch.distributed.broadcast_object_list(values, src=0)
        return values[0]

    def check(self, problem: Exception | None) -> None:
        """See ``ProcessGroup.check``; a problem says on which node it is."""
        own = None
        if problem is not None:
            own = getattr(problem, "exit_code", 1), f"node {socket.gethostname()}: {problem}"
        found: list[tuple[int, str] | None] = [None] * self.size
        torch.distributed.all_gather_object(found, own)
        for one in found:
            if one is not None:
                raise error_with(*one)
