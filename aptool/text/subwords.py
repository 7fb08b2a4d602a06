"""Subword tokenizers of pretrained networks, of any kind that ``tokenizers`` supports.

A text is encoded with the special tokens that the network expects, such as [CLS] and [SEP]. Truncation keeps
the special tokens at the end of a text.

Some networks read questions and answers differently: with a prompt per role, a mark (a token after the first
one), filler tokens that extend a question to a fixed length, or answer tokens that are read but not
matched. The tokenizer applies such a `TextForm`. Later steps see it as flags in the token ids, which stay
with a token when texts are selected, cached, deduplicated or sent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Encoding, Tokenizer
from typing_extensions import override

from aptool.text.tokenizer import Role, TextTokenizer, Tokens, join_rows, truncate
from aptool.text.tokenizer_file import encode_texts, read_tokenizer

# Flags of an id. Both fit into int32, above every token id.
UNPOOLED = 1 << 30  # the network reads the token, but its state is not pooled
UNATTENDED = 1 << 29  # the state is pooled, but no other token attends to the token
TOKEN_ID = UNATTENDED - 1


@dataclass(frozen=True)
class TextForm:
    """The additions to the texts of one role, and the tokens that are not pooled."""

    prompt: str = ""  # prefix of each text
    prompt_tokens: int = 0  # number of tokens at the beginning, special tokens included, that are not pooled
    mark: int = -1  # id of the token inserted after the first token; -1 for none
    filler: int = -1  # id of the token that extends texts to ``fill_to`` tokens; -1 for none
    fill_to: int = 0  # minimum length in tokens
    attend_filler: bool = False  # whether other tokens attend to filler tokens
    unpooled: tuple[int, ...] = ()  # ids of tokens whose states are not pooled
    strips: bool = False  # whether outer white space is removed, the prompt included

    def present(self, text: str) -> str:
        """Return a text with its prompt."""
        return (self.prompt + text).strip() if self.strips else self.prompt + text

    def apply(self, tokens: Tokens) -> Tokens:
        """Apply the form to the tokens of texts, prompts included."""
        if self.mark >= 0:
            tokens = _inserted(tokens, np.minimum(1, tokens.lengths), self.mark)
        flags = np.zeros(len(tokens.ids), dtype=np.int32)
        if self.unpooled:
            flags[np.isin(tokens.ids, self.unpooled)] |= UNPOOLED
        if self.prompt_tokens:
            position = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], tokens.lengths)
            flags[position < self.prompt_tokens] |= UNPOOLED
        tokens = Tokens(tokens.ids | flags, tokens.offsets)
        filler = self.filler if self.attend_filler else self.filler | UNATTENDED
        return tokens if self.filler < 0 else _filled(tokens, filler, self.fill_to)

    def word_indices(self, indices: np.ndarray) -> np.ndarray:
        """Insert -1 for mark and filler into the word indices of one text."""
        tokens = Tokens(indices, np.array([0, len(indices)]))
        if self.mark >= 0:
            tokens = _inserted(tokens, np.minimum(1, tokens.lengths), -1)
        return tokens.ids if self.filler < 0 else _filled(tokens, -1, self.fill_to).ids


PLAIN = TextForm()


@dataclass(frozen=True)
class Presentation:
    """How texts are presented to a network."""

    forms: Mapping[Role, TextForm] = field(default_factory=dict)
    special: bool = True  # whether the network reads special tokens
    truncates_left: bool = False  # truncation removes the beginning of a text, not its end
    # Texts keep ``margin`` times as many tokens as the limit, where pairs are truncated by their lengths.
    margin: int = 1


class SpecialTokens(NamedTuple):
    """The special tokens of a pair of texts, and its token type ids."""

    before: list[int]  # ids before the first text
    between: list[int]  # ids between the texts
    after: list[int]  # ids after the second text
    # Five token type ids: of ``before``, the first text, ``between``, the second text, ``after``.
    types: list[int]


class SubwordTokenizer(TextTokenizer):
    """Splits texts into the subword tokens of a pretrained network.

    The texts of a role without a form are not changed. A text has ``prefix_length`` special tokens before it
    and ``suffix_length`` after it.
    """

    unit = "subword tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        presentation: Presentation | None = None,
        *,
        characters: int = 0,
        empty: int | None = None,
        source: object = "tokenizer.json",
    ) -> None:
        """Wrap a tokenizer; errors name its file ``source``.

        ``characters`` limits the length of a text, 0: without a limit. ``empty`` is the id of a text without
        tokens, by default of the unknown token.
        """
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.source = str(source)
        self.presentation = presentation if presentation is not None else Presentation()
        self._characters = characters or None
        self.unknown = _unknown_id(tokenizer)
        self._empty = max(self.unknown, 0) if empty is None else empty
        special = self._encode_pair("a").special_tokens_mask
        self.prefix_length = special.index(0) if 0 in special else 0
        self.suffix_length = special[::-1].index(0) if 0 in special else 0

    @classmethod
    @override
    def load(cls, path: str | Path) -> "SubwordTokenizer":
        return cls(read_tokenizer(path), source=path)

    def saved_forms(self) -> dict[str, Any]:
        """Return the presentation of texts as JSON values."""
        forms = self.presentation.forms.items()
        roles = {role: {**asdict(form), "unpooled": list(form.unpooled)} for role, form in forms}
        options = asdict(self.presentation)
        del options["forms"]
        return {**options, "roles": roles}

    def with_forms(self, saved: dict[str, Any]) -> "SubwordTokenizer":
        """Return this tokenizer with the result of ``saved_forms``."""
        forms: dict[Role, TextForm] = {}
        for role, form in saved["roles"].items():
            forms[role] = TextForm(**{**form, "unpooled": tuple(form["unpooled"])})
        options = {name: value for name, value in saved.items() if name != "roles"}
        presentation = Presentation(forms, **options)
        return SubwordTokenizer(self._tokenizer, presentation, source=self.source)

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @override
    def encode(
        self, texts: Sequence[str] | pa.Array, limit: int | None = None, role: Role = "answer"
    ) -> Tokens:
        form = self._form(role)
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
        presented = [form.present(text[: self._characters]) for text in batch]
        special = self.presentation.special
        encodings = encode_texts(self._tokenizer, presented, self.source, special=special)
        tokens = join_rows([encoding.ids or [self._empty] for encoding in encodings])
        if form is not PLAIN:
            tokens = form.apply(tokens)
        return tokens if limit is None else self.truncate(tokens, limit, role)

    @override
    def truncate(self, tokens: Tokens, limit: int, role: Role = "answer") -> Tokens:
        begin = None
        if self.presentation.truncates_left:
            begin = self.prefix_length + (self._form(role).mark >= 0)
        cut = truncate(tokens, limit * self.presentation.margin, self.suffix_length, begin)
        return replace(cut, truncated=int((tokens.lengths > limit).sum()))

    @override
    def word_indices(self, text: str, role: Role = "answer") -> np.ndarray:
        # A token belongs to the word that contains its last character.
        form = self._form(role)
        encoding = self._encode_pair(form.present(text))
        word_of = np.full(len(form.prompt) + len(text) + 1, -1, dtype=np.int64)  # of each character
        end = 0
        for number, word in enumerate(self.split(text)):
            begin = text.index(word, end)
            end = begin + len(word)
            word_of[len(form.prompt) + begin : len(form.prompt) + end] = number
        if form.strips:
            prompted = form.prompt + text
            word_of = word_of[len(prompted) - len(prompted.lstrip()) :]
        lasts = np.array([end - 1 for _, end in encoding.offsets], dtype=np.int64)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        indices = np.where(special, -1, word_of[lasts])
        return form.word_indices(indices) if len(indices) else np.array([-1])

    def _form(self, role: Role) -> TextForm:
        return self.presentation.forms.get(role, PLAIN)

    def _encode_pair(self, text: str, second: str | None = None) -> Encoding:
        """Encode one text or two, with the special tokens that the network reads."""
        return self._tokenizer.encode(text, second, add_special_tokens=self.presentation.special)

    def special_tokens(self) -> SpecialTokens:
        """The special tokens and token type ids of a pair of texts."""
        encoding = self._encode_pair("a", "a")
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


def pooled_rows(ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Select the pooled tokens of n texts; the first token of a text that has no pooled token.

    Returns:
        (R,) int64 indices of the pooled tokens; (n,) int64 number of pooled tokens per text.
    """
    is_pooled = (ids & UNPOOLED) == 0
    if is_pooled.all():
        return np.arange(len(ids)), np.diff(offsets)
    counts = np.add.reduceat(is_pooled, offsets[:-1], dtype=np.int64)
    is_pooled[offsets[:-1][counts == 0]] = True
    return np.flatnonzero(is_pooled), np.maximum(counts, 1)


def _inserted(tokens: Tokens, positions: np.ndarray, token: int) -> Tokens:
    """Insert a token into every text, at its position (texts,)."""
    ids = np.insert(tokens.ids, tokens.offsets[:-1] + positions, token)
    return Tokens(ids, tokens.offsets + np.arange(len(tokens.offsets)))


def _filled(tokens: Tokens, token: int, length: int) -> Tokens:
    """Extend every text to a length by a token repeated at its end."""
    missing = np.maximum(length - tokens.lengths, 0)
    ids = np.insert(tokens.ids, np.repeat(tokens.offsets[1:], missing), token)
    return Tokens(ids, np.concatenate([[0], np.cumsum(tokens.lengths + missing)]))
