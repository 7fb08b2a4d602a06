"""A ``World`` of processes that torch has joined into a group: through gloo on CPUs, NCCL on GPUs."""

import socket
from typing import Any

import torch.distributed
from torch import Tensor

from aptool.errors import error_with
from aptool.training.world import World


class TorchWorld(World):
    """The workers of a torch process group."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def add(self, tensor: Tensor) -> Tensor:
        """See ``World.add``."""
        torch.distributed.all_reduce(tensor)
        return tensor

    def first(self, value: Any) -> Any:
        """See ``World.first``."""
        values = [value if self.rank == 0 else None]
        torch.distributed.broadcast_object_list(values, src=0)
        return values[0]

    def check(self, problem: Exception | None) -> None:
        """See ``World.check``; a problem says on which node it is."""
        own = None
        if problem is not None:
            own = getattr(problem, "exit_code", 1), f"node {socket.gethostname()}: {problem}"
        found: list[tuple[int, str] | None] = [None] * self.size
        torch.distributed.all_gather_object(found, own)
        for one in found:
            if one is not None:
                raise error_with(*one)
