"""Errors that a user can cause; the command line prints each as one line and ends with its exit code.

Any other exception is a fault of the program.
"""

from collections.abc import Sequence
from typing import Any

_UNSET = object()
_LONGEST_VALUE = 80
_LONGEST_PROBLEM = 200
MOST_EXAMPLES = 5


class AptoolError(Exception):
    """The input or the environment is at fault: exit code 1."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """As another process gets it: the exit code and the line, not what a subclass is made from."""
        return error_with, (self.exit_code, str(self))


class UsageError(AptoolError):
    """A command, or a function of the library, was called in a way that cannot work: exit code 2."""

    exit_code = 2


def error_with(exit_code: int, message: str) -> AptoolError:
    """The error that another process reported, from its exit code and message."""
    return (UsageError if exit_code == UsageError.exit_code else AptoolError)(message)


class InputError(AptoolError):
    """The content of a file, or the file itself, is not as expected.

    The message is ``FILE: PLACE: column 'COLUMN': VALUE: expected EXPECTED``, or with a problem in words
    ``FILE: PLACE: column 'COLUMN': PROBLEM; expected EXPECTED``. Parts that are not given are left out, and
    long values and problems are shortened.

    Args:
        path: the file or folder, or its URL.
        expected: what should be there, in words.
        place: where in the file, such as ``line 3``.
        column: the column of a table.
        value: the value that was found; its ``repr`` is shown.
        problem: what is wrong, in words, such as ``file not found``.
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
    """``repr(value)``, cut to the length that fits in a message."""
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print very long ones
        return f"an integer of {value.bit_length():,} bits"
    text = repr(value)
    if "\n" in text:  # of a table, say
        text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def printable(text: str) -> str:
    """A text that UTF-8 can express: the bytes of a file's name that it cannot are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def counted(number: int, noun: str) -> str:
    """A number and what it counts: ``1 question``, ``2,000 questions``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type where there is no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def first_few(names: Sequence[str], total: int | None = None) -> str:
    """The first few names, and an ellipsis if there are more.

    Args:
        names: the names, or some of them.
        total: how many there are; None if these are all.
    """
    total = len(names) if total is None else total
    return ", ".join(names[:MOST_EXAMPLES]) + (", …" if total > MOST_EXAMPLES else "")


def one_line(text: str) -> str:
    """A text on one line, cut to the length that fits in a message."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_PROBLEM else line[: _LONGEST_PROBLEM - 1] + "…"
