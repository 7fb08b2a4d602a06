"""Messages, epochs and progress of long work, recorded for a test."""

import logging
from contextlib import contextmanager

from aptool.progress import Progress, use_progress


class Recorded(Progress, logging.Handler):
    """Records log lines, epochs, names of tasks, and updates.

    ``messages`` are lines, ``epochs`` entries of a history, ``updates`` (done, total, unit, detail).
    """

    def __init__(self, on_epoch=lambda entry: None):
        logging.Handler.__init__(self, logging.INFO)
        self.messages, self.epochs, self.tasks, self.updates = [], [], [], []
        self.updates_of = {}  # by the name of the task
        self._on_epoch = on_epoch

    @contextmanager
    def task(self, name):
        self.tasks.append(name)
        updates = self.updates_of.setdefault(name, [])

        def update(done, total, unit, detail=""):
            updates.append((done, total, unit, detail))
            self.updates.append(updates[-1])

        yield update

    def epoch(self, entry):
        self.epochs.append(entry)
        self._on_epoch(entry)

    def emit(self, record):
        self.messages.append(record.getMessage())


@contextmanager
def recorded(on_epoch=lambda entry: None):
    """Records everything while the block runs; ``on_epoch`` is called with each epoch's entry."""
    found, logger = Recorded(on_epoch), logging.getLogger("aptool")
    level = logger.level
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    try:
        with use_progress(found):
            yield found
    finally:
        logger.removeHandler(found)
        logger.setLevel(level)
