"""Tables on stdout: drawn on a terminal, plain aligned columns elsewhere."""

import sys
from collections.abc import Sequence

import click


def print_table(rows: Sequence[Sequence[str]], left: int = 1, *, err: bool = False) -> None:
    """Prints rows of cells; the first row holds the column titles.

    Args:
        rows: rows of equal length.
        left: number of leading columns that are aligned left; the others, figures, are aligned right.
        err: print on stderr.
    """
    if (sys.stderr if err else sys.stdout).isatty():
        _print_rich(rows, left, err)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        click.echo("  ".join(cells).rstrip(), err=err)


def _print_rich(rows: Sequence[Sequence[str]], left: int, err: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for index, title in enumerate(rows[0]):
        table.add_column(Text(title), justify="left" if index < left else "right", overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    Console(stderr=err).print(table)
