"""The JSON Schemas of aptool's files, and the Arrow schemas of those in Parquet.

JSON Schemas are resources of the package; in a checkout ``aptool/schemas`` links to the folder ``schemas``.
"""

import json
from functools import cache
from importlib import resources
from typing import Any, Literal

import pyarrow as pa

from aptool.errors import InputError

Schema = dict[str, Any]

Table = Literal["answers", "pools", "qrels", "scores"]


@cache
def load_schema(name: str) -> Schema:
    """Load the schema ``NAME.schema.json``."""
    file = resources.files("aptool") / "schemas" / f"{name}.schema.json"
    schema: Schema = json.loads(file.read_text(encoding="utf-8"))
    return schema


@cache
def arrow_schema(name: Table, *, optional: bool = False) -> pa.Schema:
    """The Arrow schema of the rows of ``NAME.schema.json`` or of qrels, with or without optional columns."""
    question_id, answer_id, question, text = (
        pa.field(column, pa.string(), nullable=False)
        for column in ("question_id", "answer_id", "question", "text")
    )
    if name == "answers":
        return pa.schema([answer_id, text])
    if name == "qrels":
        return pa.schema([question_id, answer_id, pa.field("relevance", pa.int64(), nullable=False)])
    if name == "scores":
        ranks = [pa.field("rank", pa.int64(), nullable=False)] if optional else []
        return pa.schema([question_id, answer_id, *ranks, pa.field("score", pa.float64(), nullable=False)])
    columns = [answer_id, text.with_nullable(True)]
    if optional:
        columns.append(pa.field("text_id", pa.string()))
    candidate = pa.field("element", pa.struct(columns), nullable=False)
    candidates = pa.field("candidates", pa.list_(candidate), nullable=False)
    return pa.schema([question_id, question, candidates])


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
