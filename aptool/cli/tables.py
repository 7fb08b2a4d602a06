"""Output of commands: tables on stdout, log messages on stderr."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click
from typing_extensions import override

from aptool.errors import printable

logger = logging.getLogger("aptool")


def print_table(rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print rows of cells, the column titles first, and the first ``left`` columns aligned left."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        click.echo("  ".join(cells).rstrip())


class _StderrHandler(logging.Handler):
    """Writes messages as plain lines, above a progress bar if one is shown."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a full disk, or a closed pipe
            self._print(printable(record.getMessage()))

    def _print(self, line: str) -> None:
        if "tqdm" in sys.modules and sys.stderr.isatty():
            from tqdm import tqdm

            with tqdm.external_write_mode(file=sys.stderr):
                click.echo(line, err=True)
        else:
            click.echo(line, err=True)


@contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Show log messages of the library on stderr."""
    handler, level, propagate = _StderrHandler(logging.INFO), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
