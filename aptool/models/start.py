"""Warm start: training from the weights of a model of aptool or of another library.

New words are added to the vocabulary of a model with word vectors. A checkpoint of another library keeps its
tokenizer, its head and its scores before the first step.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aptool.config import Recipe, apply_overrides, load_recipe, recipe_from_dict
from aptool.errors import AptoolError, InputError
from aptool.models.build import with_features
from aptool.models.checkpoints import checkpoint_fingerprint, read_checkpoint
from aptool.models.checkpoints.files import Checkpoint, Kind, Layout, kind_of, read_layout
from aptool.models.encoders import WordEncoder
from aptool.models.hub import ST_CONFIG, find_folder
from aptool.models.initialization import EncoderSpec, Initialization, TrainingTexts, init_embedding
from aptool.models.matching import MaxSimPooling
from aptool.models.model import LoadedModel, load_model, model_fingerprint, model_recipe
from aptool.models.pooling import Dense
from aptool.models.similarity import Cosine, Dot, Similarity
from aptool.models.transformer import TransformerEncoder, backbone_of
from aptool.text.tokenizer import UNK, WordTokenizer
from aptool.text.vectors import WordVectors, read_vectors

logger = logging.getLogger(__name__)

# Sections of a recipe that must be equal, except these options: of a model of aptool, and of a checkpoint.
_SYSTEM = ("encoder", "pooling", "similarity", "head")
_MAY_DIFFER = ("max_question_tokens", "max_answer_tokens", "min_count")
_TUNING = ("tune", "last", "checkpointing", "precision")

# The default preset of the training, by kind of checkpoint.
_PRESETS = {
    "sentence-transformers": "mean-minilm",
    "colbert": "maxsim-minilm",
}
_EXPECTED = "a sentence encoder or a ColBERT, to start from"

# Poolings of sentence-transformers that recipes have.
_POOLINGS = {"mean": "mean", "cls": "first"}

_EMBEDDING = "encoder.embedding.weight"


def training_recipe(preset: str | None, overrides: Sequence[str], start: str) -> Recipe:
    """Return the recipe of a training that starts from a model: a preset or file, or that of the model."""
    checkpoint = _find_checkpoint(start)
    if checkpoint is not None:
        return _checkpoint_recipe(checkpoint, preset, overrides).with_start(start)
    if preset is not None:
        return load_recipe(preset, overrides).with_start(start)
    before = model_recipe(start)
    table = {**apply_overrides(before.to_dict(), overrides), "preset": before.preset}
    return recipe_from_dict(table, where=before.preset).with_start(start)


def start_fingerprint(start: str) -> str:
    """Hash the files of the model to start from."""
    checkpoint = _find_checkpoint(start)
    return model_fingerprint(start) if checkpoint is None else checkpoint_fingerprint(checkpoint.folder)


def check_start(recipe: Recipe) -> None:
    """Raise unless a recipe describes the same system as the model to start from."""
    checkpoint = _find_checkpoint(recipe.start.model)
    if checkpoint is None:
        before = asdict(model_recipe(recipe.start.model))
        start = f"the model {recipe.start.model} to start from"
        _check_same(recipe, before, (*_SYSTEM, "text"), _MAY_DIFFER, start)
        return
    (_, required, _), start = _read_system(checkpoint), f"{checkpoint.folder} to start from"
    _check_same(recipe, required, _SYSTEM, _TUNING, start)
    for name, most in required["text"].items():
        value = getattr(recipe.text, name)
        if value > most:
            expected = f"at most {most}, as in {start}"
            raise InputError(recipe.preset, position=f"text.{name}", value=value, expected=expected)


def _check_same(
    recipe: Recipe, required: dict[str, Any], sections: Sequence[str], may_differ: Sequence[str], start: str
) -> None:
    """Raise unless sections of a recipe have the required entries, except entries that may differ."""
    now = asdict(recipe)
    for section in sections:
        for name in sorted(now[section].keys() | required[section].keys()):
            value, before = now[section].get(name), required[section].get(name)
            if value != before and name not in may_differ:
                expected = f"{before!r}, as in {start}"
                raise InputError(recipe.preset, position=f"{section}.{name}", value=value, expected=expected)


def initial_system(recipe: Recipe, texts: TrainingTexts) -> Initialization:
    """Return the system before training: the model to start from.

    New words get ids above the ids of the model. Their vectors come from the recipe's vector file, if any;
    otherwise they are random, because newly learned vectors would lie in another space.
    """
    checkpoint = _find_checkpoint(recipe.start.model)
    if checkpoint is not None:
        return _initial_checkpoint(checkpoint, recipe)
    model = load_model(recipe.start.model)
    if not isinstance(model.tokenizer, WordTokenizer):
        spec = model.ranker.encoder.spec
        load_weights = partial(_load, model=model, recipe=recipe)
        return Initialization(model.tokenizer, recipe, spec, load_weights)
    tokenizer, vectors = _extend_vocabulary(model, recipe, texts)
    spec = EncoderSpec(len(tokenizer), model.ranker.encoder.spec.dim)
    new = len(tokenizer) - len(model.tokenizer)
    logger.info(
        f"starting from {recipe.start.model}: {len(model.tokenizer)} words and {new} new ones, "
        f"{len(vectors.words) if vectors is not None else 0} of these with a vector"
    )
    load_weights = partial(_load, model=model, recipe=recipe, tokenizer=tokenizer, vectors=vectors)
    initial = Initialization(tokenizer, recipe, spec, load_weights)
    return with_features(initial, recipe, texts)


def _extend_vocabulary(
    model: LoadedModel, recipe: Recipe, texts: TrainingTexts
) -> tuple[WordTokenizer, WordVectors | None]:
    """Add the words of the texts to the model's tokenizer; return vectors of some new words too."""
    assert isinstance(model.tokenizer, WordTokenizer)
    options, words = recipe.text, model.tokenizer.words[UNK + 1 :]
    bigrams = options.words == "bigrams"
    learn = partial(WordTokenizer.learn, lowercase=options.lowercase, bigrams=bigrams)
    in_model = set(words)
    learned = learn(texts.train, min_count=options.min_count)
    new = [word for word in learned.words[UNK + 1 :] if word not in in_model]
    vectors = None
    if recipe.vectors.source not in ("learned", "random"):
        all_words = learn(texts.all_splits()).words[UNK + 1 :]
        new_words = dict.fromkeys([*new, *(word for word in all_words if word not in in_model)])
        new_vectors = _vectors(model, recipe, new_words)
        dim, size = model.ranker.encoder.spec.dim, new_vectors.matrix.shape[1]
        if new_vectors.words and size != dim:
            expected = f"{dim}, as in the model {recipe.start.model} to start from"
            raise InputError(recipe.vectors.source, position="dimension", value=size, expected=expected)
        new = list(dict.fromkeys([*new, *new_vectors.words]))
        vectors = new_vectors if new_vectors.words else None
    tokenizer = WordTokenizer.from_words([*words, *new], lowercase=options.lowercase, bigrams=bigrams)
    return tokenizer, vectors


