"""An actor with the messages of workers. Its module imports no library: its process starts quickly."""

from typing import Any


class MessageBoard:
    """A Ray actor that buffers the messages of workers until the driver polls it."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, str, Any]] = []
        self._has_error = False

    def post(self, worker: int, kind: str, value: Any) -> None:
        """Add a message; progress replaces a previous message with progress of the same worker."""
        if self._messages and kind == "progress" and self._messages[-1][:2] == (worker, kind):
            self._messages.pop()
        self._messages.append((worker, kind, value))
        self._has_error |= kind == "error"

    def has_error(self) -> bool:
        """Whether an error has been posted, also if it was taken."""
        return self._has_error

    def take(self) -> list[tuple[int, str, Any]]:
        """All messages since the last call."""
        messages, self._messages = self._messages, []
        return messages
