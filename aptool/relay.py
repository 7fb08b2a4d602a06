"""Log messages and progress of a worker process, sent to the process that shows them.

with relayed_to(post):
    ...  # log messages and progress go to `post`
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from typing_extensions import override

from aptool.errors import AptoolError, error_with
from aptool.progress import Progress, Update, get_progress, use_progress

# Seconds between two posts of progress.
INTERVAL = 0.3

# Sends a message of a kind: "log" with a line; "progress" with the name of the task, done, total, unit and
# detail; "epoch" with an entry of a training history.
Post = Callable[[str, Any], None]


class WorkerError(NamedTuple):
    """An ``AptoolError`` of another process."""

    exit_code: int
    line: str

    @classmethod
    def of(cls, error: AptoolError, place: str = "") -> "WorkerError":
        """The exit code and the message of an error, after an optional place."""
        return cls(error.exit_code, f"{place}: {error}" if place else str(error))

    def error(self) -> AptoolError:
        """The error to raise in the other process."""
        return error_with(self.exit_code, self.line)


class _PostedProgress(Progress):
    """Sends progress and epochs."""

    def __init__(self, post: Post) -> None:
        self._post = post

    @override
    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[Update]:
        posted, last = time.monotonic(), (name, 0, 0, "", "")
        self._post("progress", last)

        def update(done: int, total: int, unit: str, detail: str = "") -> None:
            nonlocal posted, last
            last = name, done, total, unit, detail
            if time.monotonic() - posted > INTERVAL:
                posted = time.monotonic()
                self._post("progress", last)

        yield update
        self._post("progress", last)

    @override
    def epoch(self, entry: dict[str, Any]) -> None:
        self._post("epoch", entry)


class RelayedTasks:
    """Shows the tasks of another process, one at a time, in the current progress."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._update: Update | None = None
        self._task = contextlib.ExitStack()

    def __enter__(self) -> "RelayedTasks":
        return self

    def __exit__(self, *raised: object) -> None:
        self._task.close()

    def show(self, state: tuple[str, int, int, str, str]) -> None:
        """Show the value of a ``progress`` message."""
        name, done, total, unit, detail = state
        if name != self._name or self._update is None:
            self._task.close()
            self._name, self._update = name, self._task.enter_context(get_progress().task(name))
        if total:
            self._update(done, total, unit, detail)


class _Silence(Progress):
    """Shows nothing, not even epochs."""

    @override
    def epoch(self, entry: dict[str, Any]) -> None:
        pass


class _Handler(logging.Handler):
    """Sends log messages."""

    def __init__(self, post: Post) -> None:
        super().__init__(logging.INFO)
        self._post = post

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._post("log", record.getMessage())


@contextlib.contextmanager
def relayed_to(post: Post | None) -> Iterator[None]:
    """Send the messages and the progress of this process while the block runs; None discards them."""
    if post is None:
        with use_progress(_Silence()):
            yield
        return
    root = logging.getLogger("aptool")
    handler, level = _Handler(post), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with use_progress(_PostedProgress(post)):
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
