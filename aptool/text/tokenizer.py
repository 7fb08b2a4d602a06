"""Texts as token ids, and a word-level tokenizer on the ``tokenizers`` library.

PAD and UNK are two different ids. A text without a single word becomes one UNK, so that every text has
a state sequence and every pair a defined score.
"""

import json
import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import WordLevelTrainer

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, first_line
from aptool.version import install_command

# What a text is; a tokenizer may put questions to the network in another way than answers.
Role = Literal["question", "answer"]

PAD, UNK = 0, 1
NO_WORD = 0
PAD_WORD, UNK_WORD = "[PAD]", "[UNK]"

# A letter of a script of long ago, which a tokenizer has to know or to take for unknown.
RARE = "\N{UGARITIC LETTER ALPA}"


@dataclass(frozen=True)
class Tokens:
    """Ragged token ids: text ``i`` is ``ids[offsets[i] : offsets[i + 1]]``, never empty.

    Attributes:
        ids: (tokens,) int32.
        offsets: (texts + 1,) int64, beginning with 0.
        truncated: how many of the texts were truncated.
        words: (tokens,) int64, a number that stands for the word of each token, also where its id is UNK;
            NO_WORD for punctuation. None unless the tokenizer identifies words.
    """

    ids: np.ndarray
    offsets: np.ndarray
    truncated: int = 0
    words: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(texts,) int64: tokens per text."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Tokens":
        """The texts at ``rows``, in that order."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return self._at(np.repeat(self.offsets[rows], lengths) + within, offsets)

    def _at(self, places: np.ndarray, offsets: np.ndarray, truncated: int = 0) -> "Tokens":
        """The tokens at ``places``, as texts with these offsets."""
        words = self.words[places] if self.words is not None else None
        return Tokens(self.ids[places], offsets, truncated, words)

    def counts(self, words: int) -> np.ndarray:
        """(words,) int64: how often each id occurs."""
        return np.bincount(self.ids, minlength=words)


class TextTokenizer(ABC):
    """The interface of all tokenizers.

    Attributes:
        unit: what its tokens are called.
        unknown: id of the unknown token, -1 where there is none.
        suffix_length: special tokens at the end of a text, which truncation keeps.
        identify_words: whether ``encode`` gives ``Tokens.words``; only a tokenizer of words can.
    """

    unit: ClassVar[str]
    unknown: int
    suffix_length: int = 0
    identify_words: bool = False

    @classmethod
    @abstractmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a ``tokenizer.json``.

        Raises:
            InputError: the file is missing, or is not a tokenizer.
        """

    @abstractmethod
    def save(self, path: str | Path) -> None:
        """Writes a ``tokenizer.json``."""

    @abstractmethod
    def __len__(self) -> int:
        """How many ids there are."""

    @abstractmethod
    def encode(
        self, texts: Sequence[str] | pa.Array, limit: int | None = None, role: Role = "answer"
    ) -> Tokens:
        """Ids of each text, truncated to ``limit`` tokens."""

    @abstractmethod
    def places(self, text: str, role: Role = "answer") -> np.ndarray:
        """(tokens,) int64: which word of ``split`` each token of a text belongs to, -1 for none."""

    def split(self, text: str) -> list[str]:
        """The words of one text as written, before they are mapped to ids."""
        parts = Whitespace().pre_tokenize_str(text)
        return [word for word, _ in parts]