def _vectors(model: LoadedModel, recipe: Recipe, words: Iterable[str]) -> WordVectors:
    """Read the recipe's vectors of some words; the vector file of an earlier training may be missing."""
    try:
        return read_vectors(recipe.vectors.source, words)
    except AptoolError as error:
        if recipe.vectors.source != model.recipe.vectors.source:
            raise
        raise AptoolError(
            f"{error}, with the vectors of the model {recipe.start.model} to start from; "
            f"--vectors names others, or random"
        ) from error


def _load(
    ranker: nn.Module,
    *,
    model: LoadedModel,
    recipe: Recipe,
    tokenizer: WordTokenizer | None = None,  # the words of the model, then new words
    vectors: WordVectors | None = None,  # of some new words
) -> int:
    """Set the weights of a ranker from a model; return the number of tokens with initial vectors."""
    weights = {
        name: weight
        for name, weight in model.ranker.state_dict().items()
        if not name.startswith("features.")  # these are statistics of the new training texts
    }
    initialized = len(model.tokenizer)
    for part in ranker.modules():
        if isinstance(part, WordEncoder):
            assert tokenizer is not None
            initialized += init_embedding(part.embedding, tokenizer, vectors, recipe.vectors)
            new = part.embedding.weight.detach()[len(model.tokenizer) :]
            weights[_EMBEDDING] = torch.cat([weights[_EMBEDDING], new])
    ranker.load_state_dict({**ranker.state_dict(), **weights})
    return initialized


def _find_checkpoint(start: str) -> Layout | None:
    """Return the files of a checkpoint of another library; None for a model of aptool."""
    folder = find_folder(start)
    if not isinstance(folder, Path):
        return None
    layout = read_layout(folder)
    model_type = layout.config.get("model_type")
    is_other = layout.modules is not None or bool(layout.st_config) or model_type not in (None, "aptool")
    return layout if is_other else None


