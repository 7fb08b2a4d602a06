"""The header of a table: the columns of the parts of a pair, and a hint where there is no header."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from aptool.datasets.column_names import listed, nearest
from aptool.datasets.pairs import Columns
from aptool.datasets.policies import COLUMNS_OPTION, DELIMITER_OPTION, UNLABELLED_OPTION
from aptool.errors import InputError

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
