"""Text forms of networks that read questions and answers differently, and the flags of their tokens.

A checkpoint may have a prompt per role, a mark (a token after the first special token), filler tokens that
extend a question to a fixed length, and answer tokens that are read but not matched. The tokenizer applies
the form. Later steps see it as flags in the token ids, which stay with a token wherever texts are selected,
cached, deduplicated or sent.
"""

from dataclasses import dataclass

import numpy as np

from aptool.text.tokenizer import Tokens

# Flags of an id. Both fit into int32, above every token id.
UNPOOLED = 1 << 30  # the network reads the token, but its state is not pooled
UNATTENDED = 1 << 29  # the state is pooled, but no other token attends to the token
TOKEN_ID = UNATTENDED - 1


@dataclass(frozen=True)
class TextForm:
    """The additions to the texts of one role, and the tokens that are not pooled.

    Attributes:
        prompt: prefix of each text.
        prompt_tokens: number of tokens at the beginning, special tokens included, that are not pooled.
        mark: id of the token inserted after the special tokens at the beginning; -1 for none.
        filler: id of the token that extends texts to ``fill_to`` tokens; -1 for none.
        fill_to: minimum length in tokens.
        attend_filler: whether other tokens attend to filler tokens.
        unpooled: ids of tokens whose states are not pooled.
    """

    prompt: str = ""
    prompt_tokens: int = 0
    mark: int = -1
    filler: int = -1
    fill_to: int = 0
    attend_filler: bool = False
    unpooled: tuple[int, ...] = ()

    def apply(self, tokens: Tokens, prefix_length: int) -> Tokens:
        """Apply the form to texts.

        Args:
            tokens: the tokens of the texts, prompts included.
            prefix_length: number of special tokens before a text.
        """
        if self.mark >= 0:
            tokens = _inserted(tokens, np.minimum(prefix_length, tokens.lengths), self.mark)
        flags = np.zeros(len(tokens.ids), dtype=np.int32)
        if self.unpooled:
            flags[np.isin(tokens.ids, self.unpooled)] |= UNPOOLED
        if self.prompt_tokens:
            position = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], tokens.lengths)
            flags[position < self.prompt_tokens] |= UNPOOLED
        tokens = Tokens(tokens.ids | flags, tokens.offsets)
        filler = self.filler if self.attend_filler else self.filler | UNATTENDED
        return tokens if self.filler < 0 else _filled(tokens, filler, self.fill_to)

    def word_indices(self, indices: np.ndarray, prefix_length: int) -> np.ndarray:
        """Insert -1 for mark and filler into the word indices of one text."""
        tokens = Tokens(indices, np.array([0, len(indices)]))
        if self.mark >= 0:
            tokens = _inserted(tokens, np.minimum(prefix_length, tokens.lengths), -1)
        return tokens.ids if self.filler < 0 else _filled(tokens, -1, self.fill_to).ids


PLAIN = TextForm()


def pooled_rows(ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Select the pooled tokens of n texts; the first token of a text that has no pooled token.

    Args:
        ids: (N,) ids with their flags.
        offsets: (n + 1,) boundaries of the texts.

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
