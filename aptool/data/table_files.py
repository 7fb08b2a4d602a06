"""Rows of tables with named columns: CSV, TSV, JSON Lines, Parquet and Excel, in files, folders and globs.

The suffix of a file is its format. Nothing is guessed: text is UTF-8 unless an encoding is given, and columns
are found by their names.
"""

import csv
import difflib
import io
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import polars as pl

from aptool.data.parquet import check_once, open_parquet
from aptool.data.text_files import read_json_lines, read_lines, without_blank_end
from aptool.errors import InputError, UsageError, first_line
from aptool.files import expand, open_unpacked, unpacked_name
from aptool.paths import location, names
from aptool.version import check_installed

logger = logging.getLogger(__name__)

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
_ENCODING_HINT = " (or --encoding NAME, such as cp1252)"
# Characters of a quoted field: an unclosed quotation mark reads on up to this limit.
_LONGEST_FIELD = 1 << 28
_MOST_NAMES = 20  # in a message

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class TextFormat:
    """The format of tables in text."""

    separator: str | None = None  # None: a tab in .tsv files, a comma in .csv files
    encoding: str | None = None  # None: UTF-8

    def __post_init__(self) -> None:
        """Check the values."""
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError as error:
                expected = "a text encoding of Python, such as cp1252"
                raise UsageError(f"--encoding {self.encoding!r}: expected {expected}") from error
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            expected = "one character other than a quotation mark"
            raise UsageError(f"--separator {self.separator!r}: expected {expected}")


def table_files(path: str) -> list[str]:
    """List the files of a table: a file, the matches of a glob, or the files below a folder, sorted by name.

    In folders, files whose name or folder begins with ``_`` or ``.`` are left out and logged, such as the
    ``_SUCCESS`` of Spark.
    """
    files: list[str] = []
    for match in [path] if is_folder(path) else expand([path], ""):
        if is_folder(match):
            folder = match.rstrip("/")
            names, hidden = names_below(folder)
            if hidden:
                logger.info(f"{folder}: left out: {', '.join(hidden)}")
            if not names:
                expected = f"files that end in {', '.join(SUFFIXES)}"
                raise InputError(folder, problem="a folder without a table", expected=expected)
            files += [f"{folder}/{name}" for name in names]
        else:
            files.append(match)
    for file in files:
        if _suffix(file) == ".xlsx":
            check_installed("fastexcel", purpose=f"{file}: an Excel workbook", extra="excel")
    return files


def split_folders(folder: str) -> dict[str, str]:
    """The folder of each split in a folder with ``split=NAME/`` folders, as DuckDB and Spark partition it."""
    folder = folder.rstrip("/")
    names, hidden = names_below(folder)
    outside = [name for name in hidden if "/" not in name]
    if outside:
        logger.info(f"{folder}: left out: {', '.join(outside)}")
    splits: dict[str, str] = {}
    for name in names:
        part = name.partition("/")[0]
        if part == name or not part.startswith("split="):
            expected = "a file in a folder split=NAME, or SPLIT=FOLDER for one split"
            raise InputError(f"{folder}/{name}", problem="a file of no split", expected=expected)
        splits[part.removeprefix("split=")] = f"{folder}/{part}"
    if not splits:
        raise InputError(folder, problem="an empty folder", expected="folders split=NAME")
    return splits


def is_folder(path: str) -> bool:
    """Whether a path is a folder on a disk or in an object store."""
    return location(path).is_dir()


def names_below(folder: str) -> tuple[list[str], list[str]]:
    """The sorted names of the files below a folder, relative to it: visible and hidden ones."""
    visible: list[str] = []
    hidden: list[str] = []
    for name in names(folder):
        is_hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
        (hidden if is_hidden else visible).append(name)
    return visible, hidden


