"""Tables with a header: delimited text, and sheets of Excel workbooks."""

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
from aptool.datasets.table_format import (
    FIRST_LINES,
    NumberedRow,
    TableFormat,
    default_quotes,
    find_header,
    guess_columns,
    quoted_rows,
    recognise_encoding,
    recognise_format,
)
from aptool.datasets.text_files import read_lines, without_blank_end
from aptool.datasets.workbook import SHEET_OPTION, SUFFIXES, read_sheet
from aptool.errors import InputError
from aptool.formats.inputs import unpacked_name

_XML = re.compile(r"\s*<[?!A-Za-z]")
_TRECQA = re.compile(r"\s*<QApairs\b")
_ROWS = 50  # read to guess the columns of a table without a header
_ENCODING_HINT = f" (or {ENCODING_OPTION} NAME, such as cp1252)"
_QUOTES_HINT = " (or --quotes csv, if quotation marks enclose fields with line breaks)"


def read_table(path: str) -> Iterator[dict[str, str]]:
    """Read the rows of a table as mappings by column name."""
    table = _TextTable(path, ColumnNames(), None, None)
    _, header = next(table.rows, (1, []))
    for number, row in table.rows:
        yield dict(zip(header, table.checked_width(number, row, header), strict=True))


def read_columns(
    path: str, names: ColumnNames, policies: SplitPolicies | None = None, delimiter: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Read the five columns of a pair from each row of a table, with its position.

    The table is text or a sheet of an Excel workbook. Policies are None for a fixed format; otherwise the
    format is recognised. ``delimiter`` is the default.
    """
    columns, header = names.columns, names.header
    table: _TextTable | _SheetTable
    if path.lower().endswith(SUFFIXES):
        table = _SheetTable(path, names, policies)
    else:
        table = _TextTable(path, names, policies, delimiter)
    rows, unit = table.rows, table.unit
    position = COLUMNS_OPTION
    if header is None:
        number, first_row = next(rows, (1, None))
        position = f"{unit} {number}"
        if first_row is None:
            problem = f"no {unit}"
            raise InputError(path, problem=problem, expected="a header line with the names of the columns")
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
            _check_header(path, position, header, columns, rows)
    for name in columns:
        if header.count(name) > 1:
            raise InputError(path, position=position, column=name, expected="each column's name once")
    if missing:
        hint = ""
        if policies is not None:
            hint = option_hint(_part(missing[0], columns), policies.split, missing[0]) + table.hint
        raise missing_column(path, position, missing[0], header, hint)
    indices = [header.index(name) for name in columns]
    for number, row in rows:
        fields = table.checked_width(number, row, header)
        yield f"{unit} {number}", [fields[index] for index in indices]


def refuse_xml(path: str, start: str) -> None:
    """Refuse a file whose first line looks like XML."""
    if _TRECQA.match(start):
        expected = "`aptool data import trecqa`, which reads these files of TREC-QA"
        raise InputError(path, position="line 1", problem="XML of TREC-QA", expected=expected)
    if _XML.match(start):
        expected = "a table or JSON; convert the file to one row per question and candidate"
        raise InputError(path, position="line 1", problem="XML", expected=expected)


class _TextTable:
    """The rows of delimited text with their line numbers, the header included."""

    unit = "line"
    hint = ""

    def __init__(
        self, path: str, names: ColumnNames, policies: SplitPolicies | None, delimiter: str | None
    ) -> None:
        """Recognise the format if there are policies, and log it if it is not the default."""
        self._path = path
        self._is_open = False  # whether a line with quotation marks as text began a field that it did not end
        self._encoding = names.encoding
        self._recognises = policies is not None
        default = delimiter or ("," if unpacked_name(path).lower().endswith(".csv") else "\t")
        recognise = self._recognise_encoding if self._recognises else None
        numbered = read_lines(path, names.encoding, _ENCODING_HINT, recognise)
        if policies is None:
            delimiter = names.delimiter or default
            self._format = TableFormat(delimiter, names.quotes or default_quotes(delimiter))
        else:
            first = list(itertools.islice(numbered, FIRST_LINES))
            self._format = recognise_format([line for _, line in first], names, default)
            numbered = itertools.chain(first, numbered)
            self._log(names, default, policies)
        self.rows = self._read(numbered)

    def _recognise_encoding(self, start: bytes) -> str | None:
        self._encoding = recognise_encoding(start)
        return self._encoding

    def _log(self, names: ColumnNames, default: str, policies: SplitPolicies) -> None:
        delimiter, quotes, header_line = self._format
        options = []
        shown = "'\\t'" if delimiter == "\t" else f"'{delimiter}'"
        if delimiter not in (names.delimiter, default):
            options.append(f"{DELIMITER_OPTION} {shown}")
        if quotes not in (names.quotes, default_quotes(delimiter)):
            options.append(f"--quotes {quotes}")
        if self._encoding is not None and names.encoding is None:
            options.append(f"{ENCODING_OPTION} {self._encoding}")
        recognised = [f"read with {' '.join(options)}"] if options else []
        if header_line > 1:
            recognised.append(f"the names of the columns are in line {header_line}")
        if recognised:
            policies.log_once(f"{self._path}: {', '.join(recognised)}")

    def _read(self, numbered: Iterator[tuple[int, str]]) -> Iterator[NumberedRow]:
        delimiter, quotes, header_line = self._format
        if quotes == "csv":
            rows = quoted_rows(self._path, (line for _, line in numbered), delimiter)
            rows = (row for row in rows if row[0] >= header_line and not self._is_unused(row[1]))
            return without_blank_end(self._path, rows, bool)
        lines = (
            (number, line)
            for number, line in self._noted(numbered)
            if number >= header_line and not self._is_unused(line.split(delimiter))
        )
        checked = without_blank_end(self._path, lines, str.strip, self._quotes_hint)
        return ((number, line.split(delimiter)) for number, line in checked)

    def _is_unused(self, row: list[str]) -> bool:
        """Whether a row of a spreadsheet has only separators."""
        return self._recognises and len(row) > 1 and not any(map(str.strip, row))

    def checked_width(self, number: int, row: list[str], header: Sequence[str]) -> list[str]:
        """Return a row that has as many fields as the header."""
        if len(row) != len(header):
            expected = f"{len(header)} as in the header ({', '.join(header[:20])}){self._quotes_hint()}"
            problem = f"{len(row)} columns"
            raise InputError(self._path, position=f"line {number}", problem=problem, expected=expected)
        return row

    def _quotes_hint(self) -> str:
        return _QUOTES_HINT if self._is_open else ""

    def _noted(self, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        for number, line in numbered:
            last = line.rpartition(self._format.delimiter)[2]
            self._is_open = self._is_open or (last.startswith('"') and last.count('"') % 2 == 1)
            yield number, line


class _SheetTable:
    """The rows of a sheet with their numbers in Excel, the header included."""

    unit = "row"

    def __init__(self, path: str, names: ColumnNames, policies: SplitPolicies | None) -> None:
        rows, other_sheets = read_sheet(path, names.sheet)
        start = find_header([row for _, row in rows], names)[0] if rows else 0
        if start and policies is not None:
            policies.log_once(f"{path}: the names of the columns are in row {rows[start][0]}")
        self.rows = iter(rows[start:])
        self.hint = (
            f", or {SHEET_OPTION} NAME for one of {quoted_names(other_sheets)}" if other_sheets else ""
        )

    def checked_width(self, number: int, row: list[str], header: Sequence[str]) -> list[str]:
        """Return the row: all rows of a sheet have one width."""
        return row


def _check_header(
    path: str, position: str, header: Sequence[str], columns: Columns, rows: Iterator[NumberedRow]
) -> None:
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


def _part(name: str, columns: Columns) -> str:
    """The part of a pair in a column; its text if the column is also the id."""
    parts = ("question", "answer", "label", "question_id", "answer_id")
    return next(part for part in parts if getattr(columns, part) == name)
