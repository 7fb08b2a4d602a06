"""Checks of arguments; an ``InputError`` names the argument, its value and the expected type."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard

from aptool.errors import InputError, UsageError
from aptool.paths import Url, with_home

PathLike: TypeAlias = str | os.PathLike[str] | Url

# Maximum of waits and intervals: one year.
LONGEST_SECONDS = 365 * 24 * 3600


def is_path(value: object) -> TypeGuard[PathLike]:
    """Whether a value is a path or URL; a text may be any path."""
    return isinstance(value, str | os.PathLike | Url)


def check_path(name: str, value: object, expected: str = "a path (str or os.PathLike)") -> str:
    """Return a path or URL as a string."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, Url):
        return str(path)
    if not isinstance(path, str) or not path or "\0" in path:
        raise InputError(name, value=value, expected=expected)
    return with_home(path)


def check_paths(name: str, value: object) -> list[str]:
    """Return one or several paths or URLs as a list of strings."""
    single = isinstance(value, str | Url) or not isinstance(value, Iterable)
    paths = [value] if single else check_list(name, list(value), "at least one path")  # type: ignore[call-overload]
    return [check_path(name, path) for path in paths]


def check_text(name: str, value: object, position: str | None = None, expected: str = "text (str)") -> str:
    """Return a text that UTF-8 can encode; it may be empty."""
    if not isinstance(value, str):
        raise InputError(name, position=position, value=value, expected=expected)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            name, position=position, value=value, expected="text that UTF-8 can encode"
        ) from error
    return value


def check_device(device: object) -> str:
    """Return the name of a device, from a string or a ``torch.device``."""
    torch = sys.modules.get("torch")  # a device of PyTorch exists only if it was imported
    name = str(device) if torch is not None and isinstance(device, torch.device) else device
    return check_text("device", name, expected="auto, cpu or a GPU such as cuda")


def check_list(name: str, value: object, expected: str, *, empty: bool = False) -> list[Any]:
    """Return the items of an iterable that is not a text, a dict or a set; ``empty`` allows no items."""
    wrong = isinstance(value, str | bytes | dict | set | frozenset) or not isinstance(value, Iterable)
    items: list[Any] = [] if wrong else list(value)  # type: ignore[call-overload]
    if wrong or not (items or empty):
        raise InputError(name, value=value if wrong else [], expected=expected)
    return items


def check_integer(name: str, value: object, least: int, below: int | None = None) -> int:
    """Return an integer of at least ``least`` and below ``below``."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not good or (below is not None and value >= below):  # type: ignore[operator]
        bound = f" and below {below}" if below is not None else ""
        raise InputError(name, value=value, expected=f"an integer of at least {least}{bound}")
    return value  # type: ignore[return-value]


def check_number(name: str, value: object, least: float, most: float) -> float:
    """Return a number from ``least`` to ``most``."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not least <= value <= most:  # type: ignore[operator]
        raise InputError(name, value=value, expected=f"a number from {least:g} to {most:g}")
    return value  # type: ignore[return-value]


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return a name that is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(name, value=value, expected=f"one of {', '.join(choices)}")
    return value


def check_one_word(name: str, value: object) -> None:
    """Raise if the option ``name``, such as the tag of a run, is not one word."""
    if not isinstance(value, str) or value.split() != [value]:
        raise UsageError(f"{name} {value!r}: expected one word")
