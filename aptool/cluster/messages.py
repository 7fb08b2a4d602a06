"""Messages of training workers: posted to an actor by the first worker, taken from there by the driver."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ray

from aptool.progress import Progress, Update, get_progress, use_progress

logger = logging.getLogger(__name__)

# Seconds between two looks at the board, and between two posts of progress.
POLL_SECONDS = 0.3


class WorkerError(NamedTuple):
    """An ``AptoolError`` of a worker: the exit code and the line with which the driver ends."""

    exit_code: int
    line: str


class MessageBoard:
    """An actor that holds the messages of the first worker until the driver takes them."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []

    def post(self, kind: str, value: Any) -> None:
        """Adds a message; only the latest progress is kept."""
        if self._messages and kind == "progress" and self._messages[-1][0] == kind:
            self._messages.pop()
        self._messages.append((kind, value))

    def take(self) -> list[tuple[str, Any]]:
        """All messages since the last time."""
        messages, self._messages = self._messages, []
        return messages


@contextlib.contextmanager
def forwarded(board: Any) -> Iterator[list[WorkerError]]:
    """Passes the workers' messages on to this process's log and progress while the block runs."""
    errors: list[WorkerError] = []
    over = threading.Event()

    def listen(update: Update) -> None:
        receive: dict[str, Callable[[Any], None]] = {
            "log": logger.info,
            "progress": lambda state: update(*state),
            "epoch": get_progress().epoch,
            "error": lambda error: errors.append(WorkerError(*error)),
            "end": lambda _: None,
        }
        last = False
        while not last:
            last = over.wait(POLL_SECONDS)
            try:
                messages = ray.get(board.take.remote(), timeout=30)
            except ray.exceptions.RayError:
                continue  # the board's node is lost, which does not stop the workers
            for kind, value in messages:
                receive[kind](value)

    with get_progress().task("train") as update:
        listener = threading.Thread(target=listen, args=(update,), daemon=True)
        listener.start()
        try:
            yield errors
        finally:
            over.set()
            listener.join()


class _BoardProgress(Progress):
    """Posts the progress of the first worker to the board."""

    def __init__(self, board: Any) -> None:
        self._board = board

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[Update]:
        """See ``Progress.task``."""
        posted = 0.0

        def update(done: int, total: int, detail: str = "") -> None:
            nonlocal posted
            if time.monotonic() - posted > POLL_SECONDS:
                posted = time.monotonic()
                self._board.post.remote("progress", (done, total, detail))

        yield update

    def epoch(self, entry: dict[str, Any]) -> None:
        """See ``Progress.epoch``."""
        self._board.post.remote("epoch", entry)


class _BoardHandler(logging.Handler):
    """Posts log messages to the board."""

    def __init__(self, board: Any) -> None:
        super().__init__(logging.INFO)
        self._board = board

    def emit(self, record: logging.LogRecord) -> None:
        """Posts one message to the board."""
        self._board.post.remote("log", record.getMessage())


@contextlib.contextmanager
def reporting_to(board: Any) -> Iterator[None]:
    """Sends messages and progress of this process to the board; drops them where there is none."""
    if board is None:
        with use_progress(_Silence()):
            yield
        return
    root = logging.getLogger("aptool")
    handler, level = _BoardHandler(board), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with use_progress(_BoardProgress(board)):
            yield
        # A board takes the messages of one process in order: once this one is there, all are.
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(board.post.remote("end", None), timeout=30)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class _Silence(Progress):
    """Reports nothing, not even epochs: the first worker does."""

    def epoch(self, entry: dict[str, Any]) -> None:
        """See ``Progress.epoch``."""
