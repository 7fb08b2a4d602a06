"""Pairs of rows with any column names: of JSON, of Parquet files, and of tables in memory.

A row is a pair of a question and a candidate, or a question with a list of candidates.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from aptool.datasets.import_options import (
    ClassNames,
    ColumnNames,
    RawPair,
    SplitPolicies,
    missing_column,
    option_hint,
    quoted_names,
)
from aptool.datasets.pairs import EMPTY_HINT, Pair, id_text, label_text
from aptool.datasets.tabular import refuse_xml
from aptool.datasets.text_files import FIELD_OPTION, list_fields, read_lines, read_objects
from aptool.errors import InputError
from aptool.formats.parquet import open_parquet

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Iterable[Row]

_ABSENT = object()


class RowReader:
    """Reads the pairs of rows that have the columns ``names``; messages name ``path``."""

    def __init__(
        self, path: str, names: ColumnNames, policies: SplitPolicies, classes: ClassNames | None = None
    ) -> None:
        self.path = path
        self._names = names
        self._policies = policies
        parts = (*names.columns, names.answer, names.candidates, names.positions)
        self._nested = [name for name in parts if name is not None and "." in name]
        self._grades = classes.grades(policies) if classes is not None else {}  # label of each class

    def read_rows(self, rows: Rows) -> Iterator[RawPair]:
        """Read the pairs of rows, which messages number from 0."""
        for number, row in enumerate(rows):
            yield from self.pairs(f"row {number}", _with_nested(row, self._nested))

    def parquet_rows(self) -> Iterator[Row]:
        """Read the rows of a Parquet file, only the columns of a pair."""
        columns = {*self._names.columns, self._names.candidates, self._names.positions}
        with open_parquet(self.path) as reader:
            self._check_columns(None, reader.schema.names)
            if not self._grades:
                features = _huggingface_features(reader.schema.metadata)
                self._grades = ClassNames(self.path, self._names.label, features).grades(self._policies)
            yield from reader.rows([name for name in reader.schema.names if name in columns])

    def read_json(self) -> Iterator[RawPair]:
        """Read the pairs of a JSON file."""
        path, names = self.path, self._names
        start = next((line for _, line in read_lines(path) if line.strip()), "{").lstrip()
        refuse_xml(path, start)
        if start[0] not in "{[":
            expected = "JSON objects; `aptool data import csv` reads tables"
            raise InputError(path, position="line 1", problem=f"no JSON: {start[:40]!r}", expected=expected)
        for position, value in read_objects(path, strict=True, field=names.field):
            row = _with_nested(value, self._nested)
            if names.question not in row and names.candidates not in row and names.field is None:
                self._check_field(position, row)
            yield from self.pairs(position, row)

    def pairs(self, position: str, row: Row) -> Iterator[RawPair]:
        """Read the pairs of one row, which is a pair or has a list of candidates."""
        names = self._names
        self._check_columns(position, list(row))
        question = row[names.question]
        if not isinstance(question, str):
            raise self._error(position, names.question, question, "a text")
        pair = Pair(position, self._id(position, names.question_id, row), question, "", None, 0)
        if names.candidates in row:
            yield from self._candidates(pair, row)
            return
        answer = self._answer_text(position, names.pair_answer, row[names.pair_answer])
        answer_id = self._id(position, names.answer_id, row)
        label = self._policies.implied_label
        if label is None:
            label = self._label(row[names.label])
        yield pair._replace(answer_id=answer_id, answer=answer), label

    def _candidates(self, pair: Pair, row: Row) -> Iterator[RawPair]:
        """Read the list of candidates of the question of ``pair``."""
        column = self._names.candidates
        candidates = _transposed(row[column])
        if candidates is None:
            candidates = []
        if not isinstance(candidates, list):
            raise self._error(pair.position, column, candidates, "a list of candidates")
        if not candidates:
            if self._policies.empty == "refuse":
                expected = f"a list of at least one candidate ({EMPTY_HINT})"
                raise self._error(pair.position, column, candidates, expected)
            yield pair, ""
            return
        are_texts = isinstance(candidates[0], str)
        labels = self._labels_of_texts(pair.position, row, len(candidates)) if are_texts else []
        for index, candidate in enumerate(candidates):
            position = f"{pair.position}, candidate {index + 1}"
            if not are_texts:
                yield self._candidate(pair._replace(position=position), candidate)
            elif isinstance(candidate, str):
                yield pair._replace(position=position, answer=candidate), labels[index]
            else:
                raise self._error(position, None, candidate, "a text, as the first candidate is")

    def _candidate(self, pair: Pair, candidate: Any) -> RawPair:
        """Read a candidate that is an object."""
        names, position = self._names, pair.position
        if not isinstance(candidate, dict):
            raise self._error(position, None, candidate, "a JSON object")
        candidate = _with_nested(candidate, self._nested)
        column = names.candidate_answer(candidate)
        answer = self._answer_text(position, column, self._value(position, column, candidate))
        answer_id = self._id(position, names.answer_id, candidate)
        label = ""
        if self._policies.labelled:
            hint = option_hint("label", self._policies.split)
            label = self._label(self._value(position, names.label, candidate, hint))
        return pair._replace(answer_id=answer_id, answer=answer), label

    def _labels_of_texts(self, position: str, row: Row, count: int) -> list[str]:
        """Read the labels of ``count`` candidates that are plain texts."""
        names = self._names
        if not self._policies.labelled:
            return [""] * count
        if names.positions in row:
            return self._labels_of_positions(position, row, count)
        if names.label not in row:
            expected = f"{names.positions!r} (positions of the relevant candidates; or --positions NAME) or "
            expected += f"{names.label!r} (one label per candidate), or "
            expected += option_hint("label", self._policies.split)
            problem = f"keys {quoted_names(list(row))}"
            raise InputError(self.path, position=position, problem=problem, expected=expected)
        labels = row[names.label]
        if not isinstance(labels, list) or len(labels) != count:
            expected = f"a list of {count} labels, one per candidate"
            raise self._error(position, names.label, labels, expected)
        return [self._label(label) for label in labels]

    def _label(self, value: Any) -> str:
        text = label_text(value)
        return self._grades.get(text, text)

    def _labels_of_positions(self, position: str, row: Row, count: int) -> list[str]:
        """Labels 0 and 1 from the positions of the relevant candidates."""
        names = self._names
        relevant = row[names.positions]
        is_valid = isinstance(relevant, list) and all(
            isinstance(index, int) and not isinstance(index, bool) and 0 <= index < count
            for index in relevant
        )
        if not is_valid:
            expected = f"a list of positions from 0 to {count - 1}, or --positions NAME for another column"
            raise self._error(position, names.positions, relevant, expected)
        labels = [str(int(index in relevant)) for index in range(count)]
        also = row.get(names.label)
        if isinstance(also, list) and len(also) == count:
            texts = [str(min(1, int(text))) if text.isdigit() else text for text in map(label_text, also)]
            if texts != labels:
                expected = f"[{', '.join(labels)}], as {names.positions!r} says"
                raise self._error(position, names.label, also, expected)
        return labels

    def _check_field(self, position: str, row: Row) -> None:
        """Refuse an object that has lists of objects instead of a question."""
        question = self._names.question
        fields = list_fields(row, question)
        if fields:
            options = " or ".join(f"{FIELD_OPTION} {field}" for field in fields[:5])
            expected = f"a column {question!r}, or --question NAME, or a list of such objects ({options})"
            problem = f"no question among {quoted_names(list(row))}"
            raise InputError(self.path, position=position, problem=problem, expected=expected)

    def _check_columns(self, position: str | None, columns: Sequence[str]) -> None:
        """Check that a row has the columns of a pair, or of a question with its candidates."""
        names, policies = self._names, self._policies
        required = {"question-id": names.question_id, "question": names.question}
        if names.candidates not in columns:
            required |= {"answer-id": names.answer_id, "answer": names.pair_answer}
            if policies.reads_label(self.path, position, names.label, columns):
                required |= {"label": names.label}
        for part, column in required.items():
            if column is not None and column not in columns:
                hint = option_hint(part, policies.split, column)
                if part == "answer":
                    hint += f", or a list {names.candidates!r}"
                raise missing_column(self.path, position, column, columns, hint)

    def _value(self, position: str, key: str, row: Row, hint: str = "") -> Any:
        if key not in row:
            raise missing_column(self.path, position, key, list(row), hint)
        return row[key]

    def _answer_text(self, position: str, column: str, value: Any) -> str:
        """A candidate's text; null and NaN, the missing values of data frames, are empty texts."""
        if value is None or (isinstance(value, float) and value != value):
            return ""
        if not isinstance(value, str):
            raise self._error(position, column, value, "a text")
        return value

    def _id(self, position: str, key: str | None, row: Row) -> str:
        """The id under ``key``, which may be a number; '' if there is no key."""
        if key is None:
            return ""
        return id_text(self.path, position, key, self._value(position, key, row))

    def _error(self, position: str, column: str | None, value: object, expected: str) -> InputError:
        return InputError(self.path, position=position, column=column, value=value, expected=expected)


def _with_nested(row: Row, columns: Iterable[str]) -> Row:
    """A row with the values of dotted columns, such as ``fields.summary``; those within a null are null."""
    nested = {}
    for column in columns:
        value: Any = row
        for key in column.split("."):
            if value is not None:
                value = value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is not _ABSENT:
            nested[column] = value
    return {**nested, **row}


def _transposed(candidates: Any) -> Any:
    """A dict of lists of equal length, in which the hub stores a list of dicts, as the list of dicts."""
    if not isinstance(candidates, dict):
        return candidates
    lists = {key: values for key, values in candidates.items() if isinstance(values, list)}
    if len(set(map(len, lists.values()))) != 1:
        return candidates
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _huggingface_features(metadata: Mapping[bytes, bytes] | None) -> Any:
    """The description of columns that the library datasets writes to the schema of a Parquet file."""
    try:
        return json.loads((metadata or {}).get(b"huggingface", b"{}"))
    except ValueError:
        return {}
