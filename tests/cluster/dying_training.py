"""Workers and drivers of a training that end themselves with SIGKILL, once, at a given moment.

As a program: a driver that is killed when it is told of an epoch. Arguments: which, and those of `aptool`.
"""

import os
import signal
import sys
import time
from pathlib import Path

from killed_training import kill_at

from aptool.training import distributed, loop


def killed_worker(config):
    """The second worker dies in the middle of the third epoch, the first time it comes there."""
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
    distributed_work(config)


def slow_worker(config):
    """A worker that takes a while for each step, so that it is not done before its driver is killed."""
    step = loop._step

    def slow(*given):
        time.sleep(0.4)
        return step(*given)

    loop._step = slow
    try:
        distributed_work(config)
    finally:
        loop._step = step


distributed_work = distributed._work

if __name__ == "__main__":
    import dying_training

    distributed._work = dying_training.slow_worker
    kill_at("aptool.cli.train:_say_epoch", "after", int(sys.argv[1]))
    from aptool.cli.main import main

    sys.argv[1:] = sys.argv[2:]
    main()
