"""What commands show on stderr while they work: a bar on a terminal, plain lines at intervals elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import click

# Seconds between two plain lines of progress.
INTERVAL = 10.0


def say(line: str) -> None:
    """One line on stderr."""
    click.echo(line, err=True)


class Tick(Protocol):
    """How a command tells its bar where it is."""

    def __call__(self, done: int, total: int, text: str) -> None:
        """Sets the bar: ``done`` of ``total``, and what stands beside it."""


@contextmanager
def progress_bar(name: str) -> Iterator[Tick]:
    """A bar that disappears when the block ends, or a line every few seconds where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        last = time.monotonic()

        def line(done: int, total: int, text: str) -> None:
            nonlocal last
            if time.monotonic() - last >= INTERVAL:
                last = time.monotonic()
                say(f"{name}: {done:,} of {total:,} {text}")

        yield line
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None, text="")

        def bar(done: int, total: int, text: str) -> None:
            progress.update(task, completed=done, total=total, text=text)

        yield bar


def epoch_line(entry: dict[str, Any]) -> str:
    """An entry of a training history in words."""
    seconds = entry["seconds"]["train"] + entry["seconds"]["dev"]  # mining is a part of training
    return f"epoch {entry['epoch']}: loss {entry['loss']:.4f}, dev {figures(entry['dev'])}, {seconds:.0f} s"


def figures(measures: dict[str, float]) -> str:
    """Measures in words."""
    return ", ".join(f"{name} {value:.4f}" for name, value in measures.items())
