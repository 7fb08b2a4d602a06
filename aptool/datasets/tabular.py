"""Data of the user's own: delimited text with one row per pair, or JSON with one object per pool.

Columns are found by their names. Without ids, a question is identified by its text and an answer by its text
within the question, so that a repeated row is a repeated candidate.
"""

import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from aptool.datasets.column_names import ColumnNames, listed, nearest, with_ids
from aptool.datasets.importing import (
    Columns,
    Conflicts,
    Pair,
    Resolution,
    SplitPools,
    parse_label,
    pools_of,
    write_collection,
)
from aptool.datasets.json_pools import pairs_of_pool
from aptool.datasets.json_rows import read_objects, unit_of
from aptool.datasets.lines import read_lines, read_rows
from aptool.errors import InputError
from aptool.formats.collection import Collection, LabelledPool

# Most characters of a field in quotation marks: a quotation mark that is never closed reads on up to here.
LONGEST_FIELD = 1 << 28

_DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}


def build(
    kind: Literal["tsv", "jsonl"],
    out: str | Path,
    splits: Mapping[str, str],
    names: ColumnNames,
    *,
    name: str,
    questions: str = "all",
    conflicts: Resolution = "error",
) -> Collection:
    """Imports delimited text, one row per pair, or JSON, one object per question with its candidates.

    Args:
        kind: ``tsv``, or ``jsonl`` (JSON Lines, or one JSON array).
        out: the collection's folder.
        splits: split -> file.
        names: the columns or keys, and the format of a table.
        name: of the collection.
        questions: which questions are kept; see `CollectionWriter`.
        conflicts: what becomes of a pair with different labels; see `Conflicts`.

    Raises:
        InputError: a row is not a pair, or an object not a pool; the message names file, line, column, value
            and expectation.
    """
    read = read_tsv if kind == "tsv" else read_jsonl
    files = ", ".join(str(path).rsplit("/", 1)[-1] for path in splits.values())
    details = {"layout": {key: value for key, value in asdict(names).items() if value is not None}}
    sources = {}
    for split, path in splits.items():
        found = Conflicts(conflicts)
        sources[split] = SplitPools(path, read(path, names, split, found), found)
    return write_collection(
        out, name=name, source=f"imported from {files}", splits=sources, questions=questions, details=details
    )


def read_tsv(
    path: str, names: ColumnNames, split: str, conflicts: Conflicts | None = None
) -> Iterator[LabelledPool]:
    """The pools of one delimited file."""
    pairs = with_ids(_tsv_pairs(path, names), names, split)
    return pools_of(path, pairs, names.columns, empty_answers=False, conflicts=conflicts)


def read_jsonl(
    path: str, names: ColumnNames, split: str, conflicts: Conflicts | None = None
) -> Iterator[LabelledPool]:
    """The pools of one file of JSON Lines, or of a JSON array."""
    unit = unit_of(path)
    objects = read_objects(path, strict=True)
    found = (pair for number, pool in objects for pair in pairs_of_pool(path, number, unit, pool, names))
    pairs = with_ids(found, names, split)
    return pools_of(path, pairs, names.columns, unit=unit, empty_answers=False, conflicts=conflicts)


def read_table(path: str) -> Iterator[dict[str, str]]:
    """The rows of a table with a header line by its names; the format is told by the file's name.

    Raises:
        InputError: a row has another number of columns than the header.
    """
    rows, _ = _open(path, None, None)
    header: list[str] = []
    for number, row in rows:
        if header:
            yield dict(zip(header, row_fields(path, number, row, header), strict=True))
        header = header or row


def _open(
    path: str, delimiter: str | None, quotes: str | None
) -> tuple[Iterator[tuple[int, list[str]]], str]:
    """The rows of a table, the header line among them, and the separator of its columns."""
    comma = path.lower().removesuffix(".gz").endswith(".csv")
    delimiter = delimiter or ("," if comma else "\t")
    quotes = quotes or ("csv" if delimiter == "," else "literal")
    return (_quoted_rows if quotes == "csv" else _literal_rows)(path, delimiter), delimiter


def _tsv_pairs(path: str, names: ColumnNames) -> Iterator[Pair]:
    rows, delimiter = _open(path, names.delimiter, names.quotes)
    if names.header is not None:
        rows = itertools.chain([(0, list(names.header))], rows)
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
    place = f"line {number}" if number else "--columns"
    for name in names:
        if names.count(name) > 1:
            raise InputError(path, place=place, column=name, expected="each column's name once")
    for name in wanted:
        if name not in names:
            expected = _missing(name, names, delimiter) + (f" ({_option(name, wanted)})" if options else "")
            raise InputError(path, place=place, column=name, expected=expected)
    return names, [names.index(name) for name in wanted]


def _missing(name: str, names: Sequence[str], delimiter: str) -> str:
    said = f"such a column; the header has {listed(names)}"
    other = [mark for mark in _DELIMITERS if mark != delimiter and len(names) == 1 and mark in names[0]]
    if other:
        return f"{said}: one column, separated by {_DELIMITERS[other[0]]} perhaps (--delimiter)"
    return said + nearest(name, names)


def _option(name: str, wanted: Columns) -> str:
    """The option that chooses a column; of a column with two uses, that of its text."""
    parts = ("question", "answer", "label", "question_id", "answer_id")
    part = next(part for part in parts if getattr(wanted, part) == name)
    return f"--{part.replace('_', '-')} says which"


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
