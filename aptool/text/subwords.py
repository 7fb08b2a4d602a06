"""Texts as subword tokens: the tokenizer of a pretrained network, of any kind that ``tokenizers`` knows.

A text is encoded with the special tokens that the network expects around it, such as [CLS] and [SEP]; these
are tokens like the others. Truncation keeps those at the end of a text.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from aptool.text.forms import PLAIN, TextForm
from aptool.text.tokenizer import Role, TextTokenizer, Tokens, read_tokenizer, truncate


class SpecialTokens(NamedTuple):
    """How a network expects a pair of texts: the special tokens around them, and all token type ids.

    Attributes:
        before: ids before the first text.
        between: ids between the two texts.
        after: ids after the second text.
        types: five token type ids: of ``before``, the first text, ``between``, the second text, ``after``.
    """

    before: list[int]
    between: list[int]
    after: list[int]
    types: list[int]


class SubwordTokenizer(TextTokenizer):
    """Splits texts into the subword tokens of a pretrained network.

    Attributes:
        prefix_length: number of special tokens before a text.
        suffix_length: number of special tokens after it.
        forms: how questions and answers are put to the network, where that is not plainly.
    """

    unit = "subword tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        forms: Mapping[Role, TextForm] | None = None,
        *,
        lowercase: bool = False,
        characters: int = 0,
    ) -> None:
        """Wraps a tokenizer of the library ``tokenizers``.

        Args:
            tokenizer: the tokenizer; padding and truncation are turned off.
            forms: how questions and answers are put to the network, where that is not plainly.
            lowercase: lower-case texts first.
            characters: read only so many characters of a text; 0 reads all.
        """
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.forms = dict(forms or {})
        self._lowercase = lowercase
        self._characters = characters or None
        self.unknown = _unknown_id(tokenizer)
        special = tokenizer.encode("a").special_tokens_mask
        self.prefix_length = special.index(0) if 0 in special else 0
        self.suffix_length = special[::-1].index(0) if 0 in special else 0

    @classmethod
    def load(cls, path: str | Path) -> "SubwordTokenizer":
        """See ``TextTokenizer.load``."""
        return cls(read_tokenizer(path))

    def save(self, path: str | Path) -> None:
        """See ``TextTokenizer.save``."""
        Path(path).write_text(self._tokenizer.to_str(), encoding="utf-8")

    def copy(self) -> Tokenizer:
        """The tokenizer of ``tokenizers``, for other libraries to change."""
        return Tokenizer.from_str(self._tokenizer.to_str())

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(
        self, texts: Sequence[str] | pa.Array, limit: int | None = None, role: Role = "answer"
    ) -> Tokens:
        """See ``TextTokenizer.encode``; runs on all cores. A text without any token becomes one."""
        form = self.forms.get(role, PLAIN)
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
        encodings = self._tokenizer.encode_batch_fast([self._presented(text, form) for text in batch])
        rows = [encoding.ids or [max(self.unknown, 0)] for encoding in encodings]
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        tokens = Tokens(ids, np.concatenate([[0], np.cumsum(lengths)]))
        if form is not PLAIN:
            tokens = form.apply(tokens, self.prefix_length)
        return tokens if limit is None else truncate(tokens, limit, self.suffix_length)

    def places(self, text: str, role: Role = "answer") -> np.ndarray:
        """See ``TextTokenizer.places``: a token belongs to the word that contains its last character."""
        form = self.forms.get(role, PLAIN)
        encoding = self._tokenizer.encode(self._presented(text, form))
        word_of = np.full(len(form.prompt) + len(text) + 1, -1, dtype=np.int64)  # of each character
        end = 0
        for number, word in enumerate(self.split(text)):
            begin = text.index(word, end)
            end = begin + len(word)
            word_of[len(form.prompt) + begin : len(form.prompt) + end] = number
        lasts = np.array([end - 1 for _, end in encoding.offsets], dtype=np.int64)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        places = np.where(special, -1, word_of[lasts])
        if not len(places):
            return np.array([-1])
        return form.places(places, self.prefix_length)

    def _presented(self, text: str, form: TextForm) -> str:
        """A text as it is put to the tokenizer."""
        whole = form.prompt + text[: self._characters]
        return whole.lower() if self._lowercase else whole

    def special_tokens(self) -> SpecialTokens:
        """The special tokens and token type ids of a pair of texts."""
        encoding = self._tokenizer.encode("a", "a")
        parts: list[list[tuple[int, int]]] = [[], [], [], [], []]
        place = 0
        for sequence, token, kind in zip(encoding.sequence_ids, encoding.ids, encoding.type_ids, strict=True):
            if sequence is not None:
                place = 1 + 2 * sequence
            elif place in (1, 3):
                place += 1
            parts[place].append((token, kind))
        before, _, between, _, after = ([token for token, _ in part] for part in parts)
        # A token type is the same within each of the five parts.
        return SpecialTokens(before, between, after, [part[0][1] if part else 0 for part in parts])


def _unknown_id(tokenizer: Tokenizer) -> int:
    # The library has no attribute for it that every kind of model shares.
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    found = tokenizer.token_to_id(name) if name is not None else None
    return -1 if found is None else int(found)
