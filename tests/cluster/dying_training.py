"""Workers and drivers of a training that end themselves with SIGKILL, once, at a given point.

As a program: a driver that is killed once it has reported an epoch. Arguments: which, and those of `aptool`.
"""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from aptool.cluster import train
from aptool.progress import Progress
from aptool.training import loop


def killed_worker(config):
    """The second worker kills itself in the middle of the third epoch, the first time."""
    import ray.train

    note = Path(f"{config['job'].output}.killed")
    if ray.train.get_context().get_world_rank() == 1 and not note.exists():
        steps, step = iter(range(1, 1000)), loop._step

        def last(*given):
            if next(steps) == 13:  # five steps an epoch
                note.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*given)

        loop._step = last
    train_worker(config)


def slow_worker(config):
    """A worker that takes a while for each step, so that it has not finished when its driver is killed.

    No step ends while there is a file ``OUTPUT.hold``.
    """
    step = loop._step
    hold = Path(f"{config['job'].output}.hold")

    def slow(*given):
        time.sleep(0.4)
        while hold.exists():
            time.sleep(0.05)
        return step(*given)

    loop._step = slow
    try:
        train_worker(config)
    finally:
        loop._step = step


def _short_of_memory(rank, config):
    """The worker of one rank runs out of memory in its third step; the other one does not."""
    import ray.train
    import torch

    steps, losses = iter(range(1, 1000)), loop.batch_losses
    if ray.train.get_context().get_world_rank() == rank:

        def short(*given):
            if next(steps) == 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return losses(*given)

        loop.batch_losses = short
    try:
        train_worker(config)
    finally:
        loop.batch_losses = losses


short_of_memory = [partial(_short_of_memory, rank) for rank in (0, 1)]


def kill_after(epoch):
    """Kills this process once it has reported an epoch."""
    report = Progress.epoch

    def reported(self, entry):
        report(self, entry)
        if entry["epoch"] == epoch:
            os.kill(os.getpid(), signal.SIGKILL)

    Progress.epoch = reported


train_worker = train.train_worker

if __name__ == "__main__":
    import dying_training

    train.train_worker = dying_training.slow_worker
    kill_after(int(sys.argv[1]))
    from aptool.cli.main import main

    sys.argv[1:] = sys.argv[2:]
    main()
