"""Encoders: from token ids to states, one state per token (paper, section 2).

``Encoder`` is the interface. This module has the encoders of the paper, a convolution and a biLSTM over word
embeddings; encoders over a pretrained network are in ``transformer.py``. Question and answer are encoded
independently by the same encoder, so the scorer encodes each distinct text once.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from aptool.config import WIDEST, NoOptions, Recipe, bounded
from aptool.models.device import send
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import PAD, TextTokenizer, WordTokenizer

# From token ids of texts and rows (R,) of tokens to the states (R, c) of these tokens.
Encode = Callable[[Ragged, Tensor], Tensor]

# Texts per batch of an LSTM in training.
TEXTS_PER_BATCH = 32

# Maximum size of the table of precomputed convolutions, in bytes.
MAX_TABLE_BYTES = 1 << 30


class EncoderSpec(NamedTuple):
    """Sizes and network of an encoder, as in ``config.json`` of a model."""

    vocabulary_size: int
    dim: int  # d, dimension of the word embeddings, or of a pretrained network's states
    network: dict[str, Any] | None = None  # configuration of a pretrained network, as in ``transformers``


class Encoder(nn.Module, ABC):
    """The interface of encoders."""

    Options: ClassVar[type]
    Tokenizer: ClassVar[type[TextTokenizer]]
    size: int  # c, features per state

    def __init__(self, spec: EncoderSpec) -> None:
        """Subclasses take their ``Options`` as a second argument, and create new weights."""
        super().__init__()
        self.spec = spec

    @classmethod
    def check(cls, recipe: Recipe, options: Any) -> None:
        """Raise if a required file or package is missing; called before any work."""

    @property
    def is_frozen(self) -> bool:
        """Whether training does not change the states of a text, and ``state_cache`` may have them."""
        return False

    @property
    def reads_table(self) -> bool:
        """Whether inference looks up the states in a table, which is as fast as reading them from memory."""
        return False

    def in_bf16(self) -> "Encoder":
        """Return a copy whose states are in bf16."""
        return copy.deepcopy(self).bfloat16()

    @abstractmethod
    def forward(self, tokens: Ragged) -> Ragged:
        """States, values (N, c), from token ids, values (N,) int64. A state depends only on its text."""

    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """Return ``forward`` for inference with the current weights.

        The states of a text must be equal to the bit for all batches, so that scores do not depend on how
        work is split. If many ``tokens`` are expected, an encoder may precompute tables.
        """
        return lambda tokens, rows: self(tokens).values.index_select(0, rows)


class WordEncoder(Encoder):
    """An encoder over word embeddings W0, shared by questions and answers; PAD is the zero vector."""

    Tokenizer = WordTokenizer

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.embedding = nn.Embedding(spec.vocabulary_size, spec.dim, padding_idx=PAD, sparse=True)


class CnnEncoder(WordEncoder):
    """Convolution over the k word embeddings around each token (eq. 1, 2).

    The window of token m is tokens m - (k-1)//2 to m + k//2, with zero vectors outside the text.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of a ``cnn`` encoder.

        Attributes:
            features: Number of convolutional filters, c.
            window: Words in the window of a filter, k.
            activation: Applied to the states; the paper has ``none``.
            init: Initialization of W1: ``uniform``, or ``orthogonal``, with which the state of a word is
                initially its own vector, rotated (c ≥ d) or projected (c < d).
        """

        features: int = bounded(400, least=1, below=WIDEST + 1)
        window: int = bounded(3, least=1, below=1025)
        activation: Literal["none", "tanh", "relu"] = "none"
        init: Literal["uniform", "orthogonal"] = "uniform"

    def __init__(self, spec: EncoderSpec, options: Options) -> None:
        super().__init__(spec)
        self.size = options.features
        self.window = options.window
        self.activation = (
            torch.positive if options.activation == "none" else getattr(torch, options.activation)
        )
        self.convolution = nn.Linear(options.window * spec.dim, options.features)  # W1 (c, k·d), b1
        if options.init == "orthogonal":
            center = spec.dim * ((options.window - 1) // 2)  # the token itself, in its window
            with torch.no_grad():
                nn.init.zeros_(self.convolution.bias)
                nn.init.zeros_(self.convolution.weight)
                nn.init.orthogonal_(self.convolution.weight[:, center : center + spec.dim])

    @override
    def forward(self, tokens: Ragged) -> Ragged:
        embedded = self.embedding(self.windows(tokens))  # (N, k, d)
        convolved = self.convolution(embedded.flatten(1))  # (N, c)
        return tokens.with_values(self.activation(convolved))

    @property
    @override
    def reads_table(self) -> bool:
        if type(self) is not CnnEncoder or type(self.convolution) is not nn.Linear:
            return False  # a subclass has its own definition
        words = len(self.embedding.weight)
        return words * self.window * self.size * self.embedding.weight.element_size() <= MAX_TABLE_BYTES

    @torch.no_grad()
    @override
    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """Precompute the convolution per word, if the table is small and there are many tokens.

        W1 z = W1[0] r(w-1) + W1[1] r(w) + ...: the table has the product of each word's embedding with each
        slice of the filters, and a state is the sum of k rows of the table. The bias is added to the slice of
        the token itself, which is never outside its text. The table costs one convolution per word.
        """
        words, dim = self.embedding.weight.shape
        if not self.reads_table or (tokens is not None and tokens < words):
            return super().inference_encoder()
        slices = self.convolution.weight.view(self.size, self.window, dim)  # (c, k, d)
        table = slices.new_empty(self.window, words, self.size)
        for j, part in enumerate(table):
            torch.mm(self.embedding.weight, slices[:, j].T, out=part)
        table[(self.window - 1) // 2] += self.convolution.bias
        table = table.flatten(0, 1)  # (k·V, c)
        shift = words * torch.arange(self.window, device=table.device)

        def encode(tokens: Ragged, rows: Tensor) -> Tensor:
            table_rows = self.windows(tokens).index_select(0, rows) + shift  # (R, k)
            return self.activation(F.embedding_bag(table_rows, table, mode="sum"))

        return encode

    def windows(self, tokens: Ragged) -> Tensor:
        """(N, k) int64 ids in the window of each token, PAD outside its text."""
        ids = tokens.values
        texts = tokens.on_host() if tokens.is_indexed_on_host(len(ids) * self.window) else tokens
        position, length = texts.positions()  # (N,), (N,)
        shift = torch.arange(self.window, device=position.device) - (self.window - 1) // 2  # (k,)
        in_text = (position[:, None] + shift >= 0) & (position[:, None] + shift < length[:, None])  # (N, k)
        index = torch.where(in_text, texts.row_numbers()[:, None] + shift, len(ids))
        if texts is not tokens:
            index = send(index.numpy(), ids.device)
        return F.pad(ids, (0, 1), value=PAD)[index]


class BiLstmEncoder(WordEncoder):
    """Two LSTMs, one in each direction; a state is the concatenation of their hidden vectors (eq. 3 to 8)."""

    @dataclass(frozen=True)
    class Options:
        """Options of a ``bilstm`` encoder.

        Attributes:
            hidden: Hidden size H of each direction; a state has c = 2 H features.
        """

        hidden: int = bounded(141, least=1, below=WIDEST // 2 + 1)

    def __init__(self, spec: EncoderSpec, options: Options) -> None:
        super().__init__(spec)
        self.size = 2 * options.hidden
        self.forwards = nn.LSTM(spec.dim, options.hidden, batch_first=True)
        self.backwards = nn.LSTM(spec.dim, options.hidden, batch_first=True)
        self._dtype: torch.dtype | None = None  # of the states, if not that of the weights

    @override
    def in_bf16(self) -> Encoder:
        """Return a copy whose states are in bf16; on a CPU it shares the LSTMs in fp32, which are faster."""
        if self.embedding.weight.is_cuda:
            return super().in_bf16()
        encoder = copy.copy(self)
        encoder._dtype = torch.bfloat16
        return encoder

    def forward(self, tokens: Ragged) -> Ragged:
        """Encode texts; in training on a CPU, batch texts of similar length to reduce padding."""
        on_cpu = tokens.values.device.type == "cpu"
        if not (self.training and on_cpu) or len(tokens.sizes) <= TEXTS_PER_BATCH:
            return tokens.with_values(self._states(tokens, tokens.row_numbers()))
        order = np.argsort(tokens.sizes, kind="stable")
        blocks = np.split(order, range(TEXTS_PER_BATCH, len(order), TEXTS_PER_BATCH))
        parts = [self.forward(tokens.select(rows)) for rows in blocks]
        return Ragged.concatenate(parts).select(np.argsort(order))

    @override
    def inference_encoder(self, tokens: int | None = None) -> Encode:
        if type(self) is not BiLstmEncoder:  # a subclass has its own definition
            return super().inference_encoder(tokens)
        return self._states

    def _states(self, tokens: Ragged, rows: Tensor) -> Tensor:
        """(R, 2 H) states of the tokens at ``rows``: the hidden vectors of both directions (eq. 3 to 8).

        Texts are padded on the right; for the backward LSTM they are reversed first. Both LSTMs read padding
        after the text, so padding does not change its states.
        """
        position, length = tokens.positions()
        shape = len(tokens.sizes), int(tokens.sizes.max())  # (n, T)
        slots = tokens.slots(shape[1])  # (N,) index of each token in the padded texts
        mirrored = slots - position + (length - 1 - position)  # (N,) its index in the padded reversed texts
        padding = tokens.values.new_zeros(math.prod(shape))
        ids, reversed_ids = (
            padding.index_copy(0, index, tokens.values).view(shape) for index in (slots, mirrored)
        )
        left, _ = self.forwards(self.embedding(ids))  # (n, T, H)
        right, _ = self.backwards(self.embedding(reversed_ids))  # (n, T, H)
        left, right = left.flatten(0, 1), right.flatten(0, 1)
        states = torch.cat([left[slots[rows]], right[mirrored[rows]]], dim=1)
        return states if self._dtype is None else states.to(self._dtype)


class WordVectorEncoder(WordEncoder):
    """The state of a token is its word vector."""

    Options = NoOptions

    def __init__(self, spec: EncoderSpec, options: NoOptions) -> None:
        super().__init__(spec)
        self.size = spec.dim

    @property
    @override
    def reads_table(self) -> bool:
        return type(self) is WordVectorEncoder

    @override
    def forward(self, tokens: Ragged) -> Ragged:
        return tokens.with_values(self.embedding(tokens.values))
