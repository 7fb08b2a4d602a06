"""Errors caused by input or environment, with one-line messages; any other exception is a bug."""

import re
from collections.abc import Sequence
from typing import Any

_UNSET = object()
_LONGEST_VALUE = 80
_LONGEST_PROBLEM = 200
MOST_EXAMPLES = 5
_INTERPRETED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class AptoolError(Exception):
    """Base class of all errors caused by the input or the environment.

    The message is one line: the file or the argument, the position in it, the value and the expected value.

    Attributes:
        exit_code: exit code of a command: 1, or 2 for a ``UsageError``.

    Example:
        >>> try:
        ...     aptool.Run({"q1": {"a": float("nan")}})
        ... except aptool.AptoolError as error:
        ...     print(error)
        run: question 'q1', answer 'a': column 'score': nan: expected a finite number
    """

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the exit code and the message, since constructors of subclasses differ."""
        return error_with, (self.exit_code, str(self))


class UsageError(AptoolError):
    """A wrong option of a command, or a wrong argument: exit code 2."""

    exit_code = 2


def error_with(exit_code: int, message: str) -> AptoolError:
    """The error of another process, from its exit code and message."""
    return (UsageError if exit_code == UsageError.exit_code else AptoolError)(message)


def located(error: AptoolError, position: str) -> AptoolError:
    """The error with a position before its message."""
    return error_with(error.exit_code, f"{position}: {error}")


class InputError(AptoolError):
    """A file or an argument has an unexpected value.

    The message is ``PATH: POSITION: column 'COLUMN': VALUE: expected EXPECTED``, or with a problem
    ``PATH: POSITION: column 'COLUMN': PROBLEM; expected EXPECTED``. PATH is a file, folder, URL or argument,
    VALUE the ``repr`` of the wrong value. Long values and problems are shortened.
    """

    def __init__(
        self,
        path: object,
        *,
        expected: str,
        position: str | None = None,
        column: str | None = None,
        value: object = _UNSET,
        problem: str | None = None,
    ) -> None:
        parts = []
        if column is not None:
            parts.append(f"column {column!r}")
        if value is not _UNSET:
            parts.append(shortened(value))
        if problem is not None:
            parts.append(f"{one_line(problem).rstrip('.')}; expected {expected}")
        else:
            parts.append(f"expected {expected}")
        super().__init__(": ".join([str(path), *([position] if position is not None else []), *parts]))


def shortened(value: object) -> str:
    """``repr(value)``, truncated for a message."""
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print very long integers
        return f"an integer of {value.bit_length():,} bits"
    if getattr(value, "shape", ()):  # a data frame or an array
        return f"a {type(value).__module__.partition('.')[0]} {type(value).__name__}"
    text = repr(value)
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def printable(text: str) -> str:
    """Escape characters that a terminal interprets, or that UTF-8 cannot encode.

    These are control characters except tab and line feed, and characters that change the direction of text.
    """
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _INTERPRETED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def counted(number: float, noun: str) -> str:
    """Format a number and a noun: ``1 question``, ``2,000 questions``, ``0.5 CPUs``."""
    text = f"{number:,.0f}" if number % 1 == 0 else f"{number:,g}"
    return f"{text} {noun}{'s' * (number != 1)}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type if the message is empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def first_few(names: Sequence[str], total: int | None = None) -> str:
    """Join the first names, with an ellipsis if ``total`` (by default their number) exceeds the limit."""
    total = len(names) if total is None else total
    return ", ".join(names[:MOST_EXAMPLES]) + (", …" if total > MOST_EXAMPLES else "")


def one_line(text: str) -> str:
    """Join the lines of a text and truncate it for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_PROBLEM else line[: _LONGEST_PROBLEM - 1] + "…"
