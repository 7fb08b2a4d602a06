"""The processes that train one model together, as the training loop sees them.

``World`` is the usual case, a process that trains alone: every method does nothing. A launcher that starts
several hands the loop another one. All of them walk through the same minibatches in the same order, each does
its share of the work, and what they add up is the same as if one had done all of it.
"""

from typing import Any

import torch
from torch import Tensor, nn

from aptool.models.ragged import Ragged


class World:
    """One process alone.

    Attributes:
        rank: which of the processes this one is, counted from 0.
        size: how many there are.
    """

    rank = 0
    size = 1

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place; every process gets the same bits."""
        return tensor

    def first(self, value: Any) -> Any:
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


ALONE = World()


class Share:
    """A minibatch's rows of which this process takes the gradient.

    Where there are fewer rows than processes every process takes all of them, for its part of the weight, so
    that none has nothing to do.

    Attributes:
        whole: whether the share is all of them.
        rows: the slice of them.
        weight: what their losses count.
    """

    def __init__(self, world: World, rows: int) -> None:
        self.whole = rows < world.size or world.size == 1
        self.rows = slice(0, rows) if self.whole else world.part(rows)
        self.weight = 1 / world.size if self.whole else 1.0


def gathered(world: World, own: Ragged, lengths: Tensor, members: Tensor) -> Ragged:
    """The sequences of all processes, for each of them; gradients find their way back.

    Args:
        world: the processes.
        own: this process's sequences, values (N', c).
        lengths: (n,) of all sequences.
        members: which of them are ``own``.

    Returns:
        All n sequences, values (N, c).
    """
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    whole = Ragged(own.values.new_zeros(int(offsets[-1]), *own.values.shape[1:]), offsets)
    placed = whole.values.index_copy(0, whole.rows(members), own.values)
    values: Tensor = _Added.apply(placed, world)
    return whole.with_values(values)


class _Added(torch.autograd.Function):
    """The sum over processes; a gradient of it is the sum of what every process made of it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, world: World) -> Tensor:
        ctx.world = world
        return world.add(values.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.world.add(gradient.clone(memory_format=torch.contiguous_format)), None


def add_gradients(world: World, parameters: list[nn.Parameter], totals: Tensor) -> Tensor:
    """Sums the gradients of all processes in place, and some totals with them.

    Sparse gradients stay sparse: the rows that any process touched are what is sent.

    Args:
        world: the processes.
        parameters: those that are trained.
        totals: (n,) float32 numbers to add up as well.

    Returns:
        (n,) the sums of the totals.
    """
    if world.size == 1:
        return totals
    pieces = [totals]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.is_sparse:
            parameter.grad = _on_common_rows(world, parameter.grad.coalesce())
            pieces.append(parameter.grad.values().view(-1))
        else:
            parameter.grad = parameter.grad.contiguous()
            pieces.append(parameter.grad.view(-1))
    summed = world.add(torch.cat(pieces)).split([len(piece) for piece in pieces])
    for piece, total in zip(pieces[1:], summed[1:], strict=True):
        piece.copy_(total)
    return summed[0]


def _on_common_rows(world: World, gradient: Tensor) -> Tensor:
    """The same sparse gradient with a row, zero if need be, wherever any process has one."""
    own = gradient.indices()[0]
    touched = torch.zeros(gradient.shape[0], dtype=torch.int32, device=gradient.device)
    touched[own] = 1
    rows = world.add(touched).nonzero().squeeze(1)
    place = torch.searchsorted(rows, own)
    values = (
        gradient.values().new_zeros(len(rows), *gradient.shape[1:]).index_copy(0, place, gradient.values())
    )
    return torch.sparse_coo_tensor(
        rows[None], values, gradient.shape, is_coalesced=True, check_invariants=False
    )
