"""An actor with the messages of workers. Its module imports no library: its process starts quickly."""

from typing import Any


class MessageBoard:
    """A Ray actor that buffers the messages of workers until the driver polls it."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []
        self._has_error = False

    def post(self, kind: str, value: Any) -> None:
        """Add a message."""
        self._messages.append((kind, value))
        self._has_error |= kind == "error"

    def has_error(self) -> bool:
        """Whether an error has been posted, also if it was taken."""
        return self._has_error

    def take(self) -> list[tuple[str, Any]]:
        """All messages since the last call."""
        messages, self._messages = self._messages, []
        return messages
