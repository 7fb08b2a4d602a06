"""Legal ids of questions and answers, the same rule for every file.

An id has at least one character and no white space, control character or lone surrogate: white space ends a
field of a run file, control characters break lines in other tools, and a lone surrogate has no UTF-8. A
question id comes first on a line, so it begins neither with ``#`` (a comment) nor with U+FEFF (a byte order
mark).
"""

import re

from aptool.errors import InputError, UsageError

# Unicode's white space and control characters, spelled out because \s differs between Python, RE2, Rust and
# ECMAScript.
_FORBIDDEN = "\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# As in the JSON Schemas; these need not exclude surrogates, which UTF-8 files cannot contain.
ANSWER_ID = f"^[^{_FORBIDDEN}]+$"
QUESTION_ID = f"^[^#\ufeff{_FORBIDDEN}][^{_FORBIDDEN}]*$"

EXPECTED_ANSWER_ID = "an id without white space or control characters"
EXPECTED_QUESTION_ID = f"{EXPECTED_ANSWER_ID} that does not begin with '#'"

_ANSWER_ID = re.compile(f"[^{_FORBIDDEN}\ud800-\udfff]+")


def check_one_word(name: str, value: str) -> None:
    """Raise if the tag of a run or the name of a collection, the option ``name``, is not one word."""
    if value.split() != [value]:
        raise UsageError(f"{name} {value!r}: expected one word")


def is_answer_id(value: object) -> bool:
    """Whether ``value`` is a legal answer id."""
    return isinstance(value, str) and _ANSWER_ID.fullmatch(value) is not None


def is_question_id(value: object) -> bool:
    """Whether ``value`` is a legal question id."""
    return is_answer_id(value) and str(value)[0] not in "#\ufeff"


def check_answer_id(path: object, place: str, value: object, column: str | None = None) -> None:
    """Raise if an answer id is not legal, naming ``place`` in the file and its column."""
    if not is_answer_id(value):
        raise InputError(str(path), place=place, column=column, value=value, expected=EXPECTED_ANSWER_ID)


def check_question_id(path: object, place: str, value: object, column: str | None = None) -> None:
    """Raise if a question id is not legal; see ``check_answer_id``."""
    if not is_question_id(value):
        raise InputError(str(path), place=place, column=column, value=value, expected=EXPECTED_QUESTION_ID)
