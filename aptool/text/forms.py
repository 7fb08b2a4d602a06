"""How a text is put to a network that reads questions and answers differently, and flags of its tokens.

A checkpoint may have a prompt for each kind of text, a mark (a token of its own after the first special
token), tokens that fill a question up to a length, and answer tokens that are read but not matched. All of
this is decided by the tokenizer. What later steps have to know about a token is a flag in its id, so that it
goes with the token wherever texts are selected, cached, deduplicated or sent.
"""

from dataclasses import dataclass

import numpy as np

from aptool.text.tokenizer import Tokens

# Flags of an id: the network reads the token, but its state is not pooled; the state of the token is pooled,
# but no other token attends to it. Both fit into int32, above every token id.
UNPOOLED = 1 << 30
UNATTENDED = 1 << 29
TOKEN_ID = UNATTENDED - 1


@dataclass(frozen=True)
class TextForm:
    """What is added to the texts of one role, and which of their tokens are pooled.

    Attributes:
        prompt: text put before each text.
        prompt_tokens: number of tokens at the beginning, special tokens included, that are not pooled.
        mark: id of the token inserted after the special tokens at the beginning; -1 for none.
        filler: id of the token that fills texts up to ``fill_to`` tokens; -1 for none.
        fill_to: the length they are filled up to.
        attend_filler: whether other tokens attend to those that fill up.
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
        """The tokens of texts in this form.

        Args:
            tokens: the tokens of the texts with their prompt.
            prefix_length: number of special tokens before a text.
        """
        if self.mark >= 0:
            tokens = _inserted(tokens, np.minimum(prefix_length, tokens.lengths), self.mark)
        flags = np.zeros(len(tokens.ids), dtype=np.int32)
        if self.unpooled:
            flags[np.isin(tokens.ids, self.unpooled)] |= UNPOOLED
        if self.prompt_tokens:
            place = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], tokens.lengths)
            flags[place < self.prompt_tokens] |= UNPOOLED
        tokens = Tokens(tokens.ids | flags, tokens.offsets)
        filler = self.filler if self.attend_filler else self.filler | UNATTENDED
        return tokens if self.filler < 0 else _filled(tokens, filler, self.fill_to)

    def places(self, places: np.ndarray, prefix_length: int) -> np.ndarray:
        """What each token of one text belongs to, from the same without mark and filler, which get -1."""
        tokens = Tokens(places, np.array([0, len(places)]))
        if self.mark >= 0:
            tokens = _inserted(tokens, np.minimum(prefix_length, tokens.lengths), -1)
        return tokens.ids if self.filler < 0 else _filled(tokens, -1, self.fill_to).ids


PLAIN = TextForm()


def pooled_rows(ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens of n texts are pooled; of a text without any such token, the first one is.

    Args:
        ids: (N,) ids with their flags, text by text.
        offsets: (n + 1,) where each text begins, and the end.

    Returns:
        (R,) int64 rows of those tokens; (n,) int64 how many each text has.
    """
    found = (ids & UNPOOLED) == 0
    if found.all():
        return np.arange(len(ids)), np.diff(offsets)
    counts = np.add.reduceat(found, offsets[:-1], dtype=np.int64)
    found[offsets[:-1][counts == 0]] = True
    return np.flatnonzero(found), np.maximum(counts, 1)


def _inserted(tokens: Tokens, places: np.ndarray, token: int) -> Tokens:
    """Every text with one more token, at its place (texts,)."""
    ids = np.insert(tokens.ids, tokens.offsets[:-1] + places, token)
    return Tokens(ids, tokens.offsets + np.arange(len(tokens.offsets)))


def _filled(tokens: Tokens, token: int, length: int) -> Tokens:
    """Every text with a token repeated at its end, up to a length; longer texts stay as they are."""
    missing = np.maximum(length - tokens.lengths, 0)
    ids = np.insert(tokens.ids, np.repeat(tokens.offsets[1:], missing), token)
    return Tokens(ids, np.concatenate([[0], np.cumsum(tokens.lengths + missing)]))
