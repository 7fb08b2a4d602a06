"""Qrels and runs in the layouts of other tools: JSON of ranx and pytrec_eval, tables of BEIR."""

import re
import sys
from collections.abc import Iterator

from aptool.data import ids
from aptool.documents import parse_json
from aptool.errors import InputError
from aptool.paths import PathOrUrl

_MOST = {int: (1 << 63) - 1, float: sys.float_info.max}
_JSON = re.compile(rb'\s*\{\s*(\}\s*\Z|"(?:[^"\\]|\\.)*"\s*:)')  # an id of a TREC file may begin with a brace
_BEIR_HEADER = re.compile(rb"\s*\S+[ \t]+\S+[ \t]+(?:score|relevance|label)\s*", re.IGNORECASE)


def is_json(data: bytes) -> bool:
    """Whether a file holds a JSON object."""
    return _JSON.match(data) is not None


def json_rows(
    path: PathOrUrl, data: bytes, number: type[int] | type[float]
) -> Iterator[tuple[str, str, float]]:
    """The question id, answer id and number of each entry of ``{question id: {answer id: number}}``."""
    expected = '{"question id": {"answer id": number}}'
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(path, problem="bytes that are not UTF-8", expected="text in UTF-8") from error
    document = parse_json(text, path, expected=expected, strict=True)
    for question, numbers in document.items():
        position = f"question {question!r}"
        ids.check_question_id(path, position, question, "question_id")
        if not isinstance(numbers, dict):
            raise InputError(path, position=position, value=numbers, expected=expected)
        for answer, value in numbers.items():
            ids.check_answer_id(path, position, answer, "answer_id")
            is_number = isinstance(value, int | number) and not isinstance(value, bool)
            if not is_number or not abs(value) <= _MOST[number]:  # also false for NaN
                kind = "a whole number of 64 bits" if number is int else "a finite number"
                raise InputError(path, position=f"{position}, {answer!r}", value=value, expected=kind)
            yield question, answer, value


def trec_lines(data: bytes) -> bytes:
    """The lines of qrels; those of BEIR, with a header and without the second field, get that field."""
    first, newline, rest = data.partition(b"\n")
    if not _BEIR_HEADER.fullmatch(first):
        return data
    fields = (line.split() for line in rest.split(b"\n"))
    # The header becomes a blank line, so that the numbers of the lines stay.
    return newline + b"\n".join(b" ".join([*row[:1], b"0", *row[1:]]) if row else b"" for row in fields)


def hint(fields: list[str], *, is_run: bool) -> str:
    """Name the known format of a line that has another one than expected; empty if the format is unknown."""
    if is_run and _BEIR_HEADER.fullmatch(" ".join(fields).encode()):
        return "; this looks like qrels of BEIR, for --qrels"
    if is_run and len(fields) == 4 and fields[3].lstrip("+-").isdecimal():
        return "; this looks like qrels, for --qrels"
    if is_run and len(fields) == 3 and fields[2].isdecimal():
        return "; this looks like a run of MS MARCO, without scores"
    if not is_run and len(fields) == 6 and fields[1].upper() == "Q0":
        return "; this looks like a run"
    return ""
