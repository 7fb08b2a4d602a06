"""Waits for resources of a cluster: what is waited for is said every half minute, and a limit ends it."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from aptool.errors import AptoolError

logger = logging.getLogger(__name__)

# Seconds between two lines that say what is waited for.
LINE_SECONDS = 30.0

# Seconds between two looks at the cluster.
POLL_SECONDS = 0.2


class Wait:
    """A wait that has begun.

    Args:
        limit: seconds until it ends in an error; None is never.
        silent: seconds until the first line.
    """

    def __init__(self, limit: float | None, silent: float = 0.0) -> None:
        self._until = time.monotonic() + limit if limit is not None else float("inf")
        self._line_at = time.monotonic() + silent

    def sleep(self, missing: str, error: Callable[[], AptoolError]) -> None:
        """Waits a moment.

        Args:
            missing: what is waited for.
            error: makes the error in which the wait ends.
        """
        if time.monotonic() >= self._until:
            raise error()
        if time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            logger.info(missing)
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def repeated(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Calls a function every so many seconds while the block runs, on a thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def said_while_missing(missing: Callable[[], str]) -> Iterator[None]:
    """Says what running work waits for every half minute while the block runs.

    Args:
        missing: what the work lacks now, such as the nodes that were lost; empty if nothing.
    """

    def say() -> None:
        if line := missing():
            logger.info(line)

    with repeated(LINE_SECONDS, say):
        yield
