"""A slow system for workers, which records the process of each unit, and can be made to fail."""

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from aptool.cluster.connection import Resources
from aptool.scoring.systems import RandomScorer, RandomScores

ONE_CORE = Resources(cpus=1)


@dataclass(frozen=True)
class SlowSystem(RandomScores):
    """Random scores, slowly; see ``SlowScorer``."""

    notes: str = ""
    seconds: float = 0.0

    def open(self, units=(), answers=None, device=None):
        return SlowScorer(self)


class SlowScorer(RandomScorer):
    """The scores of ``RandomScores``; its behaviour depends on files in the folder ``notes``.

    ``trouble`` has a question id and the fault of a process that scores it: ``exit`` or ``limit`` (PyTorch
    exceeds a limit of the address space). While ``hold`` exists, no unit ends.
    """

    def __init__(self, system):
        super().__init__(system)
        self._notes = Path(system.notes)
        self._seconds = system.seconds

    def score(self, pools, count):
        questions = pools.question_ids.to_pylist()
        with (self._notes / "scored").open("a") as file:  # a short line is written atomically
            file.write(f"{os.getpid()} {questions[0]}\n")
        trouble = self._notes / "trouble"
        if trouble.exists():
            question, fault = trouble.read_text().split()
            if question in questions:
                if fault == "exit":
                    os._exit(1)
                run_out_of_memory()
        time.sleep(self._seconds)
        while (self._notes / "hold").exists():
            time.sleep(0.02)
        return super().score(pools, count)


def run_out_of_memory():
    """Let PyTorch allocate a gigabyte in an address space with half a gigabyte left."""
    import torch

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (512 << 20), before[1]))
    try:
        torch.empty(1 << 30, dtype=torch.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def executor_of(cluster, each, **more):
    """A ``ClusterExecutor`` whose workers have the resources ``each``."""
    from aptool.cluster.score import ClusterExecutor  # imports Ray, which reads the environment

    class Executor(ClusterExecutor):
        def open(self, *given):
            scorer = super().open(*given)
            self._each = each
            return scorer

    return Executor(cluster, **more)


def scored(notes):
    """(process, first question) of every started unit, including retries."""
    path = Path(notes) / "scored"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]
