"""Delimited text with a header line: its rows, and the pairs of a table with one row per pair."""

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from aptool.datasets.column_names import ColumnNames, RawPair, listed, nearest
from aptool.datasets.lines import read_lines, read_rows
from aptool.datasets.pairs import Columns, Pair
from aptool.datasets.policies import COLUMNS_OPTION, DELIMITER_OPTION, UNLABELLED_OPTION, SplitPolicies
from aptool.errors import InputError

# Most characters of a field in quotation marks: a quotation mark that is never closed reads on up to here.
LONGEST_FIELD = 1 << 28


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
    quotes = quotes or ("literal" if delimiter == "\t" else "csv")
    return (_quoted_rows if quotes == "csv" else _literal_rows)(path, delimiter), delimiter


def table_pairs(path: str, names: ColumnNames, policies: SplitPolicies) -> Iterator[RawPair]:
    """The rows of a table as pairs with their labels, which are empty where the split has none.

    Raises:
        InputError: a column is missing, or a row has another number of columns than the header.
    """
    rows, delimiter = _open(path, names.delimiter, names.quotes)
    if names.header is not None:
        rows = itertools.chain([(0, list(names.header))], rows)
    needed = names.columns
    if not policies.labelled:
        needed = needed._replace(label=names.question)  # the label is not read
    header, columns = find_columns(path, rows, needed, delimiter, options=True, split=policies.split)
    for number, row in rows:
        fields = row_fields(path, number, row, header)
        question_id, question, answer_id, answer, label = (fields[column] for column in columns)
        pair = Pair(number, question_id, question, answer_id, answer, 0)
        yield pair, label.strip() if policies.labelled else ""


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


_DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
_LABEL = re.compile(r"[0-9]|true|false", re.IGNORECASE)
_XML = re.compile(r"\s*<[?!A-Za-z]")
_TRECQA = re.compile(r"\s*<QApairs\b")
_ROWS = 50  # read to guess the columns of a table without a header
_MOST_WORD_LABELS = 5


def find_columns(
    path: str,
    rows: Iterator[tuple[int, Any]],
    needed: Columns,
    delimiter: str,
    *,
    options: bool = False,
    split: str | None = None,
) -> tuple[list[str], list[int]]:
    """Takes the header from ``rows`` and finds the columns in it.

    Args:
        path: the file, for messages.
        rows: its lines or rows; the first is consumed.
        needed: the columns' names.
        delimiter: their separator in a line.
        options: whether command-line options can choose other names.
        split: name of a split that may have no label column.

    Returns:
        All column names, and the index of each column in ``needed``.

    Raises:
        InputError: there is no header, a name is repeated, or one is missing: the message lists the columns
            of the file and names the nearest.
    """
    number, header = next(rows, (1, None))
    if header is None:
        raise InputError(path, problem="no line", expected="a header line with the names of the columns")
    names: list[str] = header.split(delimiter) if isinstance(header, str) else header
    place = f"line {number}" if number else COLUMNS_OPTION
    missing = [name for name in dict.fromkeys(needed) if name not in names]
    if missing and number:
        refuse_xml(path, names[0])
        _refuse_json(path, names[0])
        if options:
            _check_header(path, place, names, needed, rows)
    for name in names:
        if names.count(name) > 1:
            raise InputError(path, place=place, column=name, expected="each column's name once")
    for name in missing:
        expected = _missing(name, names, delimiter)
        expected += f" ({_option(name, needed, split)})" if options else ""
        raise InputError(path, place=place, column=name, expected=expected)
    return names, [names.index(name) for name in needed]


def refuse_xml(path: str, start: str) -> None:
    """Refuses a file that begins as XML does.

    Raises:
        InputError: it is XML; where a command reads it, the message names the command.
    """
    if _TRECQA.match(start):
        expected = "`aptool data import trecqa`, which reads these files of TREC-QA"
        raise InputError(path, place="line 1", problem="XML of TREC-QA", expected=expected)
    if _XML.match(start):
        expected = "a table or JSON; convert the file to one row per question and candidate"
        raise InputError(path, place="line 1", problem="XML", expected=expected)


def _refuse_json(path: str, start: str) -> None:
    if start.lstrip().startswith(("{", "[{")):
        expected = "a table with a header line; `aptool data import json` reads JSON"
        raise InputError(path, place="line 1", problem="JSON", expected=expected)


def guess_columns(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """The names of the columns of a table without a header line, by its first rows; None if unclear.

    The label is a column of digits, or one in which a few words recur; question and answer are the two
    longest of the other columns, in their order.
    """
    width = len(rows[0])
    if width < 3 or any(len(row) != width for row in rows):
        return None
    columns = [[row[index].strip() for row in rows] for index in range(width)]
    label = next((index for index in reversed(range(width)) if _all_labels(columns[index])), None)
    if label is None:
        label = next((index for index in reversed(range(width)) if _few_words(columns[index])), None)
    if label is None:
        return None
    lengths = {index: sum(map(len, column)) for index, column in enumerate(columns) if index != label}
    longest = sorted(lengths, key=lambda index: (-lengths[index], index))[:2]
    parts = dict(zip(sorted(longest), ("question", "answer"), strict=True)) | {label: "label"}
    return [parts.get(index, f"column{index + 1}") for index in range(width)]


def _all_labels(column: Sequence[str]) -> bool:
    return all(_LABEL.fullmatch(value) for value in column)


def _few_words(column: Sequence[str]) -> bool:
    """Whether a column has labels in words: few distinct ones, and the first row's recurs."""
    distinct = set(column)
    one_word = all(value and not any(character.isspace() for character in value) for value in distinct)
    return (
        one_word
        and 1 < len(distinct) <= min(_MOST_WORD_LABELS, len(column) // 2)
        and column.count(column[0]) > 1
    )


def _check_header(
    path: str, place: str, names: list[str], needed: Columns, rows: Iterator[tuple[int, Any]]
) -> None:
    """Refuses a first line that is a row of the table, with the option that names its columns."""
    lowered = {name.casefold() for name in names}
    if any(name.casefold() in lowered for name in needed):
        return
    first = [names, *(list(row) for _, row in itertools.islice(rows, _ROWS))]
    guess = guess_columns(first)
    if guess is not None:
        label = needed.label if needed.label != needed.question else "label"
        named = {"question": needed.question, "answer": needed.answer, "label": label}
        option = f"{COLUMNS_OPTION} {','.join(named.get(name, name) for name in guess)}"
        raise InputError(path, place=place, problem=f"no header line: {listed(names)}", expected=option)


def _missing(name: str, names: Sequence[str], delimiter: str) -> str:
    listing = f"such a column; the header has {listed(names)}"
    other = [mark for mark in _DELIMITERS if mark != delimiter and len(names) == 1 and mark in names[0]]
    if other:
        mark = "\\t" if other[0] == "\t" else other[0]
        separator = _DELIMITERS[other[0]]
        return f"{listing}: one column, separated by {separator} perhaps ({DELIMITER_OPTION} '{mark}')"
    return listing + nearest(name, names)


def _option(name: str, needed: Columns, split: str | None) -> str:
    """The option that chooses a column; of a column with two uses, that of its text."""
    parts = ("question", "answer", "label", "question_id", "answer_id")
    part = next(part for part in parts if getattr(needed, part) == name)
    hint = f"--{part.replace('_', '-')} says which"
    if part == "label" and split:
        hint += f"; {UNLABELLED_OPTION} {split} imports the split without labels"
    return hint
