"""Data of the user's own: delimited text with one row per pair, or JSON Lines with one object per pool.

Columns are found by their names. Without ids, a question is identified by its text and an answer by its text
within the question, so that a repeated row is a repeated candidate.
"""

import csv
import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from aptool.datasets.importing import (
    Columns,
    Pair,
    SplitPools,
    check_text,
    parse_label,
    pools_of,
    write_collection,
)
from aptool.datasets.lines import read_lines, read_rows
from aptool.documents import parse_json
from aptool.errors import InputError
from aptool.formats.collection import Collection, LabelledPool

# Most characters of a field in quotation marks: a quotation mark that is never closed reads on up to here.
LONGEST_FIELD = 1 << 28

_DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}


@dataclass(frozen=True)
class ColumnNames:
    """The columns (or JSON keys) of the parts of a pair, and the format of a table.

    Attributes:
        question: column (or key) of the question's text.
        answer: column of the candidate's text, or its key in a candidate.
        label: column of its relevance, or its key in a candidate.
        question_id: column of the question's id; None: identified by its text.
        answer_id: column of the candidate's id; None: identified by its text.
        candidates: key of the list of candidates, in JSON.
        delimiter: column separator; None: a comma if the name ends in .csv or .csv.gz, else a tab.
        quotes: ``literal``: quotation marks are text; ``csv``: they enclose fields, in which the delimiter
            and line breaks are text; None: ``csv`` where the delimiter is a comma, else ``literal``.
    """

    question: str = "question"
    answer: str = "answer"
    label: str = "label"
    question_id: str | None = None
    answer_id: str | None = None
    candidates: str = "candidates"
    delimiter: str | None = None
    quotes: Literal["literal", "csv"] | None = None

    @property
    def columns(self) -> Columns:
        """The names of the parts, for messages."""
        question_id, answer_id = self.question_id or self.question, self.answer_id or self.answer
        return Columns(question_id, self.question, answer_id, self.answer, self.label)


def build_tsv(
    out: str | Path, splits: Mapping[str, str], names: ColumnNames, *, name: str, questions: str = "all"
) -> Collection:
    """Imports delimited text with a header line, one row per pair.

    Raises:
        InputError: a row is not a pair; the message names file, line, column, value and expectation.
    """
    sources = {split: SplitPools(path, read_tsv(path, names)) for split, path in splits.items()}
    return _build(out, sources, names, name=name, questions=questions)


def build_jsonl(
    out: str | Path, splits: Mapping[str, str], names: ColumnNames, *, name: str, questions: str = "all"
) -> Collection:
    """Imports JSON Lines, one object per question with its candidates.

    Raises:
        InputError: a line is not a pool; the message names file, line, key, value and expectation.
    """
    sources = {split: SplitPools(path, read_jsonl(path, names)) for split, path in splits.items()}
    return _build(out, sources, names, name=name, questions=questions)


def _build(
    out: str | Path, sources: Mapping[str, SplitPools], names: ColumnNames, *, name: str, questions: str
) -> Collection:
    files = ", ".join(str(path).rsplit("/", 1)[-1] for path, _ in sources.values())
    details = {"layout": {key: value for key, value in asdict(names).items() if value is not None}}
    return write_collection(
        out, name=name, source=f"imported from {files}", splits=sources, questions=questions, details=details
    )


def read_tsv(path: str, names: ColumnNames) -> Iterator[LabelledPool]:
    """The pools of one delimited file."""
    return pools_of(path, _identified(_tsv_pairs(path, names), names), names.columns, empty_answers=False)


def read_jsonl(path: str, names: ColumnNames) -> Iterator[LabelledPool]:
    """The pools of one file of JSON Lines."""
    return pools_of(path, _identified(_json_pairs(path, names), names), names.columns, empty_answers=False)


def _identified(pairs: Iterator[Pair], names: ColumnNames) -> Iterator[Pair]:
    """Pairs with ids; where the file has none, they number the texts by first appearance."""
    questions: dict[str, str] = {}
    answers: dict[str, dict[str, str]] = {}
    for pair in pairs:
        if names.question_id is None:
            pair = pair._replace(question_id=questions.setdefault(pair.question, f"Q{len(questions)}"))
        if names.answer_id is None:
            known = answers.setdefault(pair.question_id, {})
            answer_id = known.setdefault(pair.answer, f"{pair.question_id}-{len(known)}")
            pair = pair._replace(answer_id=answer_id)
        yield pair


def _tsv_pairs(path: str, names: ColumnNames) -> Iterator[Pair]:
    comma = path.lower().removesuffix(".gz").endswith(".csv")
    delimiter = names.delimiter or ("," if comma else "\t")
    quotes = names.quotes or ("csv" if delimiter == "," else "literal")
    rows = _quoted_rows(path, delimiter) if quotes == "csv" else _literal_rows(path, delimiter)
    header, columns = find_columns(path, rows, names.columns, delimiter, options=True)
    for number, row in rows:
        fields = row_fields(path, number, row, header)
        question_id, question, answer_id, answer, label = (fields[column] for column in columns)
        relevance = parse_label(path, f"line {number}", names.label, label.strip(), graded=True)
        yield Pair(number, question_id, question, answer_id, answer, relevance)


