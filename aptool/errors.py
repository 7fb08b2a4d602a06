"""The mistakes a user can make, each of which ends in one line and an exit code.

Everything else that goes wrong is a programming error and stays an ordinary exception.
"""

from os import PathLike

_UNSET = object()
_LONGEST_VALUE = 80
_LONGEST_PROBLEM = 200


class AptoolError(Exception):
    """The input or the environment is at fault; the command ends with exit code 1."""

    exit_code = 1


class UsageError(AptoolError):
    """The command was asked for in a way that cannot work; it ends with exit code 2."""

    exit_code = 2


def error_with(exit_code: int, message: str) -> AptoolError:
    """A mistake found in another process, by the exit code and the line it would have ended in there."""
    return (UsageError if exit_code == UsageError.exit_code else AptoolError)(message)


class InputError(AptoolError):
    """A file holds something other than what was expected there.

    The message reads ``FILE: PLACE: column 'COLUMN': VALUE: expected EXPECTED``, or with a problem in words
    ``FILE: PLACE: column 'COLUMN': PROBLEM; expected EXPECTED``; parts that are not given are left out, and a
    long value is shortened.
    """

    def __init__(
        self,
        path: str | PathLike[str],
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
            parts.append(f"{one_line(problem)}; expected {expected}")
        else:
            parts.append(f"expected {expected}")
        super().__init__(": ".join(parts))
        self.path = str(path)


def shortened(value: object) -> str:
    """``repr(value)`` on one line, cut to what fits in a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def one_line(text: str) -> str:
    """A description on one line, cut to what fits in a message."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_PROBLEM else line[: _LONGEST_PROBLEM - 1] + "…"
