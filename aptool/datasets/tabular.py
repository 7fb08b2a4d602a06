"""Delimited text with a header line: its rows, and the pairs of a table with one row per pair."""

import csv
import itertools
from collections.abc import Iterator, Sequence

from aptool.datasets.column_names import ColumnNames
from aptool.datasets.headers import find_columns
from aptool.datasets.labels import RawPair
from aptool.datasets.lines import read_lines, read_rows
from aptool.datasets.pairs import Pair
from aptool.datasets.policies import SplitPolicies
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
