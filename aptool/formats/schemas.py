"""The JSON Schemas of aptool's files, and Arrow schemas derived from them.

They are resources of the package; in a checkout ``aptool/schemas`` links to the folder ``schemas``.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

import pyarrow as pa

from aptool.errors import InputError

Schema = dict[str, Any]


@cache
def load_schema(name: str) -> Schema:
    """Load the schema ``NAME.schema.json``."""
    file = resources.files("aptool") / "schemas" / f"{name}.schema.json"
    schema: Schema = json.loads(file.read_text(encoding="utf-8"))
    return schema


@cache
def arrow_schema(name: str, *, optional: bool = False) -> pa.Schema:
    """The Arrow schema of the rows of ``NAME.schema.json``, with or without its optional columns."""
    return pa.schema(_fields(load_schema(name), optional))


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


def _fields(schema: Schema, optional: bool) -> list[pa.Field]:
    return [
        _field(name, part, optional)
        for name, part in schema["properties"].items()
        if optional or name in schema["required"]
    ]


def _field(name: str, schema: Schema, optional: bool) -> pa.Field:
    kind = schema["type"]
    nullable = isinstance(kind, list) and "null" in kind
    return pa.field(name, _type(schema, optional), nullable=nullable)


def _type(schema: Schema, optional: bool) -> pa.DataType:
    kind = schema["type"]
    if isinstance(kind, list):
        kind = next(part for part in kind if part != "null")
    if kind == "array":
        return pa.list_(pa.field("element", _type(schema["items"], optional), nullable=False))
    if kind == "object":
        return pa.struct(_fields(schema, optional))
    return {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}[kind]
