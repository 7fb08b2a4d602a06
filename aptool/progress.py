"""Progress of long operations: one interface, with implementations for terminals, notebooks and workers.

An operation reports to the current progress; the caller chooses how it is shown (``use_progress``):

    with get_progress().task("score") as update:
        update(3, 10, "row groups")

Messages go through ``logging``, to loggers below ``aptool``.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

logger = logging.getLogger(__name__)

# Seconds between two lines of progress where there is no bar.
INTERVAL = 10.0


class Update(Protocol):
    """Reports the progress of a task."""

    def __call__(self, done: int, total: int, detail: str = "") -> None:
        """Sets the progress to ``done`` of ``total``; ``detail`` is shown beside it."""


class Progress:
    """Shows only a log line per epoch; the base class of the others."""

    def task(self, name: str) -> AbstractContextManager[Update]:
        """A task whose progress is shown while the block runs."""
        return _silent(name)

    def epoch(self, entry: dict[str, Any]) -> None:
        """Reports the end of a training epoch; ``entry`` is its entry of the history."""
        logger.info(epoch_line(entry))


class LineProgress(Progress):
    """A log line every ``INTERVAL`` seconds, for output that is not a terminal."""

    @contextmanager
    def task(self, name: str) -> Iterator[Update]:
        """See ``Progress.task``."""
        start = last = time.monotonic()

        def update(done: int, total: int, detail: str = "") -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= INTERVAL:
                last = now
                left = f", about {(now - start) * (total - done) / done:.0f} s left" if done else ""
                logger.info(f"{name}: {done:,} of {total:,} {detail}{left}")

        yield update


class BarProgress(Progress):
    """A bar on a terminal or in a notebook, removed when the task ends."""

    @contextmanager
    def task(self, name: str) -> Iterator[Update]:
        """See ``Progress.task``."""
        from tqdm.auto import tqdm

        with tqdm(desc=name, leave=False, file=None if in_notebook() else sys.stderr, unit="") as bar:

            def update(done: int, total: int, detail: str = "") -> None:
                bar.total = total
                bar.set_postfix_str(detail, refresh=False)
                bar.update(done - bar.n)

            yield update


_current: Progress | None = None


def get_progress() -> Progress:
    """The current progress; without ``use_progress``, a bar in a notebook and nothing elsewhere."""
    if _current is not None:
        return _current
    return BarProgress() if in_notebook() else Progress()


@contextmanager
def use_progress(progress: Progress) -> Iterator[None]:
    """Sets the current progress while the block runs."""
    global _current
    before, _current = _current, progress
    try:
        yield
    finally:
        _current = before


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def epoch_line(entry: dict[str, Any]) -> str:
    """An entry of a training history as a sentence."""
    seconds = entry["seconds"]["train"] + entry["seconds"]["dev"]  # mining is a part of training
    dev = measures_line(entry["dev"])
    return f"epoch {entry['epoch']}: loss {entry['loss']:.4f}, dev {dev}, {seconds:.0f} s"


def measures_line(measures: dict[str, float]) -> str:
    """Measures by name, as ``MAP 0.5000, P@1 1.0000``."""
    return ", ".join(f"{name} {value:.4f}" for name, value in measures.items())


@contextmanager
def _silent(name: str) -> Iterator[Update]:
    yield lambda done, total, detail="": None