def _literal_rows(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_rows(path):
        yield number, line.split(delimiter)


def _quoted_rows(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line where each begins; a blank line is a row only inside quotation marks."""
    lines = (f"{line}\n" for _, line in read_lines(path))
    csv.field_size_limit(LONGEST_FIELD)
    # Without `strict`, text after a closing quotation mark would be appended to the field, and an unclosed
    # quotation mark would make the rest of the file one field.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    blank = 0
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            expected = "fields in which quotation marks are doubled and closed (or --quotes literal)"
            raise InputError(path, place=f"line {number}", problem=str(error), expected=expected) from error
        if not row:
            blank = blank or number
        elif blank:
            raise InputError(
                path, place=f"line {blank}", value="", expected="a row; only the end may be blank"
            )
        else:
            yield number, row


def find_columns(
    path: str, rows: Iterator[tuple[int, Any]], wanted: Columns, delimiter: str, *, options: bool = False
) -> tuple[list[str], list[int]]:
    """Takes the header from ``rows`` and finds the wanted columns in it.

    Args:
        path: the file, for messages.
        rows: its lines or rows; the first is consumed.
        wanted: the columns' names.
        delimiter: their separator in a line.
        options: whether command-line options can choose other names.

    Returns:
        All column names, and the index of each column in ``wanted``.

    Raises:
        InputError: there is no header, a name is repeated, or one is missing: the message lists the columns
            of the file and names the nearest.
    """
    number, header = next(rows, (1, None))
    if header is None:
        raise InputError(path, problem="no line", expected="a header line with the names of the columns")
    names: list[str] = header.split(delimiter) if isinstance(header, str) else header
    place = f"line {number}"
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(path, place=place, column=name, expected="each column's name once")
    for name in wanted:
        if name not in names:
            expected = _missing(name, names, delimiter) + (f" ({_option(name, wanted)})" if options else "")
            raise InputError(path, place=place, column=name, expected=expected)
    return names, [names.index(name) for name in wanted]


def _missing(name: str, names: Sequence[str], delimiter: str) -> str:
    shown = ", ".join(_shortened(column) for column in names[:20]) + (", …" if len(names) > 20 else "")
    said = f"such a column; the header has {shown}"
    other = [mark for mark in _DELIMITERS if mark != delimiter and len(names) == 1 and mark in names[0]]
    if other:
        return f"{said}: one column, separated by {_DELIMITERS[other[0]]} perhaps (--delimiter)"
    lowered = {column.casefold(): column for column in names}
    near = difflib.get_close_matches(name.casefold(), lowered, n=1, cutoff=0.5)
    return f"{said}; {lowered[near[0]]!r} perhaps" if near else said


def _option(name: str, wanted: Columns) -> str:
    """The option that chooses a column; of a column with two uses, that of its text."""
    parts = ("question", "answer", "label", "question_id", "answer_id")
    part = next(part for part in parts if getattr(wanted, part) == name)
    return f"--{part.replace('_', '-')} says which"


def _shortened(name: str) -> str:
    return repr(name if len(name) <= 30 else name[:29] + "…")


def row_fields(path: str, number: int, fields: list[str], names: Sequence[str]) -> list[str]:
    """The fields of a row.

    Raises:
        InputError: their number differs from the header's.
    """
    if len(fields) != len(names):
        shown = ", ".join(names[:20])
        expected = f"{len(names)} as in the header ({shown})"
        raise InputError(path, place=f"line {number}", problem=f"{len(fields)} columns", expected=expected)
    return fields


def _json_pairs(path: str, names: ColumnNames) -> Iterator[Pair]:
    for number, line in read_lines(path):
        if line.strip():
            yield from _json_pool(path, number, _parsed(path, number, line), names)


def _parsed(path: str, number: int, line: str) -> dict[str, Any]:
    value = parse_json(line, path, place=f"line {number}", expected="one JSON object", strict=True)
    if not isinstance(value, dict):
        raise InputError(path, place=f"line {number}", value=value, expected="a JSON object")
    return value


def _json_pool(path: str, number: int, pool: dict[str, Any], names: ColumnNames) -> Iterator[Pair]:
    place = f"line {number}"
    question = _json_text(path, place, names.question, pool, "an object")
    question_id = _json_id(path, place, names.question_id, pool, "an object")
    candidates = _json_value(path, place, names.candidates, pool, "an object")
    if not isinstance(candidates, list) or not candidates:
        expected = "a list of at least one candidate"
        raise InputError(path, place=place, column=names.candidates, value=candidates, expected=expected)
    for index, candidate in enumerate(candidates, 1):
        where = f"{place}, candidate {index}"
        if not isinstance(candidate, dict):
            raise InputError(path, place=where, value=candidate, expected="a JSON object")
        answer = _json_text(path, where, names.answer, candidate, "a candidate")
        answer_id = _json_id(path, where, names.answer_id, candidate, "a candidate")
        label = _json_value(path, where, names.label, candidate, "a candidate")
        if isinstance(label, bool):
            label = int(label)
        relevance = parse_label(path, where, names.label, json.dumps(label), graded=True)
        yield Pair(number, question_id, question, answer_id, answer, relevance)


def _json_value(path: str, place: str, key: str, entries: dict[str, Any], what: str) -> Any:
    if key not in entries:
        expected = f"{what} with this key; it has {', '.join(map(_shortened, entries)) or 'none'}"
        near = difflib.get_close_matches(key, entries, n=1, cutoff=0.5)
        expected += f"; {near[0]!r} perhaps" if near else ""
        raise InputError(path, place=place, column=key, expected=expected)
    return entries[key]


def _json_text(path: str, place: str, key: str, entries: dict[str, Any], what: str) -> str:
    value = _json_value(path, place, key, entries, what)
    if not isinstance(value, str):
        raise InputError(path, place=place, column=key, value=value, expected="a text")
    check_text(path, place, key, value)
    return value


def _json_id(path: str, place: str, key: str | None, entries: dict[str, Any], what: str) -> str:
    """The id under ``key``, which may be a number; '' where there is no key to look under."""
    if key is None:
        return ""
    value = _json_value(path, place, key, entries, what)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(path, place=place, column=key, value=value, expected="a text or a whole number")
    return str(value)
