r"""Words of texts, and bigrams for languages without spaces between words.

A word is a run of letters, digits and underscores with their combining marks and joiners. That is ``\w+`` as
Unicode defines it (UTS 18, annex C), and so the words of tokenizers' ``Whitespace`` and of trained systems;
superscripts and fractions are added. Python's ``\w`` has no marks and splits Hindi words at their vowels.

Bigrams of Han, Kana and Hangul characters are those of Lucene's CJK analyzer: a run of them ends at any other
character; a run of one character is a word. Unlike Lucene, nothing maps full-width letters and half-width
Kana to other characters. Thai, Lao, Khmer and Burmese have bigrams of letters with their marks.
"""

import re
from collections.abc import Callable
from functools import cache
from unicodedata import category, normalize

_HAN = "\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uffa0-\uffdc"
_THAI_LAO = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"
_KHMER_BURMESE = "\u1000-\u103f\u1050-\u109d\u1780-\u17d3\u17d7\u17dc\u17dd"
_RUN = re.compile(f"[{_HAN}{_KANA}{_HANGUL}]+")
_RUN_WITH_MARKS = re.compile(f"[{_THAI_LAO}{_KHMER_BURMESE}]+")

# A longer run of characters is text without spaces: words are seldom longer.
_UNSEPARATED = re.compile(f"[{_HAN}{_KANA}]{{5}}|[{_THAI_LAO}{_KHMER_BURMESE}]{{9}}")

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


def separate_bigrams(text: str) -> str:
    """Replace each run of characters that has no spaces between words by its overlapping bigrams.

    Example:
        >>> separate_bigrams("東京タワー2020")
        ' 東京 京タ タワ ワー 2020'
    """
    if text.isascii():
        return text
    text = _RUN.sub(lambda run: _bigrams(run[0]), text)
    return _RUN_WITH_MARKS.sub(lambda run: _bigrams(letters(run[0])), text)


def letters(text: str) -> list[str]:
    """Split a text into its letters, each with the marks that follow it."""
    parts: list[str] = []
    for character in text:
        if parts and category(character).startswith("M"):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def _bigrams(parts: str | list[str]) -> str:
    pairs = ["".join(parts[start : start + 2]) for start in range(len(parts) - 1)]
    return f" {' '.join(pairs or parts)} "


def bigram_words(text: str) -> list[str]:
    """Split a text into normalized words and bigrams; see `separate_bigrams`."""
    return unicode_words(separate_bigrams(normalized(text)))


def has_words(text: str) -> bool:
    """Whether `unicode_words` finds a word of two or more characters that is not text without spaces."""
    return any(len(word) > 1 and not _UNSEPARATED.search(word) for word in unicode_words(text))


# Functions that split a text into words, by the name in ``--words``.
SPLITTERS: dict[str, Callable[[str], list[str]]] = {"unicode": unicode_words, "bigrams": bigram_words}
