"""Classes of options: dataclasses that are built from tables of plain values, with each entry checked.

The annotation of a field is the type of its entry, ``bounded`` its bounds.
"""

import difflib
import math
import types
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from aptool.errors import InputError

T = TypeVar("T")

_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}

# Removed options of recipes and their defaults; LAST_WITH_REMOVED is the last version that had them.
REMOVED = {
    "pooling.residual": 0.0,
    "pooling.normalize": False,
    "training.label_smoothing": 0.0,
    "training.relevant_answers": 1,
    "training.shared_draw": False,
    "training.layer_decay": 0.0,
}
REMOVED_TYPES = {
    "pooling.type": ("soft-maxsim", "polyencoder", "multi-vector"),
    "similarity.type": ("euclid",),
}
LAST_WITH_REMOVED = "0.2.0"


# Bounds of numbers that have none of their own. A count beyond 31 bits does not fit wherever it goes to, and
# no step, weight or rate of use is as large.
BELOW = {int: 2**31, float: 1e6}

# No vector, layer or window of use is wider; a wider one would ask for memory that no machine has.
WIDEST = 1 << 16


def bounded(default: Any, *, least: float = 0, below: float | None = None) -> Any:
    """A field of an options class for a number of at least ``least`` and less than ``below``."""
    below = BELOW[type(default)] if below is None else below
    return field(default=default, metadata={"least": least, "below": below})


def build_options(kind: type[T], table: dict[str, Any], where: str, place: str = "") -> T:
    """Builds the dataclass ``kind`` from a table, checking names, types and bounds; sections may nest.

    Args:
        kind: an options class, or ``Recipe``.
        table: its entries.
        where: the file they are from, for errors.
        place: prefix of the entries' names, for errors: ``"training."``.

    Raises:
        InputError: an entry is unknown (the message suggests the nearest name), removed, missing, of the
            wrong type or out of bounds.
    """
    hints = get_type_hints(kind)
    known = {option.name: option for option in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in table.items():
        if name not in known and place + name in REMOVED:
            _check_removed(value, where, place + name)
            continue
        if name not in known:
            raise _unknown(name, list(known), where, place)
        values[name] = _checked(hints[name], value, where, place + name)
        _check_bounds(known[name].metadata or bounds_of(hints[name]), values[name], where, place + name)
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(
            where, place=place.rstrip(".") or None, problem=str(error), expected="every entry"
        ) from error


def _unknown(name: str, known: list[str], where: str, place: str) -> InputError:
    """The error for a name that is not one of ``known``."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    expected = f"{near[0]!r} perhaps" if near else f"one of {', '.join(sorted(known))}"
    problem = "unknown option" if place else "unknown section"
    return InputError(where, place=place + name, problem=problem, expected=expected)


def _check_removed(value: Any, where: str, place: str) -> None:
    """Accept a removed option at its default, as recipes of earlier models have it."""
    if value != REMOVED[place]:
        raise InputError(where, place=place, value=value, expected=expected_without(repr(REMOVED[place])))


def expected_without(alternative: str) -> str:
    """The expectation of an error about a removed option or type."""
    return f"{alternative}; aptool {LAST_WITH_REMOVED} was the last version with it"


def bounds_of(hint: Any) -> dict[str, float]:
    """The bounds of a number that has none of its own; nothing for another type."""
    return {"least": 0, "below": BELOW[hint]} if hint in BELOW else {}


def _check_bounds(bounds: Mapping[str, float], value: Any, where: str, place: str) -> None:
    if bounds and value is not None and not bounds["least"] <= value < bounds["below"]:
        expected = f"{bounds['least']} or more and below {bounds['below']}"
        raise InputError(where, place=place, value=value, expected=expected)


def _checked(hint: Any, value: Any, where: str, place: str) -> Any:
    """The value of an entry, if it is of the type that ``hint`` says."""
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        if isinstance(value, dict):
            return build_options(hint, value, where, place + ".")
        raise InputError(where, place=place, value=value, expected="a section")
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        choices = ", ".join(map(str, get_args(hint)))
        raise InputError(where, place=place, value=value, expected=f"one of {choices}")
    if get_origin(hint) in (types.UnionType, dict):
        return value
    if get_origin(hint) is list:
        (kind,) = get_args(hint)
        if isinstance(value, list):
            return [_checked(kind, item, where, f"{place}, item {n}") for n, item in enumerate(value)]
        raise InputError(where, place=place, value=value, expected=f"a list, each item {_TYPE_NAMES[kind]}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise InputError(where, place=place, value=value, expected=_TYPE_NAMES.get(hint, hint.__name__))
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < math.inf:
        raise InputError(where, place=place, value=value, expected="a finite number of 0 or more")
    return value
