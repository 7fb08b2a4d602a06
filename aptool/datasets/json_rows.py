"""JSON objects in a file: one per line, in an array, one after the other, or in a list inside a document."""

import json
import numbers
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aptool.datasets.column_names import ColumnNames, RawPair, label_text, listed, nearest
from aptool.datasets.lines import open_plain, read_lines, readable
from aptool.datasets.pairs import Pair
from aptool.datasets.policies import EMPTY_HINT, FIELD_OPTION, UNLABELLED_OPTION, SplitPolicies
from aptool.documents import parse_json
from aptool.errors import InputError, first_few

_SPACE = re.compile(r"[ \t\r\n]*")
_DEEPEST_FIELD = 4


def unit_of(path: str | Path, field: str | None = None) -> str:
    """The unit in which a file's objects are counted: ``line`` for JSON Lines, else ``item``.

    Args:
        path: local or remote, plain or gzip.
        field: see `read_objects`.

    Raises:
        InputError: the file cannot be read.
    """
    if field is not None or _first_byte(path) == b"[":
        return "item"
    for _, line in read_lines(path):
        if line.strip():
            return "line" if not line.lstrip().startswith("{") or _is_json(line) else "item"
    return "line"


def read_objects(
    path: str | Path, *, strict: bool = False, field: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with their numbers from 1, in the file's unit.

    Lines are streamed; all other layouts are held in memory.

    Args:
        path: local or remote, plain or gzip.
        strict: see ``parse_json``.
        field: path of keys, joined by dots, to the list of objects in a document.

    Raises:
        InputError: the file cannot be read, or something in it is not an object; the place is named.
    """
    if unit_of(path, field) == "item":
        text = "".join(f"{line}\n" for _, line in read_lines(path))
        items = (
            item for document in _documents(path, text, strict) for item in _items(path, document, field)
        )
        for number, value in enumerate(items, 1):
            yield number, _object(path, f"item {number}", value)
        return
    for number, line in read_lines(path):
        if line.strip():
            place = f"line {number}"
            value = parse_json(line, path, place=place, expected="one JSON object", strict=strict)
            yield number, _object(path, place, value)


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


def _first_byte(path: str | Path) -> bytes:
    with open_plain(path) as file, readable(path):
        while True:
            byte = file.read(1)
            if not byte or not (byte.isspace() or byte in b"\xef\xbb\xbf"):
                return byte


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.msg == "Extra data"
    except (ValueError, RecursionError):
        return True  # a line of JSON, which `parse_json` refuses
    return True


def _documents(path: str | Path, text: str, strict: bool) -> Iterator[Any]:
    """The JSON values that follow each other in a text."""
    decoder = json.JSONDecoder()
    start = _SPACE.match(text).end()  # type: ignore[union-attr]
    while start < len(text):
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = len(text)  # `parse_json` says what is wrong
        lines_before = "\n" * text.count("\n", 0, start)
        expected = "an array of JSON objects" if text[start] == "[" else "JSON objects, one after the other"
        yield parse_json(lines_before + text[start:end], path, expected=expected, strict=strict)
        start = _SPACE.match(text, end).end()  # type: ignore[union-attr]


def _items(path: str | Path, document: Any, field: str | None) -> Iterator[Any]:
    """The objects of one document; a list on the way to the field stands for all of its objects."""
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


_PARTS = ("question-id", "question", "answer-id", "answer", "label")


def check_columns(
    path: str, place: str | None, have: Sequence[str], names: ColumnNames, policies: SplitPolicies
) -> None:
    """Checks that a row has the columns of a pair, or of a question with its candidates.

    Raises:
        InputError: a column is missing; the message lists the columns and names the nearest.
    """
    needed = [names.question_id, names.question]
    if names.candidates not in have:
        needed += [names.answer_id, names.pair_answer, *([names.label] if policies.labelled else [])]
    for column in needed:
        if column is not None and column not in have:
            hint = f"--{_PARTS[needed.index(column)]} NAME says which"
            if column == names.label:
                hint = unlabelled_hint(policies)
            expected = f"such a column ({hint})"
            if column == names.pair_answer:
                expected += f" or a list {names.candidates!r}"
            expected += f"; the row has {listed(have)}{nearest(column, have)}"
            raise InputError(path, place=place, column=column, expected=expected)


def unlabelled_hint(policies: SplitPolicies) -> str:
    """The options for a label column that is missing."""
    return f"--label NAME says which; {UNLABELLED_OPTION} {policies.split} imports the split without labels"


def pairs_of_row(
    path: str, number: int, unit: str, row: Mapping[str, Any], names: ColumnNames, policies: SplitPolicies
) -> Iterator[RawPair]:
    """The pairs of one row, with their labels; the label is empty where the split has none.

    Args:
        path: the file, for messages.
        number: of the row in it.
        unit: what the number counts.
        row: its values by name.
        names: their names.
        policies: of its split.

    Raises:
        InputError: it is neither a pair nor a pool; the message names the place and the column.
    """
    place = f"{unit} {number}"
    check_columns(path, place, list(row), names, policies)
    question = row[names.question]
    if not isinstance(question, str):
        raise InputError(path, place=place, column=names.question, value=question, expected="a text")
    question_id = _id_of(path, place, names.question_id, row)
    if names.candidates in row:
        yield from _candidates(path, number, place, row, names, policies, question_id, question)
        return
    answer = _answer_text(path, place, names.pair_answer, row[names.pair_answer])
    answer_id = _id_of(path, place, names.answer_id, row)
    label = label_text(row[names.label]) if policies.labelled else ""
    yield Pair(number, question_id, question, answer_id, answer, 0), label


def _candidates(
    path: str,
    number: int,
    place: str,
    row: Mapping[str, Any],
    names: ColumnNames,
    policies: SplitPolicies,
    question_id: str,
    question: str,
) -> Iterator[RawPair]:
    candidates = row[names.candidates]
    if not isinstance(candidates, list):
        expected = "a list of candidates"
        raise InputError(path, place=place, column=names.candidates, value=candidates, expected=expected)
    if not candidates:
        if policies.empty == "refuse":
            expected = f"a list of at least one candidate ({EMPTY_HINT})"
            raise InputError(path, place=place, column=names.candidates, value=candidates, expected=expected)
        yield Pair(number, question_id, question, "", None, 0), ""
        return
    plain = isinstance(candidates[0], str)
    labels = _labels(path, place, row, len(candidates), names, policies) if plain else []
    for index, candidate in enumerate(candidates, 1):
        where = f"{place}, candidate {index}"
        if plain:
            if not isinstance(candidate, str):
                expected = "a text, as the first candidate is"
                raise InputError(path, place=where, value=candidate, expected=expected)
            yield Pair(number, question_id, question, "", candidate, 0, index), labels[index - 1]
            continue
        if not isinstance(candidate, dict):
            raise InputError(path, place=where, value=candidate, expected="a JSON object")
        column = names.candidate_answer(candidate)
        text = _answer_text(path, where, column, _value_of(path, where, column, candidate))
        answer_id = _id_of(path, where, names.answer_id, candidate)
        label = ""
        if policies.labelled:
            hint = f" ({unlabelled_hint(policies)})"
            label = label_text(_value_of(path, where, names.label, candidate, hint))
        yield Pair(number, question_id, question, answer_id, text, 0, index), label


def _labels(
    path: str, place: str, row: Mapping[str, Any], many: int, names: ColumnNames, policies: SplitPolicies
) -> list[str]:
    """The label of each of the plain texts."""
    if not policies.labelled:
        return [""] * many
    if names.positions in row:
        positions = row[names.positions]
        whole = isinstance(positions, list) and all(
            isinstance(position, int) and not isinstance(position, bool) and 0 <= position < many
            for position in positions
        )
        if not whole:
            expected = f"a list of positions from 0 to {many - 1} (--positions NAME names another column)"
            raise InputError(path, place=place, column=names.positions, value=positions, expected=expected)
        labels = [str(int(position in set(positions))) for position in range(many)]
        given = row.get(names.label)
        if isinstance(given, list) and len(given) == many:
            also = [str(min(1, int(text))) if text.isdigit() else text for text in map(label_text, given)]
            if also != labels:
                expected = f"[{', '.join(labels)}], as {names.positions!r} says"
                raise InputError(path, place=place, column=names.label, value=given, expected=expected)
        return labels
    if names.label not in row:
        expected = f"{names.positions!r} (positions of the relevant ones) or {names.label!r} (one for each); "
        expected += "--positions NAME or "
        expected += unlabelled_hint(policies)
        raise InputError(path, place=place, problem=f"keys {listed(list(row))}", expected=expected)
    labels = row[names.label]
    if not isinstance(labels, list) or len(labels) != many:
        expected = f"a list of {many} labels, one for each candidate"
        raise InputError(path, place=place, column=names.label, value=labels, expected=expected)
    return [label_text(label) for label in labels]


def _value_of(path: str, place: str, key: str, candidate: Mapping[str, Any], hint: str = "") -> Any:
    if key not in candidate:
        keys = list(candidate)
        expected = f"a candidate with this key; it has {listed(keys) or 'none'}{nearest(key, keys)}{hint}"
        raise InputError(path, place=place, column=key, expected=expected)
    return candidate[key]


def _answer_text(path: str, place: str, column: str, value: Any) -> str:
    """A candidate's text; null and NaN, the missing values of data frames, are no text."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if not isinstance(value, str):
        raise InputError(path, place=place, column=column, value=value, expected="a text")
    return value


def _id_of(path: str, place: str, key: str | None, entries: Mapping[str, Any]) -> str:
    """The id under ``key``, which may be a number; '' where there is no key to look under."""
    if key is None:
        return ""
    value = _value_of(path, place, key, entries)
    if isinstance(value, bool) or not isinstance(value, str | numbers.Integral):
        raise InputError(path, place=place, column=key, value=value, expected="a text or a whole number")
    return str(value)