class WordTokenizer(TextTokenizer):
    """Splits texts into words and punctuation, and maps them to ids."""

    unit = "words"
    unknown = UNK

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def learn(
        cls, texts: Iterable[str], *, lowercase: bool = True, min_count: int = 1, also: Iterable[str] = ()
    ) -> "WordTokenizer":
        """Builds a vocabulary from the words of ``texts``, the most frequent first.

        Args:
            texts: the training texts.
            lowercase: whether words are lower-cased.
            min_count: words that occur less often are left out.
            also: further words of the vocabulary, after the others.
        """
        tokenizer = _untrained(lowercase)
        trainer = WordLevelTrainer(
            min_frequency=min_count,
            special_tokens=[PAD_WORD, UNK_WORD],
            vocab_size=2**31 - 1,
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        vocabulary = tokenizer.get_vocab()
        words = [word for word, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
        words += [word for word in dict.fromkeys(also) if word not in vocabulary]
        return cls.from_words(words[2:], lowercase=lowercase)

    @classmethod
    def from_words(cls, words: Sequence[str], *, lowercase: bool = True) -> "WordTokenizer":
        """A tokenizer whose vocabulary is PAD, UNK and then ``words`` in the order given."""
        tokenizer = _untrained(lowercase)
        ids = {word: index for index, word in enumerate([PAD_WORD, UNK_WORD, *words])}
        tokenizer.model = WordLevel(ids, unk_token=UNK_WORD)
        return cls(tokenizer)

    @classmethod
    def load(cls, path: str | Path) -> "WordTokenizer":
        """Reads a ``tokenizer.json``.

        Raises:
            InputError: the file is missing, or is not a tokenizer.
        """
        tokenizer = read_tokenizer(path)
        if (tokenizer.token_to_id(PAD_WORD), tokenizer.token_to_id(UNK_WORD)) != (PAD, UNK):
            raise InputError(path, expected=f"{PAD_WORD} with id {PAD} and {UNK_WORD} with id {UNK}")
        ids = tokenizer.get_vocab().values()
        if max(ids) != len(ids) - 1:
            raise InputError(path, value=max(ids), expected=f"ids from 0 to {len(ids) - 1}")
        return cls(tokenizer)

    def save(self, path: str | Path) -> None:
        """Writes a ``tokenizer.json``."""
        Path(path).write_text(self._tokenizer.to_str(), encoding="utf-8")

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @property
    def words(self) -> list[str]:
        """The vocabulary, by id; PAD and UNK come first."""
        vocabulary: Mapping[str, int] = self._tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def encode(
        self, texts: Sequence[str] | pa.Array, limit: int | None = None, role: Role = "answer"
    ) -> Tokens:
        """Ids of each text, truncated to ``limit`` tokens; runs on all cores."""
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
        encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        rows = [encoding.ids or [UNK] for encoding in encodings]
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        words = self._identified(batch, ids, offsets) if self.identify_words else None
        tokens = Tokens(ids, offsets, words=words)
        return tokens if limit is None else truncate(tokens, limit)

    def _identified(self, texts: list[str], ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """``Tokens.words``: the id of a word that has one, else a hash of it above all ids."""
        vocabulary = self.words
        real = np.array([any(map(str.isalnum, word)) for word in vocabulary])
        real[: UNK + 1] = False
        words = np.where(real[ids], ids, NO_WORD).astype(np.int64)
        unknown = np.flatnonzero(ids == UNK)
        owners = np.searchsorted(offsets, unknown, side="right") - 1
        lower = self._tokenizer.normalizer is not None
        split: tuple[int, list[str]] = (-1, [])
        for owner, place in zip(owners.tolist(), unknown.tolist(), strict=True):
            if split[0] != owner:
                split = owner, self.split(texts[owner])
            word = split[1][place - int(offsets[owner])] if split[1] else ""
            if any(map(str.isalnum, word)):
                word = word.lower() if lower else word
                words[place] = len(vocabulary) + zlib.crc32(word.encode())
        return words

    def places(self, text: str, role: Role = "answer") -> np.ndarray:
        """See ``TextTokenizer.places``: a token is a word."""
        return np.arange(max(1, len(self.split(text))))


def read_tokenizer(path: str | Path) -> Tokenizer:
    """A tokenizer of any kind, without the truncation and padding that its file may ask for.

    Texts are truncated as the recipe says, and padded where they are batched; a file could ask for gigabytes.

    Raises:
        InputError: the file is missing, or is not a tokenizer of any text.
    """
    document = read_json(path, "the tokenizer of a model")
    try:
        document |= {"truncation": None, "padding": None}
        tokenizer = Tokenizer.from_str(json.dumps(document))
        check_encodes(tokenizer)
        return tokenizer
    except BaseException as error:  # the library raises nothing more special, and panics are not exceptions
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise InputError(path, problem=first_line(error), expected="a tokenizer.json") from error


def check_encodes(tokenizer: Tokenizer) -> None:
    """Checks that a tokenizer can encode any text.

    Raises:
        ValueError: a special token of its template is not known.
        Exception: the library's own; it cannot encode an unknown word.
    """
    if tokenizer.post_processor is not None:
        _check_templates(json.loads(tokenizer.post_processor.__getstate__()))
    tokenizer.encode(RARE)


def _check_templates(processor: dict[str, Any]) -> None:
    """Checks that special tokens around texts are known: the library would panic as it encodes.

    Args:
        processor: the ``post_processor`` of a tokenizer's file.

    Raises:
        ValueError: one is not.
    """
    for inner in processor.get("processors", ()):
        _check_templates(inner)
    pieces = [piece for name in ("single", "pair") for piece in processor.get(name, ())]
    used = {piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece}
    if unknown := used - set(processor.get("special_tokens", ())):
        raise ValueError(f"special token {min(unknown)!r} of its template is not among its special_tokens")


def concatenated(parts: Sequence[Tokens]) -> Tokens:
    """The texts of all parts, in order."""
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


def truncate(tokens: Tokens, limit: int, suffix_length: int = 0) -> Tokens:
    """Every text truncated to ``limit`` tokens, of which the last ``suffix_length`` are those at its end."""
    lengths = np.minimum(tokens.lengths, limit)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    place = np.repeat(tokens.offsets[:-1], lengths) + within
    if suffix_length:
        left_out = np.repeat(tokens.lengths - lengths, lengths)
        place += np.where(within >= np.repeat(lengths - suffix_length, lengths), left_out, 0)
    return tokens._at(place, offsets, truncated=int((tokens.lengths > limit).sum()))


def _untrained(lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({PAD_WORD: PAD, UNK_WORD: UNK}, unk_token=UNK_WORD))
    if lowercase:
        tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


# Otherwise transformers asks the user whether to run code that comes with a network.
SAFELY = {"trust_remote_code": False}


def require(package: str, *, purpose: str, extra: str) -> Any:
    """Imports an optional package; progress bars and retry messages of the Hugging Face libraries are off.

    Args:
        package: its import name, such as ``transformers``.
        purpose: what needs it, the subject of the error.
        extra: the extra of aptool that installs it.

    Raises:
        AptoolError: it is not installed; the message says how to install it.
    """
    try:
        module: Any = import_module(package)  # an extra, so perhaps not there to be type-checked
    except ImportError as error:
        raise AptoolError(_missing(package, purpose, extra)) from error
    if package == "transformers":
        module.logging.set_verbosity_error()
        module.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # one line for each retry
    return module


def check_installed(package: str, *, purpose: str, extra: str) -> None:
    """Checks that an optional package is installed, without importing it.

    Raises:
        AptoolError: it is not; the message is that of ``require``.
    """
    if find_spec(package) is None:
        raise AptoolError(_missing(package, purpose, extra))


def _missing(package: str, purpose: str, extra: str) -> str:
    return f"{purpose} needs {package}: {install_command(extra)}"
