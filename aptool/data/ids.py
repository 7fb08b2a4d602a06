"""Legal ids of questions and answers, in all files.

An id has at least one character and no white space, control character or lone surrogate: white space
separates fields of a run file, control characters break lines in other tools, and lone surrogates are not
valid UTF-8. A question id begins a line, so its first character is neither ``#`` (a comment) nor U+FEFF (a
byte order mark).
"""

import re

from aptool.errors import InputError, UsageError

# White space and control characters of Unicode, listed because \s differs between regex engines.
_FORBIDDEN = "\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# The patterns of the JSON Schemas; UTF-8 files cannot contain surrogates.
ANSWER_ID = f"^[^{_FORBIDDEN}]+$"
QUESTION_ID = f"^[^#\ufeff{_FORBIDDEN}][^{_FORBIDDEN}]*$"

EXPECTED_ANSWER_ID = "an id without white space or control characters"
EXPECTED_QUESTION_ID = f"{EXPECTED_ANSWER_ID} that does not begin with '#'"

_ANSWER_ID = re.compile(f"[^{_FORBIDDEN}\ud800-\udfff]+")


def check_one_word(name: str, value: object) -> None:
    """Raise if the option ``name``, such as the tag of a run, is not one word."""
    if not isinstance(value, str) or value.split() != [value]:
        raise UsageError(f"{name} {value!r}: expected one word")


def is_answer_id(value: object) -> bool:
    """Whether ``value`` is a legal answer id."""
    return isinstance(value, str) and _ANSWER_ID.fullmatch(value) is not None


def is_question_id(value: object) -> bool:
    """Whether ``value`` is a legal question id."""
    return is_answer_id(value) and str(value)[0] not in "#\ufeff"


def check_id(path: object, position: str, column: str, value: object, *, of_question: bool = False) -> None:
    """Raise if the id of an answer, or of a question, is not legal."""
    is_legal = is_question_id(value) if of_question else is_answer_id(value)
    if not is_legal:
        expected = EXPECTED_QUESTION_ID if of_question else EXPECTED_ANSWER_ID
        raise InputError(str(path), position=position, column=column, value=value, expected=expected)