def _checkpoint_recipe(layout: Layout, preset: str | None, overrides: Any) -> Recipe:
    """Return the recipe to train a checkpoint: its system, and the training of a preset."""
    _, sections, default_preset = _read_system(layout)
    table = load_recipe(preset if preset is not None else default_preset).to_dict()
    if preset is not None:
        for section in ("encoder", "pooling"):
            kind = sections[section]["type"]
            if table[section]["type"] != kind:
                expected = f"{kind}, as in {layout.folder} to start from"
                position, value = f"{section}.type", table[section]["type"]
                raise InputError(preset, position=position, value=value, expected=expected)
    elif sections["pooling"].get("reduce") == "sum":
        table["training"]["temperature"] = 1.0  # of a sum over tokens, not of a mean
    tuning = {name: table["encoder"][name] for name in _TUNING if name in table["encoder"]}
    table |= sections
    table["encoder"] = {**tuning, **table["encoder"]}
    return recipe_from_dict(apply_overrides(table, overrides), where=table["preset"])


def _initial_checkpoint(layout: Layout, recipe: Recipe) -> Initialization:
    """Return the system of a checkpoint before training."""
    (ranker, tokenizer, _), _, _ = _read_system(layout)
    assert isinstance(ranker.encoder, TransformerEncoder)
    network, pair = ranker.encoder.backbone.network, tokenizer.special_tokens()
    layer = ranker.encoder.backbone.layer
    backbone = backbone_of(network, tokenizer, pair, forms=tokenizer.saved_forms(), layer=layer)
    spec = EncoderSpec(len(tokenizer), ranker.encoder.size, backbone)

    def load_weights(target: nn.Module) -> int:
        target.load_state_dict({**target.state_dict(), **ranker.state_dict()})
        return len(tokenizer)

    return Initialization(tokenizer, recipe, spec, load_weights)


def _read_system(layout: Layout) -> tuple[Checkpoint, dict[str, Any], str]:
    """Read a checkpoint, and return it with the sections of its recipe and the preset of the others."""
    kind: Kind = kind_of(layout)
    if kind not in _PRESETS:
        raise InputError(layout.folder, problem=f"a model of kind {kind}", expected=_EXPECTED)
    # Imported here, because other trainings do not need it.
    from aptool.models.checkpoints.sentence import Normalize, SentencePooling

    preset, checkpoint = _PRESETS[kind], read_checkpoint(layout, kind)
    pooling: Any = checkpoint.ranker.pooling
    similarity = "cosine"
    text = asdict(checkpoint.recipe.text)
    limits = {name: text[name] for name in ("max_question_tokens", "max_answer_tokens")}
    encoder = {"type": checkpoint.recipe.encoder["type"], "name": str(layout.transformer)}
    table: dict[str, Any]
    if isinstance(pooling, MaxSimPooling):
        table = {"type": "maxsim", "reduce": "sum" if pooling.sums else "mean"}
    else:
        assert isinstance(pooling, SentencePooling)
        layers = [layer for layer in pooling.layers if not isinstance(layer, Normalize)]
        is_unit = len(layers) < len(pooling.layers)
        modes = "+".join(pooling.modes)
        names: dict[type[Similarity], str] = {Cosine: "cosine", Dot: "cosine" if is_unit else "dot"}
        if modes not in _POOLINGS or layers or type(pooling.similarity) not in names:
            problem = f"pooling {modes}, {len(layers)} layers, {type(pooling.similarity).__name__}"
            expected = "mean or cls, without Dense and LayerNorm, by cosine or inner product"
            raise InputError(layout.folder, problem=problem, expected=expected)
        if pooling.dim is not None:
            expected = "all values of an embedding: remove it and train all"
            where = layout.folder / ST_CONFIG
            raise InputError(where, position="truncate_dim", value=pooling.dim, expected=expected)
        similarity = names[type(pooling.similarity)]
        table = {"type": _POOLINGS[modes]}
    dim = _projected(layout, checkpoint.ranker.projection)
    if dim:
        table["dim"] = dim
    sections = {
        "encoder": encoder,
        "pooling": table,
        "similarity": {"type": similarity},
        "head": {"type": "none"},
        "text": {**load_recipe(preset).to_dict()["text"], **limits},
    }
    return checkpoint, sections, preset


def _projected(layout: Layout, projection: nn.Module | None) -> int:
    """Return the features after the projection of states; 0 without one."""
    if projection is None:
        return 0
    if (
        not isinstance(projection, Dense)
        or projection.linear.bias is not None
        or projection.activation != "identity"
        or projection.adds_input
    ):
        expected = "one Dense layer without bias and activation"
        raise InputError(layout.folder, problem="another projection of the states", expected=expected)
    return projection.outputs
