"""Readers of JSON and TOML, with the same errors; writers of JSON and YAML.

A JSON document is UTF-8 text without lone surrogates, with integers of at most 64 bits, so that its values
can be printed, hashed and stored.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from aptool.errors import InputError, first_line
from aptool.paths import Location

_LONE = re.compile("[\ud800-\udfff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: str | Location, expected: str = "JSON") -> Any:
    """Read a JSON file; ``expected`` describes the document in errors."""
    return parse_json(_text(path, expected), path, expected=expected)


def parse_json(
    text: str,
    where: object,
    *,
    position: str | None = None,
    expected: str = "JSON",
    strict: bool = False,
) -> Any:
    """Parse the JSON text of a file, ``where``, at a position in it.

    ``strict`` refuses repeated keys, NaN and infinity, which RFC 8259 calls not interoperable.
    """
    checks: dict[str, Any] = (
        {"object_pairs_hook": _distinct, "parse_constant": _no_constant} if strict else {}
    )
    try:
        value = json.loads(text, parse_int=_integer, **checks)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise InputError(where, position=position, problem="nested too deeply", expected=expected) from error
    except json.JSONDecodeError as error:
        at = f"character {error.pos + 1}" if error.lineno == 1 else f"line {error.lineno}"
        problem = f"{error.msg} at {at}"
        raise InputError(where, position=position, problem=problem, expected=expected) from error
    except ValueError as error:
        raise InputError(where, position=position, problem=first_line(error), expected=expected) from error
    return value


def json_text(value: Any) -> str:
    """Format a document as indented JSON; lone surrogates become escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _LONE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text) + "\n"


def read_toml(path: str | Location, expected: str) -> dict[str, Any]:
    """Read a TOML file; ``expected`` describes the document in errors."""
    return parse_toml(_text(path, expected), path)


def parse_toml(text: str, where: object) -> dict[str, Any]:
    """Parse a TOML text."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise InputError(where, problem="nested too deeply", expected="TOML") from error
    except ValueError as error:
        raise InputError(where, problem=first_line(error), expected="TOML") from error


def _text(path: str | Location, expected: str) -> str:
    try:
        source = Path(path) if isinstance(path, str) else path
        if not source.is_file():  # opening a pipe would block
            raise InputError(path, problem="file not found", expected=expected)
        with source.open("rb") as file:
            return file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(path, problem=str(error), expected="text in UTF-8") from error
    except OSError as error:
        raise InputError(path, problem=error.strerror or str(error), expected=expected) from error


def _integer(digits: str) -> int:
    value = int(digits)  # raises for thousands of digits
    if value.bit_length() > 64:
        raise ValueError(f"an integer of {value.bit_length():,} bits")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("an object with the same key twice")
    return entries


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
