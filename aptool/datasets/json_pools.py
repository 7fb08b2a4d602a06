"""Objects of the user's own, one per question with its candidates, as pairs.

A candidate is an object with a text and a label, or a plain text: then the object has a list of the
positions of the relevant ones, or a list with the label of each.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from aptool.datasets.column_names import ColumnNames, listed, nearest
from aptool.datasets.importing import Pair, check_text, parse_label
from aptool.errors import InputError


def pairs_of_pool(
    path: str, number: int, unit: str, pool: Mapping[str, Any], names: ColumnNames
) -> Iterator[Pair]:
    """The pairs of one object.

    Args:
        path: the file, for messages.
        number: of the object in it.
        unit: what the number counts.
        pool: the object.
        names: its keys.

    Raises:
        InputError: it is not a pool; the message names the place and the key.
    """
    place = f"{unit} {number}"
    question = _text(path, place, names.question, pool, "an object")
    question_id = id_of(path, place, names.question_id, pool, "an object")
    candidates = value_of(path, place, names.candidates, pool, "an object")
    if not isinstance(candidates, list) or not candidates:
        expected = "a list of at least one candidate"
        raise InputError(path, place=place, column=names.candidates, value=candidates, expected=expected)
    labels = _labels(path, place, pool, len(candidates), names) if isinstance(candidates[0], str) else None
    for index, candidate in enumerate(candidates, 1):
        where = f"{place}, candidate {index}"
        if labels is not None:
            if not isinstance(candidate, str):
                raise InputError(
                    path, place=where, value=candidate, expected="a text, as the first candidate is"
                )
            check_text(path, where, names.candidates, candidate)
            yield Pair(number, question_id, question, "", candidate, labels[index - 1])
            continue
        if not isinstance(candidate, dict):
            raise InputError(path, place=where, value=candidate, expected="a JSON object")
        answer = _text(path, where, names.answer, candidate, "a candidate")
        answer_id = id_of(path, where, names.answer_id, candidate, "a candidate")
        label = value_of(path, where, names.label, candidate, "a candidate")
        yield Pair(
            number, question_id, question, answer_id, answer, label_of(path, where, names.label, label)
        )


def label_of(path: str, place: str, column: str, value: Any) -> int:
    """The relevance in a value of JSON or Parquet.

    Raises:
        InputError: it is not a whole number.
    """
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return parse_label(path, place, column, text.strip(), graded=True)


def value_of(path: str, place: str, key: str, entries: Mapping[str, Any], what: str) -> Any:
    """The value under a key.

    Raises:
        InputError: there is none; the message lists the keys that there are.
    """
    if key not in entries:
        keys = list(entries)
        expected = f"{what} with this key; it has {listed(keys) or 'none'}{nearest(key, keys)}"
        raise InputError(path, place=place, column=key, expected=expected)
    return entries[key]


def _labels(path: str, place: str, pool: Mapping[str, Any], many: int, names: ColumnNames) -> list[int]:
    """The label of each of the plain texts."""
    if names.relevant in pool:
        positions = pool[names.relevant]
        whole = isinstance(positions, list) and all(
            isinstance(one, int) and not isinstance(one, bool) and 0 <= one < many for one in positions
        )
        if not whole:
            expected = f"a list of positions from 0 to {many - 1}"
            raise InputError(path, place=place, column=names.relevant, value=positions, expected=expected)
        labels = [int(position in set(positions)) for position in range(many)]
        given = pool.get(names.label)
        if isinstance(given, list) and len(given) == many:
            also = [int(label_of(path, place, names.label, label) > 0) for label in given]
            if also != labels:
                expected = f"{labels}, as {names.relevant!r} says"
                raise InputError(path, place=place, column=names.label, value=given, expected=expected)
        return labels
    if names.label not in pool:
        expected = f"{names.relevant!r} (positions of the relevant ones) or {names.label!r} (one for each)"
        raise InputError(path, place=place, problem=f"keys {listed(list(pool))}", expected=expected)
    labels = pool[names.label]
    if not isinstance(labels, list) or len(labels) != many:
        expected = f"a list of {many} labels, one for each candidate"
        raise InputError(path, place=place, column=names.label, value=labels, expected=expected)
    return [label_of(path, place, names.label, label) for label in labels]


def _text(path: str, place: str, key: str, entries: Mapping[str, Any], what: str) -> str:
    value = value_of(path, place, key, entries, what)
    if not isinstance(value, str):
        raise InputError(path, place=place, column=key, value=value, expected="a text")
    check_text(path, place, key, value)
    return value


def id_of(path: str, place: str, key: str | None, entries: Mapping[str, Any], what: str) -> str:
    """The id under ``key``, which may be a number; '' where there is no key to look under.

    Raises:
        InputError: it is neither a text nor a whole number.
    """
    if key is None:
        return ""
    value = value_of(path, place, key, entries, what)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(path, place=place, column=key, value=value, expected="a text or a whole number")
    return str(value)
