"""The collective operations of two real processes of ``torch.distributed``."""

import socket

import torch
import torch.distributed
import torch.multiprocessing

from aptool.errors import UsageError
from aptool.training.process_group import TorchProcessGroup


def work(rank, folder):
    store = (folder / "store").as_uri()
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    group = TorchProcessGroup(rank, 2)
    added = group.all_reduce(torch.tensor([1.0, 10.0]) * (rank + 1)).tolist()
    shared = group.broadcast({"of": rank})
    group.raise_in_all(None)
    said = ""
    try:
        group.raise_in_all(UsageError("no such thing") if rank == 1 else None)
    except UsageError as error:
        said = str(error)
    torch.distributed.destroy_process_group()
    (folder / str(rank)).write_text(repr((added, shared, said, group.shard(5))))


def test_two_processes(tmp_path):
    torch.multiprocessing.spawn(work, (tmp_path,), nprocs=2)

    error = f"node {socket.gethostname()}: no such thing"
    for rank, part in ((0, slice(0, 2)), (1, slice(2, 5))):
        # The sums 1 + 2 and 10 + 20, the value of the first process, the error of the second.
        assert (tmp_path / str(rank)).read_text() == repr(([3.0, 30.0], {"of": 0}, error, part))
