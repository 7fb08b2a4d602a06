"""Format of a table from its first lines: encoding, delimiter, quotation marks and the line of the header."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from aptool.datasets.import_options import ColumnNames, Quotes
from aptool.errors import InputError

FIRST_LINES = 200  # from which the format is recognised
_HEADER_ROWS = 20  # one of which is the header, after the titles and dates of an export
_DELIMITERS = (",", "\t", ";", "|")
# Encodings to choose from where a text is not UTF-8.
_LATIN = ["cp1252", "cp1250"]
_OTHER_SCRIPTS = ["cp1251", "cp1253", "cp932", "gb18030", "big5", "cp949"]
# Texts in another code page, read as cp1252: Polish ą, ł, ż and Czech ě, and Turkish ğ, ş within words.
_CENTRAL_EUROPEAN = re.compile("[a-zà-ÿ][¹³¿ì][a-zà-ÿ]")
_TURKISH = re.compile("[a-zà-ÿ][ðþ][a-zà-ÿ]")
# Characters of a quoted field: an unclosed quotation mark reads on up to this limit.
_LONGEST_FIELD = 1 << 28
_LABEL = re.compile(r"[0-9]|true|false", re.IGNORECASE)
_MOST_WORD_LABELS = 5

NumberedRow: TypeAlias = tuple[int, list[str]]  # line, fields
NumberedRows: TypeAlias = list[NumberedRow]


def recognise_encoding(start: bytes) -> str | None:
    """Encoding of a text without a byte order mark by its first bytes; None for UTF-8 or if unclear."""
    for encoding, high_bytes in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if 2 * high_bytes.count(0) > len(high_bytes):
            return encoding
    whole_lines = start[: start.rfind(b"\n") + 1] or start
    text = whole_lines.decode("utf-8", errors="replace")
    bad = text.count("\ufffd")
    if not bad or bad <= len(text) - len(text.encode("ascii", errors="ignore")) - bad:
        return None  # or UTF-8 with a few bad bytes, which reading reports
    from charset_normalizer import from_bytes

    best = from_bytes(whole_lines, cp_isolation=[*_LATIN, *_OTHER_SCRIPTS]).best()
    if best is None:
        return None
    if best.encoding in _OTHER_SCRIPTS:
        return best.encoding
    # Statistics of letters confuse the Latin code pages in short texts.
    western = whole_lines.decode("cp1252", errors="replace")
    if _TURKISH.search(western):
        return None
    return "cp1250" if _CENTRAL_EUROPEAN.search(western) else "cp1252"


def default_quotes(delimiter: str) -> Quotes:
    """Meaning of quotation marks where neither an option nor the lines of a table tell it."""
    return "literal" if delimiter == "\t" else "csv"


class TableFormat(NamedTuple):
    """Delimiter, quotation marks and the line of the header of a table."""

    delimiter: str
    quotes: Quotes
    header_line: int = 1


def recognise_format(lines: Sequence[str], names: ColumnNames, default: str) -> TableFormat:
    """Choose the format in which the first lines of a table have the columns ``names`` and rows of one width.

    Options of ``names`` are kept. ``default`` is the delimiter by the name of the file.
    """
    given = names.delimiter
    delimiters = (
        [given] if given is not None else [default, *(mark for mark in _DELIMITERS if mark != default)]
    )
    formats: list[tuple[tuple[bool, bool, int], TableFormat]] = []
    for delimiter in delimiters:
        choices: list[Quotes] = ["csv"] if delimiter != "\t" else ["literal", "csv"]
        for quotes in choices if names.quotes is None else [names.quotes]:
            rows, is_valid = _first_rows(lines, delimiter, quotes)
            if not rows:
                formats.append(((False, False, 0), TableFormat(delimiter, quotes)))
                continue
            index, has_columns = find_header([row for _, row in rows], names)
            width = len(names.header or rows[index][1])
            is_regular = is_valid and width > 1 and all(len(row) == width for _, row in rows[index:] if row)
            key = has_columns, is_regular, width if is_regular else 0
            formats.append((key, TableFormat(delimiter, quotes, rows[index][0])))
    return max(formats, key=itemgetter(0))[1]  # the first of equally good formats


def _first_rows(lines: Sequence[str], delimiter: str, quotes: Quotes) -> tuple[NumberedRows, bool]:
    """The rows of the first lines, and whether all lines could be read."""
    if quotes == "literal":
        return list(enumerate((line.split(delimiter) if line.strip() else [] for line in lines), 1)), True
    rows = []
    try:
        for row in quoted_rows("", lines, delimiter):
            rows.append(row)
    except InputError as error:
        # The first lines may end within quotation marks.
        return rows, len(lines) == FIRST_LINES and "end of data" in str(error)
    return rows, True


def quoted_rows(path: str, lines: Iterable[str], delimiter: str) -> Iterator[NumberedRow]:
    """Read rows with quoted fields, each with the number of its first line; a blank line is an empty row."""
    csv.field_size_limit(_LONGEST_FIELD)
    # Without `strict`, text after a closing quotation mark would be appended to the field, and an unclosed
    # quotation mark would make the rest of the file one field.
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        expected = "fields in which quotation marks are doubled and closed (or --quotes literal)"
        raise InputError(path, position=f"line {number}", problem=str(error), expected=expected) from error


def find_header(rows: Sequence[Sequence[str]], names: ColumnNames) -> tuple[int, bool]:
    """Index of the header among the first rows, and whether it has the columns of the texts and ids.

    Titles above a header have fewer texts than it. Without the columns, the header is the first row with at
    least half as many texts as the fullest row.
    """
    if names.header is not None:
        return 0, len(rows[0]) == len(names.header)
    columns = names.columns
    required = {columns.question, columns.answer, columns.question_id, columns.answer_id}
    first = rows[:_HEADER_ROWS]
    texts = [sum(1 for cell in row if cell.strip()) for row in first]
    index = next((index for index, row in enumerate(first) if required <= set(row)), None)
    if index is not None and texts[index] > max(texts[:index], default=0):
        return index, True
    return next(index for index, count in enumerate(texts) if 2 * count >= max(texts)), False


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
