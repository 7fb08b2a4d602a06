r"""Words of texts.

A word is a run of letters, digits and underscores with their combining marks and joiners. That is ``\w+`` as
Unicode defines it (UTS 18, annex C), and so the words of tokenizers' ``Whitespace`` and of trained systems;
superscripts and fractions are added. Python's ``\w`` has no marks and splits Hindi words at their vowels.
"""

import re
from functools import cache
from unicodedata import category, normalize

_ASCII_WORD = re.compile(r"\w+", re.ASCII)
# Marks above the Basic Multilingual Plane, except variation selectors, are below this code point.
_END_OF_MARKS = 0x1F000


def normalized(text: str, *, lowercase: bool = True) -> str:
    """Return the form of a text in which equal words are equal: NFC, and in lower case.

    Lower case is Unicode's for any language, with a final sigma where Greek has one; İ becomes i. NFC joins
    canonical equivalents only: NFKC would change the meaning, x² to x2.
    """
    if text.isascii():
        return text.lower() if lowercase else text
    text = normalize("NFC", text)
    if lowercase:
        # Unicode's lower case of İ is i with a dot above. Lower case may create what NFC composes, such as ẖ.
        text = normalize("NFC", text.lower().replace("i\u0307", "i"))
    return text


def unicode_words(text: str) -> list[str]:
    """Split a text into its words, normalized; see `normalized`."""
    text = normalized(text)
    return (_ASCII_WORD if text.isascii() else _word()).findall(text)


@cache
def _word() -> re.Pattern[str]:
    """The pattern of a word: a letter, digit or underscore, then also marks, joiners and connectors."""
    # Python compiles a set of characters to a fast table only if all are in the Basic Multilingual Plane.
    plane = _joining(0x80, 0x10000) + "\u200c\u200d"
    above = _joining(0x10000, _END_OF_MARKS) + "\U000e0100-\U000e01ef"
    return re.compile(rf"\w+(?:(?:[{plane}]+|(?=[\U00010000-\U0010ffff])[{above}]+)\w*)*")


def _joining(start: int, end: int) -> str:
    """The combining marks and connectors of a range."""
    return "".join(mark for mark in map(chr, range(start, end)) if category(mark) in ("Mn", "Mc", "Me", "Pc"))
