"""Token ids, the interface of all tokenizers, the word-level tokenizer and those of pretrained networks.

A text without a single word becomes one UNK, so that every text has a state and every pair a score. Subword
tokenizers are of any kind that ``tokenizers`` supports; they add the special tokens that the network expects,
such as [CLS] and [SEP], and truncation keeps those at the end of a text.
"""

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import WordLevelTrainer
from typing_extensions import override

from aptool.errors import InputError, first_line
from aptool.text.words import normalized


def _unknown_id(tokenizer: Tokenizer) -> int:
    # The library has no attribute for this that all kinds of models share.
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    index = tokenizer.token_to_id(name) if name is not None else None
    return -1 if index is None else int(index)


PAD, UNK = 0, 1
NO_WORD = 0
PAD_WORD, UNK_WORD = "[PAD]", "[UNK]"

# A letter of an ancient script, in no vocabulary.
RARE = "\N{UGARITIC LETTER ALPA}"


@dataclass(frozen=True)
class Tokens:
    """Ragged token ids: text ``i`` is ``ids[offsets[i] : offsets[i + 1]]``, never empty."""

    ids: np.ndarray  # (tokens,) int32
    offsets: np.ndarray  # (texts + 1,) int64, the first is 0
    truncated: int = 0  # number of truncated texts
    # (tokens,) int64, a number that identifies the word of each token, also of an UNK; NO_WORD for
    # punctuation. None unless the tokenizer identifies words.
    words: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(texts,) int64: tokens per text."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Tokens":
        """The texts at ``rows``, in that order."""
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(rows))):
            return replace(self, truncated=0)  # without a copy
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        indices = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        indices += np.arange(len(indices))
        return self._select(indices, offsets)

    def _select(self, indices: np.ndarray, offsets: np.ndarray, truncated: int = 0) -> "Tokens":
        words = self.words[indices] if self.words is not None else None
        return Tokens(self.ids[indices], offsets, truncated, words)

    def counts(self, words: int) -> np.ndarray:
        """(words,) int64: occurrences of each id."""
        return np.bincount(self.ids, minlength=words)


