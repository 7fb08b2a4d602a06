"""Workers and drivers of a training that kill themselves with SIGKILL, once, at a given point.

As a program: a driver that kills itself after an epoch. Arguments: the epoch, and the arguments of `aptool`.
"""

import itertools
import logging.handlers
import os
import signal
import sys
import time
from pathlib import Path

from aptool.cluster import train
from aptool.training import loop


def train_and(act, config):
    """Train; call ``act`` with the number of each step, from 1, before it."""
    steps, step = itertools.count(1), loop._step

    def acting(*given):
        act(next(steps))
        return step(*given)

    loop._step = acting
    try:
        return train_worker(config)
    finally:
        loop._step = step


def beside(config, suffix):
    """A file beside the model."""
    return Path(f"{config['task'].output}.{suffix}")


def is_second():
    import ray.train

    return ray.train.get_context().get_world_rank() == 1


def killed_worker(config):
    """Train; the second worker kills itself once, in the middle of the third epoch."""
    note = beside(config, "killed")

    def kill(number):
        if number == 13 and is_second() and not note.exists():  # five steps per epoch
            note.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    return train_and(kill, config)


def slow_worker(config):
    """Train with slow steps, so that the training has not ended when its driver is killed.

    While the file ``OUTPUT.hold`` exists, no step starts.
    """

    def wait(number):
        time.sleep(0.4)
        while beside(config, "hold").exists():
            time.sleep(0.05)

    return train_and(wait, config)


def preempted_worker(config):
    """Train; before the second update of the third epoch, wait for the notice of a preemption.

    After two more updates, wait until the node is lost: ``OUTPUT.lost`` ends the wait on other nodes.
    """
    import ray.train

    from aptool.training import checkpoint

    checkpoint.NOTICE_SECONDS = 0.0
    lost = beside(config, "lost")

    def wait(number):
        if number == 12 and not lost.exists():  # five steps per epoch
            beside(config, "ready").touch()
            while ray.train.get_preemption_info() is None:  # the same in all workers
                time.sleep(0.05)
        while number == 14 and not lost.exists():
            time.sleep(0.05)

    return train_and(wait, config)


def short_of_memory(config):
    """Train; the second worker runs out of memory in its third step."""
    import torch

    def raise_in_third(number):
        if number == 3 and is_second():
            raise torch.OutOfMemoryError("CUDA out of memory")

    return train_and(raise_in_third, config)


def kill_after(epoch):
    """Kill this process after it has reported an epoch."""

    class Listener(logging.handlers.QueueListener):
        def handle(self, record):
            super().handle(record)
            if record.getMessage().startswith(f"epoch {epoch}: "):
                os.kill(os.getpid(), signal.SIGKILL)

    logging.handlers.QueueListener = Listener


train_worker = train.train_worker

if __name__ == "__main__":
    import dying_training

    train.train_worker = dying_training.slow_worker
    kill_after(int(sys.argv[1]))
    from aptool.__main__ import main

    sys.argv[1:] = sys.argv[2:]
    main()
