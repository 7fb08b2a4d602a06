"""A recorder of messages, epochs and progress."""

import logging
from contextlib import contextmanager

from aptool.progress import Progress, use_progress


class Recorded(Progress, logging.Handler):
    """Records log lines, epochs, names of tasks, and updates.

    ``messages`` has lines, ``epochs`` entries of a history, ``updates`` tuples (done, total, unit, detail).
    """

    def __init__(self, on_epoch=lambda entry: None):
        logging.Handler.__init__(self, logging.INFO)
        self.messages, self.epochs, self.tasks, self.updates = [], [], [], []
        self.updates_of = {}  # by task
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
    """Record while the block runs; ``on_epoch`` is called with the entry of each epoch."""
    recorder, logger = Recorded(on_epoch), logging.getLogger("aptool")
    level = logger.level
    logger.addHandler(recorder)
    logger.setLevel(logging.INFO)
    try:
        with use_progress(recorder):
            yield recorder
    finally:
        logger.removeHandler(recorder)
        logger.setLevel(level)
