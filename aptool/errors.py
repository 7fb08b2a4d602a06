"""Errors that a user can cause; any other exception is a bug. A command prints the message as one line."""

from collections.abc import Sequence
from typing import Any

_UNSET = object()
_LONGEST_VALUE = 80
_LONGEST_PROBLEM = 200
MOST_EXAMPLES = 5


class AptoolError(Exception):
    """An error of the input or of the environment; the base class of all errors of aptool.

    The message is one line: the file or the argument, the place in it, the value and what was expected.

    Attributes:
        exit_code: exit code of a command: 1, or 2 for a ``UsageError``.

    Example:
        >>> try:
        ...     aptool.Run.from_dict({"q1": {"a": float("nan")}})
        ... except aptool.AptoolError as error:
        ...     print(error)
        run: question 'q1', answer 'a': column 'score': nan: expected a finite number
    """

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the exit code and the message: a subclass may have other arguments."""
        return error_with, (self.exit_code, str(self))


class UsageError(AptoolError):
    """A wrong option of a command, or a wrong argument: exit code 2."""

    exit_code = 2


def error_with(exit_code: int, message: str) -> AptoolError:
    """The error of another process, from its exit code and message."""
    return (UsageError if exit_code == UsageError.exit_code else AptoolError)(message)


class InputError(AptoolError):
    """A file or an argument has an unexpected value.

    The message is ``PATH: PLACE: column 'COLUMN': VALUE: expected EXPECTED``, or with a problem
    ``PATH: PLACE: column 'COLUMN': PROBLEM; expected EXPECTED``. Long values and problems are shortened.

    Args:
        path: the file, folder, URL or argument.
        expected: the expected value, in words.
        place: the place in the file, such as ``line 3``.
        column: the column of a table.
        value: the wrong value; the message contains its ``repr``.
        problem: the problem, in words, such as ``file not found``.
    """

    def __init__(
        self,
        path: object,
        *,
        expected: str,
        place: str | None = None,
        column: str | None = None,
        value: object = _UNSET,
        problem: str | None = None,
    ) -> None:
        parts = [str(path)]
        if place is not None:
            parts.append(place)
        if column is not None:
            parts.append(f"column {column!r}")
        if value is not _UNSET:
            parts.append(shortened(value))
        if problem is not None:
            parts.append(f"{one_line(problem).rstrip('.')}; expected {expected}")
        else:
            parts.append(f"expected {expected}")
        super().__init__(printable(": ".join(parts)))
        self.path = str(path)


def shortened(value: object) -> str:
    """``repr(value)``, truncated for a message."""
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print very long integers
        return f"an integer of {value.bit_length():,} bits"
    text = repr(value)
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def printable(text: str) -> str:
    """A text that UTF-8 can encode: other bytes of a file name become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def counted(number: int, noun: str) -> str:
    """A number and a noun: ``1 question``, ``2,000 questions``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_line(error: BaseException) -> str:
    """The first line of the message of an exception, or its type if it has no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def first_few(names: Sequence[str], total: int | None = None) -> str:
    """The first names, with an ellipsis if there are more (``total``; None counts ``names``)."""
    total = len(names) if total is None else total
    return ", ".join(names[:MOST_EXAMPLES]) + (", …" if total > MOST_EXAMPLES else "")


def one_line(text: str) -> str:
    """A text on one line, truncated for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_PROBLEM else line[: _LONGEST_PROBLEM - 1] + "…"
