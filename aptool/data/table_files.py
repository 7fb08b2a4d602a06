"""Tables with named columns: CSV, TSV, JSON Lines, Parquet and Excel, in files, folders and globs.

The suffix of a file is its format. Nothing is guessed: text is UTF-8 unless an encoding is given, and columns
are found by their names.

A line of text ends in LF or CR LF and nowhere else: Python's ``str.splitlines`` would also end one at U+2028,
and `csv` at a lone CR. A byte order mark is skipped.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from aptool.data.frames import MOST_NAMES, RawTable, columns_of
from aptool.data.parquet import check_once, is_type, open_parquet, text_column
from aptool.documents import parse_json
from aptool.environment import require
from aptool.errors import InputError, UsageError, first_line
from aptool.files import check_is_text, expand, open_unpacked, unpacked_name
from aptool.paths import location, names

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ENCODING_HINT = " (or --encoding NAME, such as cp1252)"
# Characters of a quoted field: an unclosed quotation mark reads on up to this limit.
_LONGEST_FIELD = 1 << 28

Row = TypeVar("Row")


def check_text_format(separator: str | None, encoding: str | None) -> None:
    """Check the format of tables in text."""
    if encoding is not None:
        try:
            "".encode(encoding)
        except LookupError as error:
            expected = "a text encoding of Python, such as cp1252"
            raise UsageError(f"--encoding {encoding!r}: expected {expected}") from error
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        expected = "one character other than a quotation mark"
        raise UsageError(f"--separator {separator!r}: expected {expected}")


def table_files(path: str) -> list[str]:
    """List the files of a table: a file, the matches of a glob, or the files below a folder, sorted by name.

    In folders, files whose name or folder begins with ``_`` or ``.`` are left out, such as ``_SUCCESS``.
    """
    files: list[str] = []
    for match in [path] if location(path).is_dir() else expand([path], ""):
        if not location(match).is_dir():
            files.append(match)
            continue
        folder = match.rstrip("/")
        names = _names_below(folder)
        if not names:
            expected = f"files that end in {', '.join(SUFFIXES)}"
            raise InputError(folder, problem="a folder without a table", expected=expected)
        files += [f"{folder}/{name}" for name in names]
    return files


def split_folders(folder: str) -> dict[str, str]:
    """The folder of each split in a folder with ``split=NAME/`` folders, as DuckDB and Spark partition it."""
    folder = folder.rstrip("/")
    splits: dict[str, str] = {}
    for name in _names_below(folder):
        part = name.partition("/")[0]
        if part == name or not part.startswith("split="):
            expected = "a file in a folder split=NAME, or SPLIT=FOLDER for one split"
            raise InputError(f"{folder}/{name}", problem="a file of no split", expected=expected)
        splits[part.removeprefix("split=")] = f"{folder}/{part}"
    if not splits:
        raise InputError(folder, problem="an empty folder", expected="folders split=NAME")
    return splits


def _names_below(folder: str) -> list[str]:
    """The sorted names of the visible files below a folder, relative to it."""
    return [name for name in names(folder) if not any(p.startswith(("_", ".")) for p in name.split("/"))]


def read_table(
    path: str, columns: Iterable[str], separator: str | None = None, encoding: str | None = None
) -> RawTable:
    """Read a file: of a Parquet file, the given columns; of other files, all.

    The default separator is a tab in .tsv files and a comma in .csv files, the default encoding UTF-8.
    """
    suffix = _suffix(path)
    if suffix in (".csv", ".tsv"):
        return read_delimited(path, separator or ("," if suffix == ".csv" else "\t"), encoding)
    if suffix == ".parquet":
        return _read_parquet(path, set(columns))
    if suffix == ".xlsx":
        return _read_excel(path)
    rows = list(read_json_lines(path, encoding, _ENCODING_HINT))
    return RawTable(path, columns_of([row for _, row in rows]), lambda number: rows[number][0])


def _suffix(path: str) -> str:
    plain = unpacked_name(path).lower()
    suffix = PurePosixPath(plain).suffix
    if suffix not in SUFFIXES or (suffix in (".parquet", ".xlsx") and plain != path.lower()):
        raise InputError(
            path, problem="unknown format", expected=f"a name that ends in {', '.join(SUFFIXES)}"
        )
    return suffix


def read_delimited(path: str, separator: str, encoding: str | None = None) -> RawTable:
    """Read a table in text, whose first line has the names of the columns.

    Quotation marks are text in a table with tabs; elsewhere they enclose fields, as in RFC 4180.
    """
    lines = read_lines(path, encoding, _ENCODING_HINT)
    rows: Iterator[tuple[int, list[str]]]
    if separator == "\t":
        rows = ((number, line.split("\t")) for number, line in without_blank_end(path, lines, str.strip))
    else:
        rows = without_blank_end(path, _quoted_rows(path, lines, separator), bool)
    _, header = next(rows, (1, None))
    if header is None:
        expected = "a header line with the names of the columns"
        raise InputError(path, problem="no line", expected=expected)
    for name in filter(None, header):
        check_once(path, header, name)
    numbers: list[int] = []
    values: list[list[str]] = [[] for _ in header]
    for number, row in rows:
        if len(row) != len(header):
            expected = f"{len(header)} as in the header ({', '.join(header[:MOST_NAMES])})"
            raise InputError(
                path, position=f"line {number}", problem=f"{len(row)} columns", expected=expected
            )
        numbers.append(number)
        for column, value in zip(values, row, strict=True):
            column.append(value)
    columns = {name: pl.Series(column, dtype=pl.String) for name, column in zip(header, values, strict=True)}
    return RawTable(path, columns, lambda row: f"line {numbers[row]}")


def _quoted_rows(
    path: str, lines: Iterable[tuple[int, str]], separator: str
) -> Iterator[tuple[int, list[str]]]:
    """Read rows with quoted fields, each with the number of its first line; a blank line is an empty row."""
    csv.field_size_limit(_LONGEST_FIELD)
    # Without `strict`, text after a closing quotation mark would be appended to the field, and an unclosed
    # quotation mark would make the rest of the file one field.
    reader = csv.reader((f"{line}\n" for _, line in lines), delimiter=separator, strict=True)
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        expected = "fields in which quotation marks are doubled and closed"
        raise InputError(path, position=f"line {number}", problem=str(error), expected=expected) from error


def _read_parquet(path: str, columns: set[str]) -> RawTable:
    with open_parquet(path) as reader:
        names = reader.schema.names
        for name in columns:
            check_once(path, names, name)
        table = reader.read([name for name in names if name in columns])
    # The error of a missing column names all columns.
    values = dict.fromkeys(names, pl.repeat(None, reader.metadata.num_rows, eager=True))
    for name in table.column_names:
        column = table[name]
        if is_type(column.type, pa.string()):
            column = text_column(path, name, column, nullable=True)
        values[name] = pl.Series(column)
    return RawTable(path, values)


def _read_excel(path: str) -> RawTable:
    """Read the first sheet as texts; its first row has the names of the columns. Blank rows are skipped."""
    fastexcel = require("fastexcel", purpose=f"{path}: an Excel workbook", extra="excel")
    with open_unpacked(path) as file:
        data = file.read()
    try:
        sheet = pl.read_excel(
            io.BytesIO(data), infer_schema_length=0, drop_empty_rows=False, raise_if_empty=False
        )
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError, EOFError) as error:
        raise InputError(path, problem=first_line(error), expected="an Excel workbook (.xlsx)") from error
    columns = sheet.columns
    rows = sheet.fill_null("").with_row_index("", 2).filter(pl.any_horizontal(pl.col(columns) != ""))
    return RawTable(path, rows.select(columns).to_dict(), lambda row: f"row {rows[''][row]}")


def read_lines(path: str | Path, encoding: str | None = None, hint: str = "") -> Iterator[tuple[int, str]]:
    """Read the lines of a text file, with their numbers from 1; refuse NUL bytes and lone CR.

    An ``encoding`` of None is UTF-8. The error for another encoding has the ``hint``.
    """
    with open_unpacked(path) as file:
        lines: Iterable[bytes] = file
        if encoding is None:
            check_is_text(path, file.peek())
        else:
            text = io.TextIOWrapper(file, encoding, newline="\n")
            lines = (line.encode() for line in text)
        for number, raw in enumerate(lines, 1):
            line = raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw
            yield number, _decode(path, number, line, hint)


def read_rows(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read lines as `read_lines` does; blank lines are skipped at the end and refused elsewhere."""
    return without_blank_end(path, read_lines(path), str.strip)


