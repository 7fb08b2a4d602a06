"""Values of tables: texts, ids and labels."""

import json
import math
import numbers
import re
import unicodedata
from decimal import Decimal
from typing import Any

from aptool.errors import InputError
from aptool.paths import PathOrUrl

# A label with grades, and its description in errors.
INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
GRADE = "a whole number: 0 not relevant, 1 or more relevant"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_BOOLEANS = {"true": "1", "false": "0"}


def check_text(path: PathOrUrl, position: str, column: str, value: str, *, empty: bool = False) -> None:
    """Check that a text has no NUL character or lone surrogate, and is not blank unless ``empty``."""
    if not empty and not value.strip():
        raise InputError(path, position=position, column=column, value=value, expected="a text")
    if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        expected = "a text without NUL characters and lone surrogates"
        raise InputError(path, position=position, column=column, value=value, expected=expected)


def label_text(value: Any) -> str:
    """A label as text, equal for all sources: ``1`` for 1, 1.0, "1.0", b"1" and true; ``null`` for none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    elif hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if not isinstance(value, str):
        value = str(value) if isinstance(value, Decimal) else json.dumps(value, default=repr)
    text = value.strip()
    if _NUMBER.fullmatch(text) and math.isfinite(number := float(text)) and number.is_integer():
        whole = str(int(number))
        return whole if INTEGER.fullmatch(whole) else text
    return _BOOLEANS.get(text.casefold(), text)


def comparable(text: str) -> str:
    """A text such that texts that look the same are equal: NFC, single blanks, no invisible characters."""
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFC", text))
    return " ".join(text.split())


def id_text(path: PathOrUrl, position: str, column: str, value: object) -> str:
    """An id as text; other values than texts and whole numbers are refused."""
    if isinstance(value, str | numbers.Integral) and not isinstance(value, bool):
        return str(value)
    expected = "a text or a whole number"
    if isinstance(value, float | Decimal) and value == value // 1:
        expected += f"; convert the column to integers or texts, such as {int(value)}"
    raise InputError(path, position=position, column=column, value=value, expected=expected)


def parse_label(path: PathOrUrl, position: str, column: str, value: object, *, graded: bool = False) -> int:
    """Parse a relevance label: 0 or 1, or if ``graded`` a whole number of at most nine digits."""
    text = label_text(value)
    if text in ("0", "1") or (graded and INTEGER.fullmatch(text)):
        return int(text)
    expected = GRADE if graded else "0 or 1"
    raise InputError(path, position=position, column=column, value=value, expected=expected)
