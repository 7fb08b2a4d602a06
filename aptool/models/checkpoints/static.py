"""Static embeddings: model2vec, and ``StaticEmbedding`` of sentence-transformers.

A token has the same vector in every text; a text is the mean of its tokens' vectors.
"""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from typing_extensions import override

from aptool.errors import InputError, first_line
from aptool.models.checkpoints.files import (
    CONFIG,
    WEIGHTS,
    Layout,
    positive_integer,
    read_object,
    read_tensor,
    shapes,
)
from aptool.models.checkpoints.parts import Checkpoint, recipe_of
from aptool.models.encoders import Encoder
from aptool.models.initialization import EncoderSpec
from aptool.models.pooling import MeanPooling, StateOptions
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.text.forms import TOKEN_ID, TextForm
from aptool.text.subwords import SubwordTokenizer

TOKENIZER = "tokenizer.json"

# Default maximum length of model2vec, and of StaticEmbedding, which has no limit.
_TOKENS, _UNLIMITED = 512, 1 << 20


class StaticEncoder(Encoder):
    """The state of a token is its vector times its weight."""

    Tokenizer = SubwordTokenizer
    vectors: Tensor  # (rows, c)
    rows: Tensor  # (V,) the row of each token
    weights: Tensor  # (V,) the weight of each token

    def __init__(self, vectors: Tensor, rows: Tensor, weights: Tensor) -> None:
        super().__init__()
        self.size = vectors.shape[1]
        self.spec = EncoderSpec(len(rows), self.size)
        self.vectors = nn.Parameter(vectors, requires_grad=False)
        self.register_buffer("rows", rows)
        self.register_buffer("weights", weights)

    @override
    def forward(self, tokens: Ragged) -> Ragged:
        ids = tokens.values & TOKEN_ID
        return tokens.with_values(self.vectors[self.rows[ids]] * self.weights[ids, None])


def read_static(layout: Layout) -> Checkpoint:
    """Read a static embedding model."""
    folder = layout.transformer
    path = folder / WEIGHTS
    names = shapes(path)
    is_model2vec = "embeddings" in names
    vectors = read_tensor(path, "embeddings" if is_model2vec else "embedding.weight").float()
    words = _read_tokenizer(folder / TOKENIZER)
    size = words.get_vocab_size(with_added_tokens=True)
    if vectors.dim() != 2 or not vectors.numel():
        raise InputError(path, value=list(vectors.shape), expected="a vector of each token")
    rows = read_tensor(path, "mapping").long() if "mapping" in names else torch.arange(len(vectors))
    weights = read_tensor(path, "weights").float() if "weights" in names else torch.ones(len(rows))
    if len(rows) != size or rows.dim() != 1 or weights.shape != rows.shape:
        expected = f"{size}, as {TOKENIZER} has"
        raise InputError(path, problem=f"vectors of {len(rows)} tokens", expected=expected)
    if not 0 <= int(rows.min()) <= int(rows.max()) < len(vectors):
        raise InputError(path, place="mapping", value=int(rows.max()), expected=f"rows below {len(vectors)}")
    form, characters, limit = TextForm(), 0, _UNLIMITED
    tokenizer = SubwordTokenizer(words)
    if is_model2vec:
        config = read_object(folder / CONFIG)
        limit = positive_integer(folder / CONFIG, config, "max_length", _TOKENS)
        characters = limit * int(np.median([len(token) for token in words.get_vocab()]))
        if tokenizer.unknown >= 0:
            form = TextForm(unpooled=(tokenizer.unknown,))
            weights = weights.clone()
            weights[tokenizer.unknown] = 0  # a text of unknown tokens only is the zero vector
    tokenizer = SubwordTokenizer(words, {"question": form, "answer": form}, characters=characters)
    encoder = StaticEncoder(vectors, rows, weights)
    ranker = Ranker(encoder, MeanPooling(encoder.size, StateOptions()))
    return Checkpoint(ranker, tokenizer, recipe_of(layout, "static", "mean", limit, limit))


def _read_tokenizer(path: Path) -> Tokenizer:
    """Read the tokenizer, without special tokens."""
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="the tokenizer of the model")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise InputError(path, problem=first_line(error), expected="a tokenizer.json") from error
    tokenizer.post_processor = None
    return tokenizer
