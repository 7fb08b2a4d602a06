"""Legal ids of questions and answers: the one rule for every file that holds them.

An id has at least one character and no white space, control character or lone surrogate: white space ends a
field of a run file, a control character breaks or hides a line in other tools, a lone surrogate has no UTF-8.
A question's id comes first on a line, so it begins neither with ``#``, which makes the line a comment, nor
with U+FEFF, which is taken for a byte order mark.
"""

import re

from aptool.errors import InputError, UsageError

# Unicode's white space and control characters. Spelled out, the class means the same in Python, RE2, Rust and
# ECMAScript, which differ in what they mean by \s.
_FORBIDDEN = "\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# As in the JSON Schemas; these need not exclude surrogates, which UTF-8 files cannot contain.
ANSWER_ID = f"^[^{_FORBIDDEN}]+$"
QUESTION_ID = f"^[^#\ufeff{_FORBIDDEN}][^{_FORBIDDEN}]*$"

EXPECTED_ANSWER_ID = "an id without white space or control characters"
EXPECTED_QUESTION_ID = f"{EXPECTED_ANSWER_ID} that does not begin with '#'"

_ANSWER_ID = re.compile(f"[^{_FORBIDDEN}\ud800-\udfff]+")


def check_one_word(name: str, value: str) -> None:
    """Check a word that names a run or a collection in files whose fields blanks separate.

    Args:
        name: of the option or argument, for the message.
        value: what was given.
    """
    if value.split() != [value]:
        raise UsageError(f"{name} {value!r}: expected one word")


def is_answer_id(value: object) -> bool:
    """Whether ``value`` is a legal answer id."""
    return isinstance(value, str) and _ANSWER_ID.fullmatch(value) is not None


def is_question_id(value: object) -> bool:
    """Whether ``value`` is a legal question id."""
    return is_answer_id(value) and str(value)[0] not in "#\ufeff"


def check_answer_id(path: object, place: str, value: object, column: str | None = None) -> None:
    """Check an answer id.

    Args:
        path: the file that it comes from or goes to, for the message.
        place: where in the file, for the message.
        value: the id.
        column: its column, for the message.
    """
    if not is_answer_id(value):
        raise InputError(str(path), place=place, column=column, value=value, expected=EXPECTED_ANSWER_ID)


def check_question_id(path: object, place: str, value: object, column: str | None = None) -> None:
    """Check a question id; see ``check_answer_id``."""
    if not is_question_id(value):
        raise InputError(str(path), place=place, column=column, value=value, expected=EXPECTED_QUESTION_ID)
