"""Text files, local or remote, plain or packed: lines, and JSON objects.

A line ends in LF or CR LF and nowhere else: Python's ``str.splitlines`` would also end one at U+2028, and
`csv` at a lone CR. A byte order mark is skipped; that of UTF-16 tells the encoding.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from aptool.documents import parse_json
from aptool.errors import InputError, first_few
from aptool.formats.inputs import UTF_16, check_is_text, open_unpacked, readable

FIELD_OPTION = "--field"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DEEPEST_FIELD = 4

Row = TypeVar("Row")


def read_lines(
    path: str | Path,
    encoding: str | None = None,
    hint: str = "",
    recognise: Callable[[bytes], str | None] | None = None,
) -> Iterator[tuple[int, str]]:
    """Read the lines of a text file, with their numbers from 1; refuse NUL bytes and lone CR.

    An ``encoding`` of None is UTF-16 with a byte order mark, else what ``recognise`` returns for the first
    bytes, else UTF-8. The error for another encoding has the ``hint``.
    """
    with open_unpacked(path) as file, readable(path):
        start = file.peek()  # all of a small file
        check_is_text(path, start)
        lines: Iterable[bytes] = file
        if encoding is None and start.startswith(UTF_16):
            encoding = "utf-16"
        elif encoding is None and recognise is not None:
            encoding = recognise(start)
        if encoding is not None:
            text = io.TextIOWrapper(file, encoding, newline="\n")
            lines = (line.encode() for line in text)
        for number, raw in enumerate(lines, 1):
            line = raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw
            yield number, _decode(path, number, line, hint)


def read_rows(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read lines as `read_lines` does; blank lines are skipped at the end and refused elsewhere."""
    return without_blank_end(path, read_lines(path), str.strip)


def without_blank_end(
    path: str | Path,
    rows: Iterable[tuple[int, Row]],
    content: Callable[[Row], object],
    hint: Callable[[], str] = str,
) -> Iterator[tuple[int, Row]]:
    """Yield numbered rows; rows without content are skipped at the end, or refused with the hint."""
    blank = 0
    for number, row in rows:
        if not content(row):
            blank = blank or number
        elif blank:
            expected = f"a row; only the end may be blank{hint()}"
            raise InputError(path, position=f"line {blank}", value="", expected=expected)
        else:
            yield number, row


def _decode(path: str | Path, number: int, raw: bytes, hint: str) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    for byte, name, expected in (
        (b"\0", "a NUL byte", "text, not a binary file"),
        (b"\r", "a carriage return", "lines that end in LF or CR LF"),
    ):
        if byte in raw:
            position = f"line {number}, byte {raw.index(byte) + 1}"
            raise InputError(path, position=position, value=name, expected=expected)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        position = f"line {number}, byte {error.start + 1}"
        bad = raw[error.start : error.start + 1]
        raise InputError(path, position=position, value=bad, expected=f"text in UTF-8{hint}") from error


def read_objects(
    path: str | Path, *, strict: bool = False, field: str | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the objects of a file, each with its position: ``line 3`` of JSON Lines, or ``item 3``.

    JSON Lines are streamed; all other layouts are held in memory. ``strict`` is that of `parse_json`, and
    ``field`` the path of keys, joined by dots, to the list of objects in a document.
    """
    if field is None and _is_json_lines(path):
        for number, line in read_lines(path):
            if line.strip():
                position = f"line {number}"
                value = parse_json(line, path, position=position, expected="one JSON object", strict=strict)
                yield position, _object(path, position, value)
        return
    text = "".join(f"{line}\n" for _, line in read_lines(path))
    expected = "an array of JSON objects" if text.lstrip().startswith("[") else "one JSON document"
    document = parse_json(text, path, expected=expected, strict=strict)
    for number, value in enumerate(_items(path, document, field), 1):
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
    line = next((line for _, line in read_lines(path) if line.strip()), "").lstrip()
    if not line.startswith("{"):
        return not line.startswith("[")
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.msg == "Extra data"
    except (ValueError, RecursionError):
        return True  # `parse_json` refuses this line
    return True


def _items(path: str | Path, document: Any, field: str | None) -> Iterator[Any]:
    """The objects at the path ``field`` of a document, through all items of the lists on the path."""
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


def _object(path: str | Path, position: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(path, position=position, value=value, expected="a JSON object")
    return value