class TextTokenizer(ABC):
    """The interface of all tokenizers."""

    unit: ClassVar[str]  # name of its tokens
    unknown: int  # id of the unknown token, -1 if there is none
    suffix_length: int = 0  # number of special tokens at the end of a text, which truncation keeps
    identify_words: bool = False  # whether ``encode`` sets ``Tokens.words``; only a word-level tokenizer can

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wrap a tokenizer, without its truncation and padding."""
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a ``tokenizer.json``."""
        if not Path(path).is_file():
            raise InputError(path, problem="file not found", expected="the tokenizer of a model")
        try:
            tokenizer = Tokenizer.from_file(str(path))
            tokenizer.encode(RARE)  # fails if the unknown token is missing
        except Exception as error:  # the library raises bare exceptions
            raise InputError(path, problem=first_line(error), expected="a tokenizer.json") from error
        return cls(tokenizer)

    def save(self, path: str | Path) -> None:
        """Write a ``tokenizer.json``."""
        Path(path).write_text(self._tokenizer.to_str(), encoding="utf-8")

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str] | pa.Array, limit: int | None = None) -> Tokens:
        """Encode texts, truncated to ``limit`` tokens; runs on all cores."""
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
        empty = [max(self.unknown, 0)]
        rows = [encoding.ids or empty for encoding in self._tokenizer.encode_batch_fast(batch)]
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        tokens = Tokens(ids, np.concatenate([[0], np.cumsum(lengths)]))
        return tokens if limit is None else self.truncate(tokens, limit)

    def truncate(self, tokens: Tokens, limit: int) -> Tokens:
        """Truncate every text to ``limit`` tokens, special tokens included; those at its end are kept."""
        lengths = np.minimum(tokens.lengths, limit)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        indices = np.repeat(tokens.offsets[:-1], lengths) + within
        if self.suffix_length:
            skipped = np.repeat(tokens.lengths - lengths, lengths)
            indices += np.where(within >= np.repeat(lengths - self.suffix_length, lengths), skipped, 0)
        return tokens._select(indices, offsets, truncated=int((tokens.lengths > limit).sum()))

    @abstractmethod
    def word_indices(self, text: str) -> np.ndarray:
        """(tokens,) int64: index of the word of ``split`` that contains each token of a text, or -1."""

    def written(self, text: str) -> str:
        """The form of a text in which its words are shown."""
        return text

    def split(self, text: str) -> list[str]:
        """Split one text into its words as written."""
        return [word for word, _ in Whitespace().pre_tokenize_str(self.written(text))]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end in the written text of each word of ``split``."""
        return [span for _, span in Whitespace().pre_tokenize_str(self.written(text))]


class WordTokenizer(TextTokenizer):
    """Splits texts into words and punctuation, and maps them to ids."""

    unit = "words"
    unknown = UNK

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        *,
        lowercase: bool = True,
        min_count: int = 1,
        also: Iterable[str] = (),
    ) -> "WordTokenizer":
        """Learn a vocabulary from texts, the most frequent words first.

        Words that occur less than ``min_count`` times are left out; ``also`` are further words, at the end.
        """
        tokenizer = _untrained(lowercase)
        trainer = WordLevelTrainer(
            min_frequency=min_count,
            special_tokens=[PAD_WORD, UNK_WORD],
            vocab_size=2**31 - 1,
            show_progress=False,
        )
        tokenizer.train_from_iterator((normalized(text, lowercase=lowercase) for text in texts), trainer)
        vocabulary = tokenizer.get_vocab()
        words = [word for word, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
        words += [word for word in dict.fromkeys(also) if word not in vocabulary]
        return cls.from_words(words[2:], lowercase=lowercase)

    @classmethod
    def from_words(cls, words: Sequence[str], *, lowercase: bool = True) -> "WordTokenizer":
        """A tokenizer with the vocabulary PAD, UNK and ``words``, in this order."""
        tokenizer = _untrained(lowercase)
        ids = {word: index for index, word in enumerate([PAD_WORD, UNK_WORD, *words])}
        tokenizer.model = WordLevel(ids, unk_token=UNK_WORD)
        return cls(tokenizer)

    @classmethod
    @override
    def load(cls, path: str | Path) -> Self:
        loaded = super().load(path)
        vocabulary = loaded._tokenizer.get_vocab()
        if (vocabulary.get(PAD_WORD), vocabulary.get(UNK_WORD)) != (PAD, UNK):
            raise InputError(path, expected=f"{PAD_WORD} with id {PAD} and {UNK_WORD} with id {UNK}")
        ids = vocabulary.values()
        if sorted(ids) != list(range(len(ids))):
            problem = f"ids up to {max(ids)}, {len(set(ids))} of them different"
            raise InputError(path, problem=problem, expected=f"each id from 0 to {len(ids) - 1} once")
        return loaded

    @property
    def words(self) -> list[str]:
        """The vocabulary by id; PAD and UNK are first."""
        vocabulary: Mapping[str, int] = self._tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    @override
    def encode(self, texts: Sequence[str] | pa.Array, limit: int | None = None) -> Tokens:
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else texts
        # The lower case of the library has no rule for İ and sigma.
        lowercase = self._tokenizer.normalizer is not None
        batch = [normalized(text, lowercase=lowercase) for text in batch]
        tokens = super().encode(batch)
        if self.identify_words:
            tokens = replace(tokens, words=self._identify_words(batch, tokens.ids, tokens.offsets))
        return tokens if limit is None else self.truncate(tokens, limit)

    def _identify_words(self, texts: list[str], ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """``Tokens.words``: the id of a word in the vocabulary, else a hash of the word above all ids."""
        vocabulary = self.words
        is_word = np.array([any(map(str.isalnum, word)) for word in vocabulary])
        is_word[: UNK + 1] = False
        numbers = np.where(is_word[ids], ids, NO_WORD).astype(np.int64)
        unknown = np.flatnonzero(ids == UNK)
        owners = np.searchsorted(offsets, unknown, side="right") - 1
        current, words = -1, list[str]()
        for owner, index in zip(owners.tolist(), unknown.tolist(), strict=True):
            if current != owner:
                current, words = owner, self.split(texts[owner])
            word = words[index - int(offsets[owner])] if words else ""
            if any(map(str.isalnum, word)):
                numbers[index] = len(vocabulary) + zlib.crc32(word.encode())
        return numbers

    @override
    def written(self, text: str) -> str:
        return normalized(text, lowercase=False)

    @override
    def word_indices(self, text: str) -> np.ndarray:
        return np.arange(max(1, len(self.split(text))))


def concatenated(parts: Sequence[Tokens]) -> Tokens:
    """Concatenate texts; those of a single part are not copied."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(len(part.ids) for part in parts)])
    starts = [part.offsets[:-1] + shift for part, shift in zip(parts, ends[:-1], strict=True)]
    ids = np.concatenate([part.ids for part in parts])
    words = [part.words for part in parts if part.words is not None]
    return Tokens(
        ids,
        np.concatenate([*starts, ends[-1:]]),
        sum(part.truncated for part in parts),
        np.concatenate(words) if words else None,
    )


def _untrained(lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({PAD_WORD: PAD, UNK_WORD: UNK}, unk_token=UNK_WORD))
    if lowercase:
        tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


class SubwordTokenizer(TextTokenizer):
    """Splits texts into the subword tokens of a pretrained network.

    A text has ``prefix_length`` special tokens before it and ``suffix_length`` after it.
    """

    unit = "subword tokens"

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.unknown = _unknown_id(tokenizer)
        special = tokenizer.encode("a").special_tokens_mask
        self.prefix_length = special.index(0) if 0 in special else 0
        self.suffix_length = special[::-1].index(0) if 0 in special else 0

    @override
    def word_indices(self, text: str) -> np.ndarray:
        # A token belongs to the word that contains its last character.
        encoding = self._tokenizer.encode(text)
        word_of = np.full(len(text) + 1, -1, dtype=np.int64)  # of each character
        for number, (begin, end) in enumerate(self.spans(text)):
            word_of[begin:end] = number
        lasts = np.array([end - 1 for _, end in encoding.offsets], dtype=np.int64)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        indices = np.where(special, -1, word_of[lasts])
        return indices if len(indices) else np.array([-1])
