"""Sentence embeddings: sentence encoders of sentence-transformers, and static embeddings.

- Sentence encoder: a network, a pooling, Dense layers and a similarity. The score is
  ``model.similarity(model.encode_query(question), model.encode_document(answer))``.
- Static embedding (model2vec, or ``StaticEmbedding`` of sentence-transformers): a token has the same vector
  in all texts. The vector of a text is the mean of its tokens' vectors.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.errors import InputError
from aptool.models.checkpoints.files import (
    CONFIG,
    ST_CONFIG,
    WEIGHTS,
    Checkpoint,
    Layout,
    Module,
    load_weights,
    open_encoder,
    optional_object,
    positive_integer,
    projection_of,
    read_dense,
    read_tensor,
    recipe_of,
    shapes,
)
from aptool.models.encoders import Encoder
from aptool.models.initialization import EncoderSpec
from aptool.models.pooling import (
    Dense,
    IndependentPooling,
    MeanPooling,
    StateOptions,
    segment_max,
    segment_mean,
)
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.models.similarity import Cosine, Dot, Similarity, distances
from aptool.text.subwords import TOKEN_ID, SubwordTokenizer, TextForm
from aptool.text.tokenizer import Role
from aptool.text.tokenizer_file import read_tokenizer

# Modes of the module Pooling in the order of concatenation; older files have the long names.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

# Names of the prompt of each role, in order of precedence.
_PROMPTS: dict[Role, tuple[str, ...]] = {"question": ("query",), "answer": ("document", "passage", "corpus")}

# Maximum length of texts by default: of model2vec, and of StaticEmbedding, which has no limit.
_MAX_TOKENS, _UNLIMITED = 512, 1 << 20


class SentencePooling(IndependentPooling):
    """r = the embedding of sentence-transformers: the pooled states after further layers."""

    def __init__(self, modes: list[str], layers: list[nn.Module], similarity: Similarity) -> None:
        super().__init__(0, StateOptions())
        self.modes = modes
        self.layers = nn.Sequential(*layers)
        self.similarity = similarity

    @override
    def represent(self, states: Ragged) -> Tensor:
        embeddings: Tensor = self.layers(torch.cat([pool(states, mode) for mode in self.modes], 1))
        return embeddings


def pool(states: Ragged, mode: str) -> Tensor:
    """(n, c) pooled states (N, c), by a mode of sentence-transformers."""
    if mode == "cls":
        return states.values.index_select(0, states.offsets[:-1])
    if mode == "lasttoken":
        return states.values.index_select(0, states.offsets[1:] - 1)
    if mode == "max":
        return segment_max(states.values, states)
    if mode == "weightedmean":
        weights = (states.positions()[0] + 1.0)[:, None]  # (N, 1)
        weighted = torch.cat([states.values * weights, weights], 1)
        sums = torch.segment_reduce(weighted, "sum", lengths=states.lengths, axis=0)
        return sums[:, :-1] / sums[:, -1:]
    mean = segment_mean(states)
    return mean * states.lengths.sqrt()[:, None] if mode == "mean_sqrt_len_tokens" else mean


class Normalize(nn.Module):
    """Scale vectors to unit length."""

    def forward(self, vectors: Tensor) -> Tensor:
        """(n, c) unit vectors."""
        return nn.functional.normalize(vectors, dim=-1)


class NegativeEuclidean(Similarity):
    """-‖x - y‖."""

    @override
    def pairs(self, questions: Tensor, answers: Tensor) -> Tensor:
        return -torch.linalg.vector_norm(questions - answers, dim=-1)

    @override
    def matrix(self, questions: Tensor, answers: Tensor) -> Tensor:
        return -distances(questions, answers)


class NegativeManhattan(Similarity):
    """-Σ |x - y|."""

    @override
    def pairs(self, questions: Tensor, answers: Tensor) -> Tensor:
        return -(questions - answers).abs().sum(-1)

    @override
    def matrix(self, questions: Tensor, answers: Tensor) -> Tensor:
        return -torch.cdist(questions, answers, p=1)


_SIMILARITIES: dict[str, type[Similarity]] = {
    "cosine": Cosine,
    "dot": Dot,
    "euclidean": NegativeEuclidean,
    "manhattan": NegativeManhattan,
}


def read_sentence(layout: Layout) -> Checkpoint:
    """Read a sentence encoder; without modules, it has mean pooling, as in sentence-transformers."""
    opened = open_encoder(layout)
    modules = [Module("Pooling", layout.folder, {})] if layout.modules is None else layout.modules[1:]
    size = opened.encoder.size
    before: list[Dense] = []
    layers: list[nn.Module] = []
    modes: list[str] = []
    pools_prompt = True
    for module in modules:
        path = module.folder / CONFIG
        if module.kind == "Pooling" and not modes:
            modes, pools_prompt = _read_pooling(module, size)
            size *= len(modes)
        elif module.kind == "Dense" and not modes:
            if module.config.get("module_input_name") != "token_embeddings":
                raise InputError(path, problem="Dense before Pooling", expected="one of token_embeddings")
            before.append(read_dense(module, size))
            size = before[-1].outputs
        elif not modes:
            raise InputError(path, problem=f"{module.kind} comes first", expected="Pooling after the network")
        elif module.kind == "Dense":
            dense = read_dense(module, size)
            layers.append(dense)
            size = dense.outputs
        elif module.kind == "LayerNorm":
            layers.append(_read_norm(module, size))
        elif module.kind == "Normalize":
            layers.append(Normalize())
        elif module.kind != "Dropout":
            raise InputError(path, problem=f"{module.kind} after Pooling", expected="Dense or Normalize")
    if not modes:
        raise InputError(layout.folder, problem="no module Pooling", expected="a sentence encoder")
    if "weightedmean" in modes and not pools_prompt and any(read_prompts(layout).values()):
        # The weights of tokens would depend on the length of the prompt.
        problem = "weightedmean of texts without their prompts"
        raise InputError(layout.folder, problem=problem, expected="another mode, or include_prompt")
    tokenizer = opened.tokenizer_with(_forms(layout, opened.tokenizer, pools_prompt))
    pooling = SentencePooling(modes, layers, _read_similarity(layout))
    ranker = Ranker(opened.encoder, pooling, projection=projection_of(before))
    recipe = recipe_of(layout, "transformer", "+".join(modes), opened.max_tokens, opened.max_tokens)
    return Checkpoint(ranker, tokenizer, recipe)


def _read_pooling(module: Module, size: int) -> tuple[list[str], bool]:
    """Return the modes of a module Pooling, and whether it includes the tokens of a prompt."""
    path, config = module.folder / CONFIG, module.config
    dim = config.get("embedding_dimension", config.get("word_embedding_dimension", size))
    if dim != size:
        raise InputError(
            path, position="embedding_dimension", value=dim, expected=f"{size}, the features of a state"
        )
    older = [mode for name, mode in _MODES.items() if config.get(name)]
    named = config.get("pooling_mode", older or "mean")
    modes = [named] if isinstance(named, str) else list(named) if isinstance(named, list) else []
    if not modes or any(mode not in _MODES.values() for mode in modes) or len(modes) > len(_MODES):
        expected = f"some of {', '.join(_MODES.values())}"
        raise InputError(path, position="pooling_mode", value=named, expected=expected)
    return modes, bool(config.get("include_prompt", True))


def _read_norm(module: Module, size: int) -> nn.Module:
    """Read a module LayerNorm with its weights."""
    norm = nn.ModuleDict({"norm": nn.LayerNorm(size)})
    load_weights(norm, module.folder / WEIGHTS)
    return norm["norm"]


def _read_similarity(layout: Layout) -> Similarity:
    """Return the similarity of embeddings, by default the cosine."""
    name = layout.st_config.get("similarity_fn_name") or "cosine"
    if not isinstance(name, str) or name not in _SIMILARITIES:
        expected = f"one of {', '.join(_SIMILARITIES)}"
        raise InputError(
            layout.folder / ST_CONFIG, position="similarity_fn_name", value=name, expected=expected
        )
    return _SIMILARITIES[name](0, None)


def read_prompts(layout: Layout) -> dict[Role, str]:
    """Return the prompt of each role; empty without a prompt."""
    prompts: Any = layout.st_config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        text is None or isinstance(text, str) for text in prompts.values()
    ):
        expected = "the text of each prompt by its name"
        raise InputError(layout.folder / ST_CONFIG, position="prompts", value=prompts, expected=expected)
    return {
        role: next((prompts[name] or "" for name in names if name in prompts), "")
        for role, names in _PROMPTS.items()
    }


def _forms(layout: Layout, tokenizer: SubwordTokenizer, pools_prompt: bool) -> dict[Role, TextForm]:
    """Return the forms of the roles that have a prompt."""
    forms = {}
    for role, prompt in read_prompts(layout).items():
        if not prompt:
            continue
        unpooled = 0 if pools_prompt else len(tokenizer.encode([prompt]).ids) - tokenizer.suffix_length
        forms[role] = TextForm(prompt=prompt, prompt_tokens=unpooled)
    return forms


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
    form, characters, limit = TextForm(), 0, _UNLIMITED
    tokenizer = SubwordTokenizer(backend)
    if is_model2vec:
        config = optional_object(folder / CONFIG)
        limit = positive_integer(folder / CONFIG, config, "max_length", _MAX_TOKENS)
        characters = limit * int(np.median([len(token) for token in backend.get_vocab()]))
        if tokenizer.unknown >= 0:
            form = TextForm(unpooled=(tokenizer.unknown,))
            weights = weights.clone()
            weights[tokenizer.unknown] = 0  # a text of unknown tokens has the zero vector
    forms: dict[Role, TextForm] = {"question": form, "answer": form}
    tokenizer = SubwordTokenizer(backend, forms, characters=characters, source=tokenizer_path)
    encoder = StaticEncoder(vectors, rows, weights)
    ranker = Ranker(encoder, MeanPooling(encoder.size, StateOptions()))
    return Checkpoint(ranker, tokenizer, recipe_of(layout, "static", "mean", limit, limit))
