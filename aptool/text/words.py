"""Words of texts without spaces: bigrams of Han, Kana and Hangul characters, and other word splitters.

Lucene's CJK analyzer indexes overlapping bigrams of these characters too. A run of them ends at any other
character; a run of one character is a word. Unlike Lucene, nothing maps full-width letters and half-width
Kana to other characters.
"""

import re
from collections.abc import Callable
from importlib import import_module

from aptool.errors import AptoolError, InputError, UsageError, first_line, one_line, shortened
from aptool.sources import hash_modules
from aptool.text.bm25 import words as unicode_words

EXPECTED = "unicode, bigrams, or MODULE:FUNCTION of a function that returns the words of a text"

_HAN = "\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uffa0-\uffdc"
_RUN = re.compile(f"[{_HAN}{_KANA}{_HANGUL}]+")
_HAN_KANA_RUN = re.compile(f"[{_HAN}{_KANA}]+")

# Words of Chinese and Japanese are seldom longer; a longer run of characters is text without spaces.
_LONGEST_WORD = 4


def separate_bigrams(text: str) -> str:
    """Replace each run of Han, Kana and Hangul characters by its overlapping bigrams, separated by spaces.

    Example:
        >>> separate_bigrams("東京タワー2020")
        ' 東京 京タ タワ ワー 2020'
    """
    return _RUN.sub(_bigrams, text)


def _bigrams(run: re.Match[str]) -> str:
    text = run[0]
    pairs = [text[start : start + 2] for start in range(len(text) - 1)]
    return f" {' '.join(pairs or [text])} "


def bigram_words(text: str) -> list[str]:
    """Split a text into lower-cased words and bigrams; see `separate_bigrams`."""
    return unicode_words(separate_bigrams(text))


def has_words(text: str) -> bool:
    """Whether `unicode_words` finds a word of two or more characters that is not text without spaces."""
    return any(
        len(word) > 1 and all(len(run) <= _LONGEST_WORD for run in _HAN_KANA_RUN.findall(word))
        for word in unicode_words(text)
    )


def word_splitter(name: str) -> Callable[[str], list[str]]:
    """Return the function that splits a text into words; a name that is none is a `UsageError`.

    A name is ``unicode`` (lower-cased runs of letters, digits and underscores), ``bigrams`` (the same, with
    Han, Kana and Hangul runs as bigrams), or the import path of a function, ``MODULE:FUNCTION``.
    """
    if name == "unicode":
        return unicode_words
    if name == "bigrams":
        return bigram_words
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise UsageError(f"words: {shortened(name)}: expected {EXPECTED}")
    try:
        function = getattr(import_module(module), attribute)
    except Exception as error:
        raise UsageError(f"words: {name}: {one_line(first_line(error))}; expected {EXPECTED}") from error
    if not callable(function):
        raise UsageError(f"words: {name}: not a function; expected {EXPECTED}")

    def split(text: str) -> list[str]:
        try:
            result = list(function(text))
        except Exception as error:
            reason = one_line(f"{type(error).__name__}: {first_line(error)}")
            raise AptoolError(f"words: {name}: {reason}, for the text {shortened(text)}") from error
        if not all(isinstance(word, str) for word in result):
            raise InputError("words", position=name, value=result, expected="a list of words (str)")
        return result

    return split


def code_of_splitter(name: str) -> dict[str, str]:
    """Return the sources that decide the words of a splitter; empty for those of aptool."""
    module, colon, _ = name.partition(":")
    return hash_modules([module]) if colon else {}
