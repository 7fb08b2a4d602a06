"""Static embeddings: model2vec, and ``StaticEmbedding`` of sentence-transformers.

A token has the same vector in all texts. The vector of a text is the mean of the vectors of its tokens, after
further modules.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.documents import read_json
from aptool.errors import InputError
from aptool.models.checkpoints.files import (
    CONFIG,
    EXPECTED,
    ST_CONFIG,
    WEIGHTS,
    Checkpoint,
    Layout,
    optional_object,
    positive_integer,
    recipe_of,
)
from aptool.models.checkpoints.keys import check_keys
from aptool.models.checkpoints.sentence import (
    SentencePooling,
    read_dim,
    read_layers,
    read_prompts,
    read_similarity,
)
from aptool.models.checkpoints.weights import read_tensor, shapes
from aptool.models.encoders import Encoder
from aptool.models.initialization import EncoderSpec
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.text.subwords import TOKEN_ID, Presentation, SubwordTokenizer, TextForm
from aptool.text.tokenizer import Role
from aptool.text.tokenizer_file import read_tokenizer

# Maximum length of texts by default: of model2vec, and of StaticEmbedding, which has no limit.
_MAX_TOKENS, _UNLIMITED = 512, 1 << 20


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
    check_keys(layout.folder / ST_CONFIG, f"{ST_CONFIG} of static", layout.st_config)
    path = folder / WEIGHTS
    names = shapes(path)
    is_model2vec = "embeddings" in names
    vectors = read_tensor(path, "embeddings" if is_model2vec else "embedding.weight").float()
    tokenizer_path = folder / "tokenizer.json"
    backend = read_tokenizer(tokenizer_path)
    backend.post_processor = None  # static embeddings have no special tokens
    size = backend.get_vocab_size(with_added_tokens=True)
    if vectors.dim() != 2 or not vectors.numel():
        raise InputError(path, value=list(vectors.shape), expected="one vector per token")
    rows = read_tensor(path, "mapping").long() if "mapping" in names else torch.arange(len(vectors))
    weights = read_tensor(path, "weights").float() if "weights" in names else torch.ones(len(rows))
    if len(rows) != size or rows.dim() != 1 or weights.shape != rows.shape:
        expected = f"{size}, as tokenizer.json has"
        raise InputError(path, problem=f"vectors of {len(rows)} tokens", expected=expected)
    highest = max(backend.get_vocab().values(), default=-1)
    if highest >= size:
        raise InputError(tokenizer_path, position="vocabulary", value=highest, expected=f"ids below {size}")
    if not 0 <= int(rows.min()) <= int(rows.max()) < len(vectors):
        raise InputError(
            path, position="mapping", value=int(rows.max()), expected=f"rows below {len(vectors)}"
        )
    characters, limit, left = 0, *_saved_truncation(tokenizer_path)
    unpooled: tuple[int, ...] = ()
    if is_model2vec:
        config = optional_object(folder / CONFIG)
        check_keys(folder / CONFIG, "config.json of model2vec", config)
        default = _UNLIMITED if "max_length" in config else _MAX_TOKENS
        limit, left = positive_integer(folder / CONFIG, config, "max_length", default), False
        characters = limit * int(np.median([len(token) for token in backend.get_vocab()]))
        unknown = SubwordTokenizer(backend).unknown
        if unknown >= 0:
            unpooled = (unknown,)
            weights = weights.clone()
            weights[unknown] = 0  # a text of unknown tokens has the zero vector
    prompts = read_prompts(layout)
    forms: dict[Role, TextForm] = {
        role: TextForm(prompt=prompts[role], unpooled=unpooled) for role in ("question", "answer")
    }
    # A text without tokens has the zero vector.
    rows, weights = (torch.cat([values, values.new_zeros(1)]) for values in (rows, weights))
    presentation = Presentation(forms, truncates_left=left)
    tokenizer = SubwordTokenizer(
        backend, presentation, characters=characters, empty=size, source=tokenizer_path
    )
    encoder = StaticEncoder(vectors, rows, weights)
    layers = read_layers((layout.modules or [])[1:], encoder.size)
    pooling = SentencePooling(["mean"], layers, read_similarity(layout), read_dim(layout))
    ranker = Ranker(encoder, pooling)
    return Checkpoint(ranker, tokenizer, recipe_of(layout, "static", "mean", limit, limit))


def _saved_truncation(path: Path) -> tuple[int, bool]:
    """Return the maximum length of a tokenizer file, and whether truncation removes the beginning."""
    truncation = read_json(path, EXPECTED).get("truncation") or {}
    return positive_integer(path, truncation, "max_length", _UNLIMITED), truncation.get("direction") == "Left"
