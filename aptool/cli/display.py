"""Messages and progress on stderr: a bar on a terminal, plain lines elsewhere."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from aptool.progress import BarProgress, LineProgress, use_progress

logger = logging.getLogger("aptool")


class _StderrHandler(logging.Handler):
    """Writes messages as plain lines, above a bar if one is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one message."""
        line = record.getMessage()
        if "tqdm" in sys.modules and sys.stderr.isatty():
            from tqdm import tqdm

            with tqdm.external_write_mode(file=sys.stderr):
                click.echo(line, err=True)
        else:
            click.echo(line, err=True)


@contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Shows the log messages and the progress of the library on stderr while the block runs."""
    handler, level, propagate = _StderrHandler(logging.INFO), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with use_progress(BarProgress() if sys.stderr.isatty() else LineProgress()):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
