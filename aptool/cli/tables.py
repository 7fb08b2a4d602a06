"""Tables on stdout."""

from collections.abc import Sequence

import click

from aptool.errors import printable


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
