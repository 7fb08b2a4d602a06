"""Tokenizer files: any ``tokenizer.json``, with limits on its ids and on the growth of a text.

A file of a kilobyte can ask for terabytes: by one large id, since the library lists all missing ids, or by
replacements that multiply the length of a text.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from aptool.documents import read_json
from aptool.errors import InputError, first_line

EXPECTED = "a tokenizer.json"

# A letter of an ancient script, in no vocabulary.
RARE = "\N{UGARITIC LETTER ALPA}"

# A model without a vocabulary, to read the other parts of a file first.
EMPTY_MODEL = {"type": "WordLevel", "vocab": {}, "unk_token": ""}

MAX_IDS = 1 << 24
MAX_WORDS = 1 << 20  # in the vocabulary; XLM-V has 901,629
MAX_ADDED_TOKENS = 1 << 15
MAX_SPECIAL_TOKENS = 1024  # per text
MAX_STEPS = 64
# Maximum factor by which normalizers and pre-tokenizers may multiply the length of a text. XLM-R and T5 have
# up to 72: one character becomes up to 18 others by Unicode's rules.
MAX_GROWTH = 256


def read_tokenizer(path: str | Path) -> Tokenizer:
    """Read a tokenizer of any kind, without its truncation and padding, which could ask for gigabytes."""
    document = read_json(path, "the tokenizer of a model")
    try:
        _check_entries(document)
        document |= {"truncation": None, "padding": None}
        # The library normalizes added tokens when it reads them, so growth is checked without them first.
        Tokenizer.from_str(json.dumps({**document, "added_tokens": [], "model": EMPTY_MODEL}))
        _check_growth(document)
        tokenizer = Tokenizer.from_str(json.dumps(document))
        _check_ids(document)
        check_encodes(tokenizer)
        return tokenizer
    except BaseException as error:
        raise _input_error(path, error, EXPECTED) from error


def check_encodes(tokenizer: Tokenizer) -> None:
    """Check that a tokenizer can encode any text, also an unknown word; raise what the library raises."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if tokenizer.post_processor is not None:
        _check_templates(json.loads(tokenizer.post_processor.__getstate__()))
        number = tokenizer.num_special_tokens_to_add(True)
        if number > MAX_SPECIAL_TOKENS:
            raise ValueError(
                f"post_processor adds {number:,} tokens to a text; at most {MAX_SPECIAL_TOKENS:,}"
            )
    tokenizer.encode(RARE)


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


def _check_entries(document: dict[str, Any]) -> None:
    """Check the numbers of words and of added tokens, before the library reads them."""
    model = document.get("model")
    for table, name, most in ((model, "vocab", MAX_WORDS), (document, "added_tokens", MAX_ADDED_TOKENS)):
        entries = table.get(name) if isinstance(table, dict) else None
        if isinstance(entries, dict | list) and len(entries) > most:
            raise ValueError(f"{name}: {len(entries):,} entries; at most {most:,}")


def _check_ids(document: dict[str, Any]) -> None:
    """Check the ids of all tokens, and that the unknown token is in the vocabulary."""
    model = document["model"]
    vocabulary = model["vocab"]
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [token["id"] for token in document.get("added_tokens") or ()]
    for processor in _steps(document.get("post_processor"), "processors"):
        ids += [processor[name][1] for name in ("cls", "sep") if name in processor]
        for special in (processor.get("special_tokens") or {}).values():
            ids += special["ids"]
    if ids and max(ids) >= MAX_IDS:
        raise ValueError(f"token id {max(ids)}; at most {MAX_IDS - 1:,}")
    unknown = model.get("unk_token")
    if model.get("type") in ("WordPiece", "WordLevel") and unknown not in vocabulary:
        raise ValueError(f"model: unk_token {unknown!r} is not in the vocabulary")


def _check_growth(document: dict[str, Any]) -> None:
    """Check by how much normalizers and pre-tokenizers can multiply the length of a text."""
    steps = [
        *_steps(document.get("normalizer"), "normalizers"),
        *_steps(document.get("pre_tokenizer"), "pretokenizers"),
    ]
    if len(steps) > MAX_STEPS:
        raise ValueError(f"{len(steps):,} normalizers and pre-tokenizers; at most {MAX_STEPS}")
    growth = 1.0
    for step in steps:
        growth *= _growth(step)
        if growth > MAX_GROWTH:
            raise ValueError(
                f"normalizer: {step.get('type')}: texts can become more than {MAX_GROWTH} times as long"
            )


def _growth(step: dict[str, Any]) -> float:
    """Return the maximum factor by which a step multiplies the characters of a text."""
    kind = step.get("type")
    if kind == "Replace":
        content, pattern = len(step["content"]), step["pattern"]
        if "" in pattern.values():  # the library panics on some texts
            raise ValueError("normalizer: Replace: the pattern is empty")
        # A regular expression can match between all characters.
        return max(1.0, content / len(pattern["String"])) if "String" in pattern else 1.0 + content
    if kind == "Prepend":
        return 1.0 + len(step["prepend"])
    if kind == "Precompiled":
        # The longest replacement in the table of sentencepiece.
        table = base64.b64decode(step["precompiled_charsmap"])
        trie = int.from_bytes(table[:4], "little")
        return max(1, *map(len, table[4 + trie :].decode("utf-8", "replace").split("\0")))
    return 2.0 if kind in ("ByteLevel", "Metaspace") else 1.0


def _steps(part: Any, name: str) -> list[dict[str, Any]]:
    """Return the steps of a part of a tokenizer, in order; a Sequence has them in the entry ``name``."""
    if not part:
        return []
    if name not in part:
        return [part]
    return [step for inner in part[name] for step in _steps(inner, name)]


def _check_templates(processor: dict[str, Any]) -> None:
    """Check that special tokens of a ``post_processor`` exist, and that it does not repeat a text."""
    for template in _steps(processor, "processors"):
        pieces = [piece for name in ("single", "pair") for piece in template.get(name, ())]
        special = {piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece}
        if unknown := special - set(template.get("special_tokens", ())):
            raise ValueError(
                f"special token {min(unknown)!r} of its template is not among its special_tokens"
            )
        if sum("Sequence" in piece for piece in pieces) > 3:
            raise ValueError("the template of its post_processor repeats a text")
