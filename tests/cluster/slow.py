"""A system for workers: a unit takes a moment, leaves a note of who scores it, and can be made to fail."""

import os
import time
from functools import partial
from pathlib import Path

from aptool.scoring.baselines import RandomSystem


class SlowSystem(RandomSystem):
    """The scores of ``RandomSystem``; what it does meanwhile depends on files in a folder.

    ``trouble`` there holds a question id, and what happens to who meets it: ``exit`` or ``memory``. While
    there is a ``hold``, no unit that was begun comes to its end.
    """

    def __init__(self, notes, seconds):
        super().__init__()
        self._notes = Path(notes)
        self._seconds = seconds

    def score(self, prepared):
        questions = prepared.question_ids.to_pylist()
        with (self._notes / "scored").open("a") as file:  # one short line at a time: whole, whoever writes
            file.write(f"{os.getpid()} {questions[0]}\n")
        trouble = self._notes / "trouble"
        if trouble.exists():
            question, what = trouble.read_text().split()
            if question in questions:
                if what == "exit":
                    os._exit(1)
                raise MemoryError
        time.sleep(self._seconds)
        while (self._notes / "hold").exists():
            time.sleep(0.02)
        return super().score(prepared)


def opener(notes, seconds=0.0):
    return partial(_open, str(notes), seconds)


def _open(notes, seconds, device):
    return SlowSystem(notes, seconds)


def scored(notes):
    """(process, first question) of every unit that was begun, retries included."""
    path = Path(notes) / "scored"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]
