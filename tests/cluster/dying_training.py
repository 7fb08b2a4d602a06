"""Workers and drivers of a training that kill themselves with SIGKILL, once, at a given point.

As a program: a driver that kills itself after an epoch. Arguments: the epoch, and the arguments of `aptool`.
"""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from aptool.cluster import train
from aptool.cluster.train import is_preempted
from aptool.training import loop


def killed_worker(config):
    """Train; the second worker kills itself once, in the middle of the third epoch."""
    import ray.train

    note = Path(f"{config['task'].output}.killed")
    if ray.train.get_context().get_world_rank() == 1 and not note.exists():
        steps, step = iter(range(1, 1000)), loop._step

        def last(*given):
            if next(steps) == 13:  # five steps per epoch
                note.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*given)

        loop._step = last
    return train_worker(config)


def slow_worker(config):
    """Train with slow steps, so that the training has not ended when its driver is killed.

    While the file ``OUTPUT.hold`` exists, no step starts.
    """
    step = loop._step
    hold = Path(f"{config['task'].output}.hold")

    def slow(*given):
        time.sleep(0.4)
        while hold.exists():
            time.sleep(0.05)
        return step(*given)

    loop._step = slow
    try:
        return train_worker(config)
    finally:
        loop._step = step


def preempted_worker(config):
    """Train; before the second update of the third epoch, wait for the notice of a preemption.

    After two more updates, wait until the node is lost: ``OUTPUT.lost`` ends the wait on other nodes.
    """
    from aptool.training import checkpoint

    output = config["task"].output
    ready, lost = (Path(f"{output}.{name}") for name in ("ready", "lost"))
    checkpoint.NOTICE_SECONDS = 0.0
    steps, step = iter(range(1, 1000)), loop._step

    def waiting(*given):
        number = next(steps)
        if number == 12 and not lost.exists():  # five steps per epoch
            ready.touch()
            while not is_preempted():  # the same in all workers
                time.sleep(0.05)
        while number == 14 and not lost.exists():
            time.sleep(0.05)
        return step(*given)

    loop._step = waiting
    try:
        return train_worker(config)
    finally:
        loop._step = step


def _short_of_memory(rank, config):
    """Train; the worker with this rank runs out of memory in its third step."""
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
        return train_worker(config)
    finally:
        loop.batch_losses = losses


short_of_memory = [partial(_short_of_memory, rank) for rank in (0, 1)]


def kill_after(epoch):
    """Kill this process after it has reported an epoch."""
    emit = train._Relay.emit

    def relay(self, record):
        emit(self, record)
        if record.getMessage().startswith(f"epoch {epoch}: "):
            os.kill(os.getpid(), signal.SIGKILL)

    train._Relay.emit = relay


train_worker = train.train_worker

if __name__ == "__main__":
    import dying_training

    train.train_worker = dying_training.slow_worker
    kill_after(int(sys.argv[1]))
    from aptool.__main__ import main

    sys.argv[1:] = sys.argv[2:]
    main()
