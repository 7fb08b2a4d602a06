"""Delimited text with a header line."""

import csv
import itertools
import re
from collections.abc import Iterator, Sequence

from aptool.datasets.import_options import (
    COLUMNS_OPTION,
    DELIMITER_OPTION,
    ENCODING_OPTION,
    ColumnNames,
    SplitPolicies,
    missing_column,
    option_hint,
    quoted_names,
)
from aptool.datasets.pairs import Columns
from aptool.datasets.text_files import read_lines, without_blank_end
from aptool.errors import InputError, counted
from aptool.formats.inputs import unpacked_name

# Characters of a quoted field: an unclosed quotation mark reads on up to this limit.
LONGEST_FIELD = 1 << 28

_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_LABEL = re.compile(r"[0-9]|true|false", re.IGNORECASE)
_XML = re.compile(r"\s*<[?!A-Za-z]")
_TRECQA = re.compile(r"\s*<QApairs\b")
_ROWS = 50  # read to guess the columns of a table without a header
_MOST_WORD_LABELS = 5
_ENCODING_HINT = f" (or {ENCODING_OPTION} NAME, such as cp1252)"
_QUOTES_HINT = " (or --quotes csv, if quotation marks enclose fields with line breaks)"

Rows = Iterator[tuple[int, list[str]]]


def read_table(path: str) -> Iterator[dict[str, str]]:
    """Read the rows of a table as mappings by column name."""
    rows = _FieldReader(path, _delimiter(path), None, None)
    numbered = rows.read()
    _, header = next(numbered, (1, []))
    for number, row in numbered:
        yield dict(zip(header, rows.checked_width(number, row, header), strict=True))


def read_columns(path: str, names: ColumnNames, policies: SplitPolicies | None = None) -> Rows:
    """Read the five columns of a pair from each row of a table; policies are None for fixed formats."""
    columns, delimiter, header = names.columns, names.delimiter or _delimiter(path), names.header
    reader = _FieldReader(path, delimiter, names.quotes, names.encoding)
    rows = reader.read()
    position = COLUMNS_OPTION
    if header is None:
        number, first_row = next(rows, (1, None))
        position = f"line {number}"
        if first_row is None:
            raise InputError(path, problem="no line", expected="a header line with the names of the columns")
        header = tuple(first_row)
    if policies is not None and not policies.reads_label(path, position, columns.label, header):
        columns = columns._replace(label=names.question)  # the label is not read
    missing = [name for name in columns if name not in header]
    if missing and position != COLUMNS_OPTION:
        refuse_xml(path, header[0])
        if header[0].lstrip().startswith(("{", "[{")):
            expected = "a table with a header line; `aptool data import json` reads JSON"
            raise InputError(path, position="line 1", problem="JSON", expected=expected)
        if policies is not None:
            _check_delimiter(path, position, header, delimiter)
            _check_header(path, position, header, columns, rows)
    for name in header:
        if header.count(name) > 1:
            raise InputError(path, position=position, column=name, expected="each column's name once")
    if missing:
        hint = ""
        if policies is not None:
            hint = option_hint(_part(missing[0], columns), policies.split, missing[0])
        raise missing_column(path, position, missing[0], header, hint)
    indices = [header.index(name) for name in columns]
    for number, row in rows:
        fields = reader.checked_width(number, row, header)
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


class _FieldReader:
    """Reads the rows of a table with their line numbers, the header included."""

    def __init__(self, path: str, delimiter: str, quotes: str | None, encoding: str | None) -> None:
        self._path, self._delimiter = path, delimiter
        self._quotes = quotes or ("literal" if delimiter == "\t" else "csv")
        self._lines = read_lines(path, encoding, _ENCODING_HINT)
        self._is_open = False  # whether a line with quotation marks as text began a field that it did not end

    def read(self) -> Rows:
        """Read all rows."""
        if self._quotes == "csv":
            return without_blank_end(self._path, self._quoted_rows(), bool)
        rows = without_blank_end(self._path, self._noted_lines(), str.strip, self._hint)
        return ((number, line.split(self._delimiter)) for number, line in rows)

    def checked_width(self, number: int, row: list[str], header: Sequence[str]) -> list[str]:
        """Return a row that has as many fields as the header."""
        if len(row) != len(header):
            expected = f"{len(header)} as in the header ({', '.join(header[:20])}){self._hint()}"
            problem = f"{len(row)} columns"
            raise InputError(self._path, position=f"line {number}", problem=problem, expected=expected)
        return row

    def _hint(self) -> str:
        return _QUOTES_HINT if self._is_open else ""

    def _noted_lines(self) -> Iterator[tuple[int, str]]:
        for number, line in self._lines:
            last = line.rpartition(self._delimiter)[2]
            self._is_open = self._is_open or (last.startswith('"') and last.count('"') % 2 == 1)
            yield number, line

    def _quoted_rows(self) -> Rows:
        """Read rows with quoted fields; a blank line outside quotation marks is a row without fields."""
        lines = (f"{line}\n" for _, line in self._lines)
        csv.field_size_limit(LONGEST_FIELD)
        # Without `strict`, text after a closing quotation mark would be appended to the field, and an
        # unclosed quotation mark would make the rest of the file one field.
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        number = 1
        try:
            for row in reader:
                yield number, row
                number = reader.line_num + 1
        except csv.Error as error:
            expected = "fields in which quotation marks are doubled and closed (or --quotes literal)"
            raise InputError(
                self._path, position=f"line {number}", problem=str(error), expected=expected
            ) from error


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


def _check_delimiter(path: str, position: str, header: Sequence[str], delimiter: str) -> None:
    """Refuse a header that another delimiter splits into more columns, and name that delimiter."""
    line = delimiter.join(header)
    counts = {mark: line.count(mark) for mark in _DELIMITERS if mark != delimiter}
    mark = max(counts, key=lambda mark: counts[mark])
    if counts[mark] and counts[mark] >= len(header):
        shown = "\\t" if mark == "\t" else mark
        expected = f"{DELIMITER_OPTION} '{shown}' for columns separated by {_DELIMITERS[mark]}"
        problem = f"{counted(len(header), 'column')}, {quoted_names(header)}"
        raise InputError(path, position=position, problem=problem, expected=expected)


def _part(name: str, columns: Columns) -> str:
    """The part of a pair in a column; its text if the column is also the id."""
    parts = ("question", "answer", "label", "question_id", "answer_id")
    return next(part for part in parts if getattr(columns, part) == name)
