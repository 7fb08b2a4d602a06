"""Sentence encoders of sentence-transformers: a network, a pooling, Dense layers and a similarity.

The score is ``model.similarity(model.encode_query(question), model.encode_document(answer))``.

Static embeddings, those of model2vec and ``StaticEmbedding``, have no network: a token has the same vector in
all texts, and the vector of a text is the mean over its tokens, after further modules.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.documents import read_json
from aptool.errors import InputError
from aptool.models.checkpoints.files import (
    EXPECTED,
    Checkpoint,
    Layout,
    Module,
    architecture,
    check_features,
    load_weights,
    optional_object,
    positive_integer,
    projection_of,
    read_dense,
    read_tensor,
    recipe_of,
    shapes,
)
from aptool.models.checkpoints.keys import UnsupportedError, check_keys
from aptool.models.checkpoints.network import OpenedEncoder, open_encoder
from aptool.models.encoders import Encoder
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG, WEIGHTS
from aptool.models.initialization import EncoderSpec
from aptool.models.pooling import Dense, IndependentPooling, StateOptions, segment_max, segment_mean
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.models.similarity import Cosine, Dot, Similarity, distances
from aptool.text.subwords import TOKEN_ID, Presentation, SubwordTokenizer, TextForm
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

# Name of the prompt of each role.
_PROMPTS: dict[Role, str] = {"question": "query", "answer": "document"}

# Maximum length of texts by default: of model2vec, and of StaticEmbedding, which has no limit.
_MAX_TOKENS, _UNLIMITED = 512, 1 << 20


class SentencePooling(IndependentPooling):
    """r = the embedding of sentence-transformers: the pooled states after further layers."""

    def __init__(
        self, modes: list[str], layers: list[nn.Module], similarity: Similarity, dim: int | None = None
    ) -> None:
        """Pool the states by modes; an embedding has the first ``dim`` values after the layers."""
        super().__init__(0, StateOptions())
        self.modes = modes
        self.layers = nn.Sequential(*layers)
        self.similarity = similarity
        self.dim = dim

    @override
    def represent(self, states: Ragged) -> Tensor:
        embeddings: Tensor = self.layers(torch.cat([pool(states, mode) for mode in self.modes], 1))
        return embeddings if self.dim is None else embeddings[:, : self.dim].contiguous()


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
    """Read a sentence encoder; without modules, it has the pooling of sentence-transformers."""
    check_keys(layout.folder / ST_CONFIG, f"{ST_CONFIG} of sentence-transformers", layout.st_config)
    opened = open_encoder(layout, "sentence-transformers")
    if layout.modules is None and opened.hf_tokenizer.chat_template:
        expected = "modules: sentence-transformers renders every text with the chat template"
        raise UnsupportedError(layout.folder, problem="a chat template", expected=expected)
    modules, size = (layout.modules or [])[1:], opened.encoder.size
    before: list[Dense] = []
    while modules and modules[0].kind == "Dense":
        before.append(read_dense(modules.pop(0), size, "token_embeddings"))
        size = before[-1].outputs
    if layout.modules is None:
        modes, pools_prompt = [_bare_pooling(layout, opened)], True
    elif modules and modules[0].kind == "Pooling":
        modes, pools_prompt = _read_pooling(modules.pop(0), size)
    else:
        problem = f"{modules[0].kind} comes first" if modules else "no module Pooling"
        raise UnsupportedError(layout.folder / MODULES, problem=problem, expected="Pooling after the network")
    layers = read_layers(modules, size * len(modes))
    forms = _forms(layout, opened, pools_prompt)
    limits = opened.limit("query_length"), opened.limit("document_length")
    if not pools_prompt and forms:
        presentation, shortest = opened.tokenizer.presentation, min(limits)
        problem = ""
        if "weightedmean" in modes:  # the weights of tokens would depend on the length of the prompt
            problem = "weightedmean of texts without their prompts"
        elif presentation.truncates_left or any(form.prompt_tokens >= shortest for form in forms.values()):
            problem = "truncation of prompts that are not pooled"
        if problem:
            raise UnsupportedError(layout.folder, problem=problem, expected="another mode, or include_prompt")
    pooling = SentencePooling(modes, layers, read_similarity(layout), read_dim(layout))
    ranker = Ranker(opened.encoder, pooling, projection=projection_of(before))
    recipe = recipe_of(layout, "transformer", "+".join(modes), *limits)
    return Checkpoint(ranker, opened.tokenizer_with(forms), recipe)


def _bare_pooling(layout: Layout, opened: OpenedEncoder) -> str:
    """Return the mode of a network without modules."""
    is_causal = getattr(opened.encoder.backbone.network.config, "is_causal", True)
    return "lasttoken" if architecture(layout).endswith("ForCausalLM") and is_causal else "mean"


def read_layers(modules: list[Module], size: int) -> list[nn.Module]:
    """Read the modules after the pooling."""
    layers: list[nn.Module] = []
    for module in modules:
        if module.kind == "Dense":
            dense = read_dense(module, size)
            layers.append(dense)
            size = dense.outputs
        elif module.kind == "LayerNorm":
            layers.append(_read_norm(module, size))
        elif module.kind == "Normalize":
            check_features(module, "sentence_embedding", "sentence_embedding")
            layers.append(Normalize())
        elif module.kind != "Dropout":
            problem = f"{module.kind} after Pooling"
            raise UnsupportedError(module.folder, problem=problem, expected="Dense or Normalize")
    return layers


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
    dimension = module.config.get("dimension")
    if dimension != size:
        expected = f"{size}, the features of its input"
        raise InputError(module.folder / CONFIG, position="dimension", value=dimension, expected=expected)
    norm = nn.ModuleDict({"norm": nn.LayerNorm(size)})
    load_weights(norm, module.folder / WEIGHTS)
    return norm["norm"]


def read_similarity(layout: Layout) -> Similarity:
    """Return the similarity of embeddings, by default the cosine."""
    name = layout.st_config.get("similarity_fn_name") or "cosine"
    if not isinstance(name, str) or name not in _SIMILARITIES:
        expected = f"one of {', '.join(_SIMILARITIES)}"
        raise InputError(
            layout.folder / ST_CONFIG, position="similarity_fn_name", value=name, expected=expected
        )
    return _SIMILARITIES[name](0, None)


def read_dim(layout: Layout) -> int | None:
    """Return the number of values of an embedding that count; None for all of them."""
    return positive_integer(layout.folder / ST_CONFIG, layout.st_config, "truncate_dim", 0) or None


def read_prompts(layout: Layout) -> dict[Role, str]:
    """Return the prompt of each role; empty without a prompt."""
    path, prompts = layout.folder / ST_CONFIG, layout.st_config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        text is None or isinstance(text, str) for text in prompts.values()
    ):
        expected = "the text of each prompt by its name"
        raise InputError(path, position="prompts", value=prompts, expected=expected)
    name = layout.st_config.get("default_prompt_name")
    if name is not None and name not in (*prompts, *_PROMPTS.values()):
        expected = f"one of {', '.join(prompts)}" if prompts else "a prompt"
        raise InputError(path, position="default_prompt_name", value=name, expected=expected)
    other = next((name for name in ("passage", "corpus") if prompts.get(name)), None)
    if other and "document" not in prompts:
        expected = "the name document: sentence-transformers 6.2 gives documents no other prompt"
        raise InputError(path, position=f"prompts/{other}", value=prompts[other], expected=expected)
    return {role: prompts.get(name) or "" for role, name in _PROMPTS.items()}


def _forms(layout: Layout, opened: OpenedEncoder, pools_prompt: bool) -> dict[Role, TextForm]:
    """Return the forms of the roles that have a prompt."""
    forms = {}
    for role, prompt in read_prompts(layout).items():
        if not prompt:
            continue
        ids = opened.tokenizer.encode([prompt]).ids.tolist()
        unpooled = 0 if pools_prompt else len(ids) - (ids[-1] in opened.hf_tokenizer.all_special_ids)
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
