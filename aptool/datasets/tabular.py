"""Delimited text with a header line."""

import csv
import itertools
import re
from collections.abc import Iterator, Sequence

from aptool.datasets.import_options import (
    COLUMNS_OPTION,
    DELIMITER_OPTION,
    ColumnNames,
    SplitPolicies,
    missing_column,
    option_hint,
    quoted_names,
)
from aptool.datasets.pairs import Columns
from aptool.datasets.text_files import read_lines, read_rows, without_blank_end
from aptool.errors import InputError
from aptool.formats.inputs import unpacked_name

# Characters of a quoted field: an unclosed quotation mark reads on up to this limit.
LONGEST_FIELD = 1 << 28

_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_LABEL = re.compile(r"[0-9]|true|false", re.IGNORECASE)
_XML = re.compile(r"\s*<[?!A-Za-z]")
_TRECQA = re.compile(r"\s*<QApairs\b")
_ROWS = 50  # read to guess the columns of a table without a header
_MOST_WORD_LABELS = 5

Rows = Iterator[tuple[int, list[str]]]


def read_table(path: str) -> Iterator[dict[str, str]]:
    """Read the rows of a table as mappings by column name."""
    rows = _read_fields(path, _delimiter(path), None)
    _, header = next(rows, (1, []))
    for number, row in rows:
        yield dict(zip(header, _checked_width(path, number, row, header), strict=True))


def read_columns(path: str, names: ColumnNames, policies: SplitPolicies | None = None) -> Rows:
    """Read the five columns of a pair from each row of a table; policies are None for fixed formats."""
    columns, delimiter, header = names.columns, names.delimiter or _delimiter(path), names.header
    if policies is not None and not policies.labelled:
        columns = columns._replace(label=names.question)  # the label is not read
    rows = _read_fields(path, delimiter, names.quotes)
    position = COLUMNS_OPTION
    if header is None:
        number, first_row = next(rows, (1, None))
        position = f"line {number}"
        if first_row is None:
            raise InputError(path, problem="no line", expected="a header line with the names of the columns")
        header = tuple(first_row)
    missing = [name for name in columns if name not in header]
    if missing and position != COLUMNS_OPTION:
        refuse_xml(path, header[0])
        if header[0].lstrip().startswith(("{", "[{")):
            expected = "a table with a header line; `aptool data import json` reads JSON"
            raise InputError(path, position="line 1", problem="JSON", expected=expected)
        if policies is not None:
            _check_header(path, position, header, columns, rows)
    for name in header:
        if header.count(name) > 1:
            raise InputError(path, position=position, column=name, expected="each column's name once")
    if missing:
        hint = ""
        if policies is not None:
            hint = _delimiter_hint(header) or option_hint(_part(missing[0], columns), policies.split)
        raise missing_column(path, position, missing[0], header, hint)
    indices = [header.index(name) for name in columns]
    for number, row in rows:
        fields = _checked_width(path, number, row, header)
        yield number, [fields[index] for index in indices]


def refuse_xml(path: str, start: str) -> None:
    """Refuse a file whose first line looks like XML."""
    if _TRECQA.match(start):
        expected = "`aptool data import trecqa`, which reads these files of TREC-QA"
        raise InputError(path, position="line 1", problem="XML of TREC-QA", expected=expected)
    if _XML.match(start):
        expected = "a table or JSON; convert the file to one row per question and candidate"
        raise InputError(path, position="line 1", problem="XML", expected=expected)


def _delimiter(path: str) -> str:
    return "," if unpacked_name(path).lower().endswith(".csv") else "\t"


def _read_fields(path: str, delimiter: str, quotes: str | None) -> Rows:
    """Read all rows with their line numbers, the header included."""
    quotes = quotes or ("literal" if delimiter == "\t" else "csv")
    if quotes == "csv":
        yield from without_blank_end(path, _quoted_rows(path, delimiter), bool)
    else:
        for number, line in read_rows(path):
            yield number, line.split(delimiter)


def _quoted_rows(path: str, delimiter: str) -> Rows:
    """Read rows with quoted fields; a blank line is a row without fields, except inside quotation marks."""
    lines = (f"{line}\n" for _, line in read_lines(path))
    csv.field_size_limit(LONGEST_FIELD)
    # Without `strict`, text after a closing quotation mark would be appended to the field, and an unclosed
    # quotation mark would make the rest of the file one field.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        expected = "fields in which quotation marks are doubled and closed (or --quotes literal)"
        raise InputError(path, position=f"line {number}", problem=str(error), expected=expected) from error


def _checked_width(path: str, number: int, row: list[str], header: Sequence[str]) -> list[str]:
    if len(row) != len(header):
        expected = f"{len(header)} as in the header ({', '.join(header[:20])})"
        raise InputError(path, position=f"line {number}", problem=f"{len(row)} columns", expected=expected)
    return row


def _check_header(path: str, position: str, header: Sequence[str], columns: Columns, rows: Rows) -> None:
    """Refuse a first line that is a row of the table, with the option that names its columns."""
    names = {name.casefold() for name in header}
    if any(name.casefold() in names for name in columns):
        return
    guess = guess_columns([header, *(row for _, row in itertools.islice(rows, _ROWS))])
    if guess is not None:
        label = columns.label if columns.label != columns.question else "label"
        parts = {"question": columns.question, "answer": columns.answer, "label": label}
        option = f"{COLUMNS_OPTION} {','.join(parts.get(name, name) for name in guess)}"
        raise InputError(
            path, position=position, problem=f"no header line: {quoted_names(header)}", expected=option
        )


def guess_columns(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Guess the column names of a table without a header line from its first rows; None if unclear.

    The label is a column of digits, or a column in which a few words recur. Question and answer are the two
    longest of the other columns, in their order.
    """
    width = len(rows[0])
    if width < 3 or any(len(row) != width for row in rows):
        return None
    columns = [[row[index].strip() for row in rows] for index in range(width)]
    last_first = range(width - 1, -1, -1)
    label = next((index for index in last_first if all(map(_LABEL.fullmatch, columns[index]))), None)
    if label is None:
        label = next((index for index in last_first if _is_few_words(columns[index])), None)
    if label is None:
        return None
    lengths = {index: sum(map(len, column)) for index, column in enumerate(columns) if index != label}
    longest = sorted(lengths, key=lambda index: (-lengths[index], index))[:2]
    parts = dict(zip(sorted(longest), ("question", "answer"), strict=True)) | {label: "label"}
    return [parts.get(index, f"column{index + 1}") for index in range(width)]


def _is_few_words(column: Sequence[str]) -> bool:
    """Whether a column has labels in words: few distinct words, of which the first row's recurs."""
    words = set(column)
    return (
        all(len(value.split()) == 1 for value in words)
        and 1 < len(words) <= min(_MOST_WORD_LABELS, len(column) // 2)
        and column.count(column[0]) > 1
    )


def _delimiter_hint(header: Sequence[str]) -> str:
    """Name the delimiter of a header that was read as one column."""
    for mark, name in _DELIMITERS.items():
        if len(header) == 1 and mark in header[0]:
            shown = "\\t" if mark == "\t" else mark
            return f"{DELIMITER_OPTION} '{shown}' for columns separated by {name}"
    return ""


def _part(name: str, columns: Columns) -> str:
    """The part of a pair in a column; its text if the column is also the id."""
    parts = ("question", "answer", "label", "question_id", "answer_id")
    return next(part for part in parts if getattr(columns, part) == name)
