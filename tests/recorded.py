"""A recorder of messages, epochs and progress."""

import logging
import re
from contextlib import contextmanager

from aptool import progress

EPOCH = re.compile(r"epoch (\d+): loss ")
LINE = re.compile(r"(.+): ([\d,]+) of ([\d,]+) ([a-z ]+), ")


class Recorded(logging.Handler):
    """Records log lines, numbers of epochs, and the lines of progress.

    ``lines`` has all lines, ``messages`` those that are neither of epochs nor of progress, ``updates`` tuples
    (done, total, unit, detail) by task.
    """

    def __init__(self, on_epoch):
        super().__init__(logging.INFO)
        self.lines, self.messages, self.epochs, self.updates = [], [], [], {}
        self._on_epoch = on_epoch

    def emit(self, record):
        line = record.getMessage()
        self.lines.append(line)
        if record.name == progress.logger.name:
            name, done, total, unit = LINE.match(line).groups()
            update = int(done.replace(",", "")), int(total.replace(",", "")), unit, line.split(", ")[-1]
            self.updates.setdefault(name, []).append(update)
        elif epoch := EPOCH.match(line):
            self.epochs.append(int(epoch[1]))
            self._on_epoch(self.epochs[-1])
        else:
            self.messages.append(line)


@contextmanager
def recorded(on_epoch=lambda number: None):
    """Record while the block runs, each update of progress; ``on_epoch`` is called at the end of an epoch."""
    recorder, logger = Recorded(on_epoch), logging.getLogger("aptool")
    level, interval = logger.level, progress.INTERVAL
    logger.addHandler(recorder)
    logger.setLevel(logging.INFO)
    progress.INTERVAL = 0.0
    try:
        yield recorder
    finally:
        progress.INTERVAL = interval
        logger.removeHandler(recorder)
        logger.setLevel(level)
