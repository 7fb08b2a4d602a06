"""Readers of JSON and TOML, with the same errors; JSON Schemas; a writer of JSON.

A JSON document is UTF-8 text without lone surrogates, with integers of at most 64 bits, so that its values
can be printed, hashed and stored.
"""

import json
import re
import tomllib
from functools import cache
from importlib import resources
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


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Load ``NAME.schema.json``, a resource of the package; in a checkout, of the folder ``schemas``."""
    file = resources.files("aptool") / "schemas" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def check_document(name: str, document: object, path: object) -> None:
    """Validate a JSON or TOML document; an error names the position in the document and the value."""
    import jsonschema

    error = jsonschema.exceptions.best_match(_validator(name).iter_errors(document))
    if error is None:
        return
    position = "/".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        raise InputError(path, position=position, expected=f"the entry {missing[0]!r}")
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        allowed = sorted(error.schema.get("properties", {}))
        extra = sorted(set(error.instance) - set(allowed))
        raise InputError(path, position=position, value=extra[0], expected=f"one of {', '.join(allowed)}")
    expected = f"{error.validator} {json.dumps(error.validator_value)}"
    raise InputError(path, position=position, value=error.instance, expected=expected)


@cache
def _validator(name: str) -> Any:
    import jsonschema

    kind = jsonschema.Draft202012Validator
    # In JSON Schema 16.0 is an integer, but readers of these documents expect an int.
    types = kind.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return jsonschema.validators.extend(kind, type_checker=types)(load_schema(name))


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
