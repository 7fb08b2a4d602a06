"""Tokenizer files: any ``tokenizer.json`` that can encode any text."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from aptool.documents import read_json
from aptool.errors import InputError, first_line

EXPECTED = "a tokenizer.json"

# A letter of an ancient script, in no vocabulary.
_RARE = "\N{UGARITIC LETTER ALPA}"


def read_tokenizer(path: str | Path) -> Tokenizer:
    """Read a tokenizer of any kind, without its truncation and padding."""
    document = read_json(path, "the tokenizer of a model")
    try:
        tokenizer = Tokenizer.from_str(json.dumps(document | {"truncation": None, "padding": None}))
        check_encodes(tokenizer)
        return tokenizer
    except BaseException as error:
        raise _input_error(path, error, EXPECTED) from error


def check_encodes(tokenizer: Tokenizer) -> None:
    """Check that a tokenizer can encode any text, also an unknown word; raise what the library raises."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode(_RARE)
    tokenizer.encode(_RARE, _RARE)


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str], source: object, *, special: bool = True
) -> list[Encoding]:
    """Encode texts on all cores, with special tokens if ``special``; errors name ``source``."""
    try:
        return tokenizer.encode_batch_fast(texts, add_special_tokens=special)
    except BaseException as error:
        raise _input_error(source, error, "a tokenizer that can encode any text") from error


def _input_error(source: object, error: BaseException, expected: str) -> BaseException:
    """Convert an error of the library, which raises bare exceptions, and panics that are no exceptions."""
    if isinstance(error, KeyboardInterrupt | SystemExit | InputError):
        return error
    return InputError(source, problem=first_line(error), expected=expected)
