"""Subword tokenizers of pretrained networks, of any kind that ``tokenizers`` supports.

A text is encoded with the special tokens that the network expects, such as [CLS] and [SEP]. Truncation keeps
the special tokens at the end of a text.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from typing_extensions import override

from aptool.text.tokenizer import TextTokenizer, Tokens, join_rows, read_tokenizer


class SubwordTokenizer(TextTokenizer):
    """Splits texts into the subword tokens of a pretrained network.

    A text has ``prefix_length`` special tokens before it and ``suffix_length`` after it.
    """

    unit = "subword tokens"

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wrap a tokenizer."""
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.unknown = _unknown_id(tokenizer)
        special = tokenizer.encode("a").special_tokens_mask
        self.prefix_length = special.index(0) if 0 in special else 0
        self.suffix_length = special[::-1].index(0) if 0 in special else 0

    @classmethod
    @override
    def load(cls, path: str | Path) -> "SubwordTokenizer":
        return cls(read_tokenizer(path))

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @override
    def encode(self, texts: Sequence[str] | pa.Array, limit: int | None = None) -> Tokens:
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
        empty = [max(self.unknown, 0)]
        encodings = self._tokenizer.encode_batch_fast(batch)
        tokens = join_rows([encoding.ids or empty for encoding in encodings])
        return tokens if limit is None else self.truncate(tokens, limit)

    @override
    def word_indices(self, text: str) -> np.ndarray:
        # A token belongs to the word that contains its last character.
        encoding = self._tokenizer.encode(text)
        word_of = np.full(len(text) + 1, -1, dtype=np.int64)  # of each character
        end = 0
        for number, word in enumerate(self.split(text)):
            begin = text.index(word, end)
            end = begin + len(word)
            word_of[begin:end] = number
        lasts = np.array([end - 1 for _, end in encoding.offsets], dtype=np.int64)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        indices = np.where(special, -1, word_of[lasts])
        return indices if len(indices) else np.array([-1])


def _unknown_id(tokenizer: Tokenizer) -> int:
    # The library has no attribute for this that all kinds of models share.
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    index = tokenizer.token_to_id(name) if name is not None else None
    return -1 if index is None else int(index)