def without_blank_end(
    path: str | Path, rows: Iterable[tuple[int, Row]], content: Callable[[Row], object]
) -> Iterator[tuple[int, Row]]:
    """Yield numbered rows; rows without content are skipped at the end and refused elsewhere."""
    blank = 0
    for number, row in rows:
        if not content(row):
            blank = blank or number
        elif blank:
            expected = "a row; only the end may be blank"
            raise InputError(path, position=f"line {blank}", value="", expected=expected)
        else:
            yield number, row


def _decode(path: str | Path, number: int, raw: bytes, hint: str) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        position = f"line {number}, byte {error.start + 1}"
        bad = raw[error.start : error.start + 1]
        raise InputError(path, position=position, value=bad, expected=f"text in UTF-8{hint}") from error
    for byte, name, expected in (
        (b"\0", "a NUL byte", "text, not a binary file"),
        (b"\r", "a carriage return", "lines that end in LF or CR LF"),
    ):
        if byte in raw:
            position = f"line {number}, byte {raw.index(byte) + 1}"
            raise InputError(path, position=position, value=name, expected=expected)
    return line


def read_json_lines(
    path: str | Path, encoding: str | None = None, hint: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the object of each line, with its position; blank lines are skipped."""
    for number, line in read_lines(path, encoding, hint):
        if line.strip():
            position, expected = f"line {number}", "one JSON object per line"
            value = parse_json(line, path, position=position, expected=expected, strict=True)
            if not isinstance(value, dict):
                raise InputError(path, position=position, value=value, expected=expected)
            yield position, value