def read_table(path: str, text: TextFormat, columns: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """Read the rows of a file, each with its position; of a Parquet file, at least the given columns."""
    suffix = _suffix(path)
    if suffix in (".csv", ".tsv"):
        separator = text.separator or ("," if suffix == ".csv" else "\t")
        yield from read_delimited(path, separator, text.encoding)
    elif suffix == ".parquet":
        yield from _read_parquet(path, set(columns))
    elif suffix == ".xlsx":
        yield from _read_excel(path)
    else:
        yield from read_json_lines(path, text.encoding, _ENCODING_HINT)


def _suffix(path: str) -> str:
    plain = unpacked_name(path).lower()
    suffix = PurePosixPath(plain).suffix
    if suffix not in SUFFIXES or (suffix in (".parquet", ".xlsx") and plain != path.lower()):
        raise InputError(
            path, problem="unknown format", expected=f"a name that ends in {', '.join(SUFFIXES)}"
        )
    return suffix


def read_delimited(
    path: str, separator: str, encoding: str | None = None
) -> Iterator[tuple[str, dict[str, str]]]:
    """Read the rows below the header line of a table in text.

    Quotation marks are text in a table with tabs; elsewhere they enclose fields, as in RFC 4180.
    """
    lines = read_lines(path, encoding, _ENCODING_HINT)
    rows: Iterator[tuple[int, list[str]]]
    if separator == "\t":
        rows = ((number, line.split("\t")) for number, line in without_blank_end(path, lines, str.strip))
    else:
        rows = without_blank_end(path, _quoted_rows(path, lines, separator), bool)
    first, header = next(rows, (1, None))
    if header is None:
        expected = "a header line with the names of the columns"
        raise InputError(path, problem="no line", expected=expected)
    name, count = Counter(filter(None, header)).most_common(1)[0] if any(header) else ("", 0)
    if count > 1:
        expected = "each column's name once"
        raise InputError(path, position=f"line {first}", column=name, expected=expected)
    for number, row in rows:
        if len(row) != len(header):
            expected = f"{len(header)} as in the header ({', '.join(header[:_MOST_NAMES])})"
            raise InputError(
                path, position=f"line {number}", problem=f"{len(row)} columns", expected=expected
            )
        yield f"line {number}", dict(zip(header, row, strict=True))


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


def _read_parquet(path: str, columns: set[str]) -> Iterator[tuple[str, Row]]:
    with open_parquet(path) as reader:
        names = reader.schema.names
        for name in columns:
            check_once(path, names, name)
        present = [name for name in names if name in columns]
        for number, row in enumerate(reader.rows(present)):
            # Columns that are not read are named where one is missing.
            yield f"row {number}", row if len(present) == len(columns) else {**dict.fromkeys(names), **row}


def _read_excel(path: str) -> Iterator[tuple[str, Row]]:
    """Read the first sheet as texts; its first row has the names of the columns. Blank rows are skipped."""
    import fastexcel

    with open_unpacked(path) as file:
        data = file.read()
    try:
        sheet = pl.read_excel(
            io.BytesIO(data), infer_schema_length=0, drop_empty_rows=False, raise_if_empty=False
        )
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError, EOFError) as error:
        raise InputError(path, problem=first_line(error), expected="an Excel workbook (.xlsx)") from error
    for number, row in enumerate(sheet.iter_rows(named=True), 2):
        if any(row.values()):
            yield f"row {number}", {name: value or "" for name, value in row.items()}


def column_value(path: object, position: str, row: Row, column: str, hint: str = "") -> Any:
    """The value of a column of a row; the error for a missing one names the columns and the nearest name."""
    if column in row:
        return row[column]
    names = list(row)
    expected = "this column" + (f", or {hint}" if hint else "")
    lowered = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(column.casefold(), lowered, n=1, cutoff=0.5)
    if near:
        expected += f"; did you mean {lowered[near[0]]!r}?"
    problem = f"not found among {_quoted(names)}"
    raise InputError(path, position=position, column=column, problem=problem, expected=expected)


def _quoted(names: Sequence[str]) -> str:
    """List at most twenty names, quoted and shortened."""
    shown = [repr(name if len(name) <= 30 else name[:29] + "…") for name in names[:_MOST_NAMES]]
    return (", ".join(shown) or "none") + (", …" if len(names) > _MOST_NAMES else "")
