"""JSON objects in a file: one on each line, or all in one array."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aptool.datasets.lines import open_plain, read_lines, readable
from aptool.documents import parse_json
from aptool.errors import InputError


def unit_of(path: str | Path) -> str:
    """What a file counts its objects in: ``item`` if it is one array, else ``line``.

    Raises:
        InputError: the file cannot be read.
    """
    with open_plain(path) as file, readable(path):
        while True:
            byte = file.read(1)
            if not byte or not (byte.isspace() or byte in b"\xef\xbb\xbf"):
                return "item" if byte == b"[" else "line"


def read_objects(path: str | Path, *, strict: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with their numbers from 1, in the file's unit.

    Lines are streamed; an array is held in memory.

    Args:
        path: local or remote, plain or gzip.
        strict: see ``parse_json``.

    Raises:
        InputError: the file cannot be read, or something in it is not an object; the place is named.
    """
    if unit_of(path) == "item":
        text = "".join(f"{line}\n" for _, line in read_lines(path))
        items = parse_json(text, path, expected="an array of JSON objects", strict=strict)
        for number, value in enumerate(items, 1):
            yield number, _object(path, f"item {number}", value)
        return
    for number, line in read_lines(path):
        if line.strip():
            place = f"line {number}"
            value = parse_json(line, path, place=place, expected="one JSON object", strict=strict)
            yield number, _object(path, place, value)


def _object(path: str | Path, place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(path, place=place, value=value, expected="a JSON object")
    return value
