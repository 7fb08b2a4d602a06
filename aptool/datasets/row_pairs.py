"""Rows with named values as pairs: JSON objects, rows of Parquet files and of data frames.

A row is a pair of a question and an answer, or a question with its candidates. A candidate is an object with
a text and a label, or a plain text: then the row has a list of the positions of the relevant ones, or a list
with the label of each.
"""

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aptool.datasets.column_names import ColumnNames, listed, nearest
from aptool.datasets.labels import RawPair, label_text
from aptool.datasets.pairs import Pair
from aptool.datasets.policies import EMPTY_HINT, UNLABELLED_OPTION, SplitPolicies
from aptool.errors import InputError

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
