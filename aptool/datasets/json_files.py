"""JSON objects in a file: one per line, in an array, one after the other, or in a list inside a document."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aptool.datasets.lines import open_plain, read_lines, readable
from aptool.datasets.policies import FIELD_OPTION
from aptool.documents import parse_json
from aptool.errors import InputError, first_few

_SPACE = re.compile(r"[ \t\r\n]*")
_DEEPEST_FIELD = 4


def read_objects(
    path: str | Path, *, strict: bool = False, field: str | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the objects of a file, each with its place: ``line 3`` of JSON Lines, or ``item 3``.

    JSON Lines are streamed; all other layouts are held in memory.

    Args:
        path: local or remote, plain or gzip.
        strict: see `parse_json`.
        field: path of keys, joined by dots, to the list of objects in a document.
    """
    if field is None and _is_json_lines(path):
        for number, line in read_lines(path):
            if line.strip():
                place = f"line {number}"
                value = parse_json(line, path, place=place, expected="one JSON object", strict=strict)
                yield place, _object(path, place, value)
        return
    text = "".join(f"{line}\n" for _, line in read_lines(path))
    items = (item for document in _documents(path, text, strict) for item in _items(path, document, field))
    for number, value in enumerate(items, 1):
        yield f"item {number}", _object(path, f"item {number}", value)


def list_fields(value: Any, key: str) -> list[str]:
    """The dotted paths to lists of objects in a document; lists whose objects have ``key`` come first."""
    paths: dict[str, bool] = {}
    level = [("", value)]
    for _ in range(_DEEPEST_FIELD):
        level = [
            (f"{path}.{name}".lstrip("."), inner)
            for path, outer in level
            for name, inner in (outer.items() if isinstance(outer, dict) else ())
            if "." not in name
        ]
        for index, (path, inner) in enumerate(level):
            if isinstance(inner, list) and inner and isinstance(inner[0], dict):
                paths.setdefault(path, key in inner[0])
                level[index] = path, inner[0]
    return sorted(paths, key=lambda path: not paths[path])


def _is_json_lines(path: str | Path) -> bool:
    with open_plain(path) as file, readable(path):
        byte = file.read(1)
        while byte and (byte.isspace() or byte in b"\xef\xbb\xbf"):
            byte = file.read(1)
    if byte == b"[":
        return False
    line = next((line for _, line in read_lines(path) if line.strip()), "")
    return not line.lstrip().startswith("{") or _is_json(line)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.msg == "Extra data"
    except (ValueError, RecursionError):
        return True  # `parse_json` refuses this line
    return True


def _documents(path: str | Path, text: str, strict: bool) -> Iterator[Any]:
    """Parse the JSON values that follow each other in a text."""
    decoder = json.JSONDecoder()
    start = _SPACE.match(text).end()  # type: ignore[union-attr]
    while start < len(text):
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = len(text)  # `parse_json` reports the fault
        lines_before = "\n" * text.count("\n", 0, start)
        expected = "an array of JSON objects" if text[start] == "[" else "JSON objects, one after the other"
        yield parse_json(lines_before + text[start:end], path, expected=expected, strict=strict)
        start = _SPACE.match(text, end).end()  # type: ignore[union-attr]


def _items(path: str | Path, document: Any, field: str | None) -> Iterator[Any]:
    """The objects of one document; a list on the way to the field means all of its objects."""
    values = document if isinstance(document, list) else [document]
    for key in field.split(".") if field is not None else ():
        if not all(isinstance(value, dict) and key in value for value in values):
            paths = [f"{FIELD_OPTION} {path}" for path in list_fields(document, "")]
            expected = (
                f"a path to a list of objects, such as {first_few(paths)}" if paths else "no such option"
            )
            raise InputError(path, problem=f"no key {key!r} for {FIELD_OPTION} {field}", expected=expected)
        inner = (value[key] for value in values)
        values = [item for value in inner for item in (value if isinstance(value, list) else [value])]
    yield from values


def _object(path: str | Path, place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(path, place=place, value=value, expected="a JSON object")
    return value
