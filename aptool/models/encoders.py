"""Encoders: token ids to states, one state per token (paper, section 2).

An encoder is a class with its options; ``ENCODERS`` names it for recipes. Both sides of a pair go through the
same encoder, each text by itself, which is what lets the scorer encode every distinct text once.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.config import bounded
from aptool.models.encoder import Encode, Encoder
from aptool.models.ragged import Ragged
from aptool.models.transformer import CrossInput, TransformerEncoder
from aptool.models.words import WordEncoder
from aptool.text.tokenizer import PAD

__all__ = ["BiLstmEncoder", "CnnEncoder", "ENCODERS", "Encoder", "WordEncoder", "dropped"]

# Texts that an LSTM reads side by side in training.
READ_TOGETHER = 32

# Bytes that a table of precomputed convolutions may take.
LARGEST_TABLE = 1 << 30


class CnnEncoder(WordEncoder):
    """Convolution over the k word embeddings around each token, without a nonlinearity (eq. 1, 2).

    The window of token m is tokens m - (k-1)//2 to m + k//2, zero vectors outside the text: an even window
    reaches one further to the right, and there are as many states as tokens for every k.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of a ``cnn`` encoder.

        Attributes:
            features: c, the number of filters.
            window: k, the words each filter sees.
        """

        features: int = bounded(400, least=1)
        window: int = bounded(3, least=1)

    def __init__(self, words: int, dim: int, options: Options) -> None:
        super().__init__(words, dim)
        self.size = options.features
        self.window = options.window
        self.convolution = nn.Linear(options.window * dim, options.features)  # W1 (c, k·d), b1

    def forward(self, tokens: Ragged) -> Ragged:
        """See ``Encoder.forward``."""
        embedded = self.embedding(self.windows(tokens))  # (N, k, d)
        return tokens.with_values(self.convolution(embedded.flatten(1)))  # (N, c)

    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """A convolution of looked-up vectors is a sum of looked-up convolutions.

        W1 z = W1[0] r(w-1) + W1[1] r(w) + ...: each product of a word's vector with one slice of the filters
        is computed once per word of the vocabulary, and a state is then k rows of that table added up. The
        bias goes with the slice of the token itself, which is never outside its text. Making the table costs
        as much as convolving as many tokens as there are words.
        """
        words, dim = self.embedding.weight.shape
        size = words * self.window * self.size * self.embedding.weight.element_size()
        if size > LARGEST_TABLE or (tokens is not None and tokens < words):
            return super().inference_encoder()
        slices = self.convolution.weight.view(self.size, self.window, dim)  # (c, k, d)
        parts = [self.embedding.weight @ slices[:, j].T for j in range(self.window)]  # (V, c) each
        parts[(self.window - 1) // 2] += self.convolution.bias
        table = torch.cat(parts)  # (k·V, c)
        shift = words * torch.arange(self.window, device=table.device)

        def encode(tokens: Ragged, rows: Tensor) -> Tensor:
            places = self.windows(tokens).index_select(0, rows) + shift  # (R, k)
            return F.embedding_bag(places, table, mode="sum")

        return encode

    def windows(self, tokens: Ragged) -> Tensor:
        """(N, k) int64: the ids in the window of each token, PAD outside its text."""
        place, length = tokens.positions()  # (N,), (N,)
        reach = torch.arange(self.window, device=place.device) - (self.window - 1) // 2  # (k,)
        inside = (place[:, None] + reach >= 0) & (place[:, None] + reach < length[:, None])  # (N, k)
        index = torch.arange(len(place), device=place.device)[:, None] + reach
        return torch.where(inside, tokens.values[index.clamp(0, len(place) - 1)], PAD)


class BiLstmEncoder(WordEncoder):
    """Two LSTMs, one reading backwards; a state is their two hidden vectors end to end (eq. 3 to 8)."""

    @dataclass(frozen=True)
    class Options:
        """Options of a ``bilstm`` encoder.

        Attributes:
            hidden: H, the hidden size per direction; c = 2 H.
        """

        hidden: int = bounded(141, least=1)

    def __init__(self, words: int, dim: int, options: Options) -> None:
        super().__init__(words, dim)
        self.size = 2 * options.hidden
        self.forwards = nn.LSTM(dim, options.hidden, batch_first=True)
        self.backwards = nn.LSTM(dim, options.hidden, batch_first=True)

    def forward(self, tokens: Ragged) -> Ragged:
        """See ``Encoder.forward``.

        Minibatches of training hold short questions and long answers. Padded to the longest, most of the work
        would go into padding, so texts of like length are read together on a CPU. (Scoring sorts its texts.)
        """
        on_cpu = tokens.values.device.type == "cpu"
        if not (self.training and on_cpu) or len(tokens.lengths) <= READ_TOGETHER:
            return self._read(tokens)
        order = tokens.lengths.argsort(stable=True)
        parts = [self._read(tokens.select(rows)).values for rows in order.split(READ_TOGETHER)]
        offsets = torch.cat([order.new_zeros(1), tokens.lengths[order].cumsum(0)])
        return Ragged(torch.cat(parts), offsets).select(order.argsort())

    def _read(self, tokens: Ragged) -> Ragged:
        """States of texts, padded to the longest of them.

        Each text is laid out from the left, for the backward LSTM in reversed order: what stands behind its
        end is then read after it, and cannot reach any of its states.
        """
        return tokens.with_values(self._states(tokens, torch.arange(len(tokens.values)).to(tokens.values)))

    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """See ``Encoder.inference_encoder``."""
        return self._states

    def _states(self, tokens: Ragged, rows: Tensor) -> Tensor:
        """(R, 2 H) states of the tokens at ``rows``."""
        place, length = tokens.positions()
        ids, mask = tokens.padded()  # (n, T)
        slots = mask.flatten().nonzero().squeeze(1)  # (N,) where token i stands
        mirrored = slots - place + (length - 1 - place)  # (N,) where it stands when its text is reversed
        reversed_ids = torch.zeros_like(ids).view(-1).index_copy(0, mirrored, tokens.values).view_as(ids)
        left, _ = self.forwards(self.embedding(ids))  # (n, T, H)
        right, _ = self.backwards(self.embedding(reversed_ids))  # (n, T, H)
        left, right = left.flatten(0, 1), right.flatten(0, 1)
        return torch.cat([left[slots[rows]], right[mirrored[rows]]], dim=1)


ENCODERS: dict[str, Any] = {
    "cnn": CnnEncoder,
    "bilstm": BiLstmEncoder,
    "transformer": TransformerEncoder,
    "pieces": CrossInput,
}


def dropped(states: Ragged, share: float, training: bool) -> Ragged:
    """States with a share of their features zeroed, in training only."""
    return states.with_values(F.dropout(states.values, share, training)) if share else states
