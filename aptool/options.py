"""Option classes: dataclasses built from tables of plain values, with checks of types and bounds."""

import difflib
import math
import types
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from aptool.errors import InputError

T = TypeVar("T")

_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}

# Default upper bounds of numbers: counts must fit in 31 bits.
BELOW = {int: 2**31, float: 1e6}

# Upper bound of the width of vectors, layers and windows, given the memory of machines.
WIDEST = 1 << 16


@dataclass(frozen=True)
class NoOptions:
    """No options."""


def bounded(default: Any, *, least: float = 0, below: float | None = None) -> Any:
    """A dataclass field for a number of at least ``least`` and less than ``below``."""
    below = BELOW[type(default)] if below is None else below
    return field(default=default, metadata={"least": least, "below": below})


def build_options(kind: type[T], table: dict[str, Any], where: str, position: str = "") -> T:
    """Build an option class from a table of entries and nested sections.

    Errors name the file ``where`` and the entry after the prefix ``position``, such as ``"training."``.
    """
    hints = get_type_hints(kind)
    options = {option.name: option for option in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in table.items():
        if name in options:
            values[name] = _checked(hints[name], value, where, position + name)
            if hints[name] in BELOW:
                bounds = options[name].metadata
                least, below = bounds.get("least", 0), bounds.get("below", BELOW[hints[name]])
                if not least <= values[name] < below:
                    expected = f"{least} or more and below {below}"
                    raise InputError(where, position=position + name, value=values[name], expected=expected)
        else:
            near = difflib.get_close_matches(name, sorted(options), n=1)
            expected = f"{near[0]!r} perhaps" if near else f"one of {', '.join(sorted(options))}"
            problem = "unknown option" if position else "unknown section"
            raise InputError(where, position=position + name, problem=problem, expected=expected)
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(
            where, position=position.rstrip(".") or None, problem=str(error), expected="every entry"
        ) from error


def _checked(hint: Any, value: Any, where: str, position: str) -> Any:
    """Return a value of the type ``hint``; raise for any other value."""
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        if isinstance(value, dict):
            return build_options(hint, value, where, position + ".")
        raise InputError(where, position=position, value=value, expected="a section")
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        choices = ", ".join(map(str, get_args(hint)))
        raise InputError(where, position=position, value=value, expected=f"one of {choices}")
    if get_origin(hint) in (types.UnionType, dict):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if value.bit_length() < 1024 else math.inf
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise InputError(where, position=position, value=value, expected=_TYPE_NAMES.get(hint, hint.__name__))
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < math.inf:
        raise InputError(where, position=position, value=value, expected="a finite number of 0 or more")
    return value
