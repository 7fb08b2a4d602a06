"""Messages of workers: posted to an actor, taken from there by the driver."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from aptool.cluster.waiting import repeated

# Seconds between two looks at the board.
POLL_SECONDS = 0.3


class MessageBoard:
    """An actor that holds the messages of workers until the driver takes them."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, str, Any]] = []
        self._has_error = False

    def post(self, worker: int, kind: str, value: Any) -> None:
        """Adds a message; of consecutive progress of a worker, only the latest is kept."""
        if self._messages and kind == "progress" and self._messages[-1][:2] == (worker, kind):
            self._messages.pop()
        self._messages.append((worker, kind, value))
        self._has_error |= kind == "error"

    def has_error(self) -> bool:
        """Whether an error was ever posted."""
        return self._has_error

    def take(self) -> list[tuple[int, str, Any]]:
        """All messages since the last time."""
        messages, self._messages = self._messages, []
        return messages


def start_board() -> Any:
    """A board on the driver's own node, so that it is lost only together with the driver."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor: Any = ray.remote(MessageBoard)
    return actor.options(num_cpus=0, scheduling_strategy=here).remote()


def take_messages(board: Any) -> list[tuple[int, str, Any]]:
    """The messages on a board; none while it does not answer, which does not stop the workers."""
    try:
        messages: list[tuple[int, str, Any]] = ray.get(board.take.remote(), timeout=30)
    except ray.exceptions.RayError:
        return []
    return messages


class BoardPost:
    """Posts to a board as ``relay.Post`` has it, in the name of a worker."""

    def __init__(self, board: Any, worker: int = 0) -> None:
        self._board = board
        self._worker = worker

    def __call__(self, kind: str, value: Any) -> None:
        """Posts a message, without waiting for it."""
        self._board.post.remote(self._worker, kind, value)

    def has_error(self) -> bool:
        """Whether any worker has posted an error; False while the board does not answer."""
        try:
            return bool(ray.get(self._board.has_error.remote(), timeout=30))
        except ray.exceptions.RayError:
            return False

    def flush(self) -> None:
        """Waits for all messages: a board takes those of one process in order."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._board.post.remote(self._worker, "end", None), timeout=30)


@contextlib.contextmanager
def listening(board: Any, receive: Callable[[str, Any], None]) -> Iterator[None]:
    """Calls a function with the kind and value of each message while the block runs, and for those left."""

    def take() -> None:
        for _, kind, value in take_messages(board):
            receive(kind, value)

    try:
        with repeated(POLL_SECONDS, take):
            yield
    finally:
        take()
