"""Subword tokenizers of pretrained networks, of any kind that ``tokenizers`` supports.

A text is encoded with the special tokens that the network expects, such as [CLS] and [SEP]. Truncation keeps
the special tokens at the end of a text.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from typing_extensions import override

from aptool.text.forms import PLAIN, TextForm
from aptool.text.tokenizer import Role, TextTokenizer, Tokens, join_rows, read_tokenizer, truncate


class SpecialTokens(NamedTuple):
    """The special tokens of a pair of texts, and its token type ids.

    Attributes:
        before: ids before the first text.
        between: ids between the texts.
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
        forms: role -> form in which its texts are presented to the network; none: as they are.
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
        """Wrap a tokenizer of the library ``tokenizers``.

        Args:
            tokenizer: the tokenizer; its padding and truncation are turned off.
            forms: role -> form in which its texts are presented to the network; none: as they are.
            lowercase: lower-case texts first.
            characters: read at most this many characters of a text; 0: all.
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
    @override
    def load(cls, path: str | Path) -> "SubwordTokenizer":
        return cls(read_tokenizer(path))

    @override
    def save(self, path: str | Path) -> None:
        Path(path).write_text(self._tokenizer.to_str(), encoding="utf-8")

    def copy(self) -> Tokenizer:
        """Copy the underlying tokenizer, for other libraries to change."""
        return Tokenizer.from_str(self._tokenizer.to_str())

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @override
    def encode(
        self, texts: Sequence[str] | pa.Array, limit: int | None = None, role: Role = "answer"
    ) -> Tokens:
        form = self.forms.get(role, PLAIN)
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
        encodings = self._tokenizer.encode_batch_fast([self._presented(text, form) for text in batch])
        tokens = join_rows([encoding.ids or [max(self.unknown, 0)] for encoding in encodings])
        if form is not PLAIN:
            tokens = form.apply(tokens, self.prefix_length)
        return tokens if limit is None else truncate(tokens, limit, self.suffix_length)

    @override
    def word_indices(self, text: str, role: Role = "answer") -> np.ndarray:
        # A token belongs to the word that contains its last character.
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
        indices = np.where(special, -1, word_of[lasts])
        if not len(indices):
            return np.array([-1])
        return form.word_indices(indices, self.prefix_length)

    def _presented(self, text: str, form: TextForm) -> str:
        whole = form.prompt + text[: self._characters]
        return whole.lower() if self._lowercase else whole

    def special_tokens(self) -> SpecialTokens:
        """The special tokens and token type ids of a pair of texts."""
        encoding = self._tokenizer.encode("a", "a")
        parts: list[list[tuple[int, int]]] = [[], [], [], [], []]
        part = 0
        for sequence, token, kind in zip(encoding.sequence_ids, encoding.ids, encoding.type_ids, strict=True):
            if sequence is not None:
                part = 1 + 2 * sequence
            elif part in (1, 3):
                part += 1
            parts[part].append((token, kind))
        before, _, between, _, after = ([token for token, _ in tokens] for tokens in parts)
        # The token type is the same within each of the five parts.
        return SpecialTokens(before, between, after, [tokens[0][1] if tokens else 0 for tokens in parts])


def _unknown_id(tokenizer: Tokenizer) -> int:
    # The library has no attribute for this that all kinds of models share.
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    index = tokenizer.token_to_id(name) if name is not None else None
    return -1 if index is None else int(index)
