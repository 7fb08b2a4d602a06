"""Warm start: training from the weights of a model.

New words are added to the vocabulary of a model with word vectors.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial

import torch
from torch import nn

from aptool.config import Overrides, Recipe, apply_overrides, load_recipe, parse_overrides, recipe_from_dict
from aptool.errors import AptoolError, InputError
from aptool.models.build import with_features
from aptool.models.encoders import WordEncoder
from aptool.models.hub import find_folder, is_trained
from aptool.models.initialization import EncoderSpec, Initialization, TrainingTexts, init_embedding
from aptool.models.model import LoadedModel, load_model, model_recipe
from aptool.text.tokenizer import UNK, WordTokenizer
from aptool.text.vectors import WordVectors, read_vectors

logger = logging.getLogger(__name__)

# Sections of a recipe that must be equal, except these options.
_SYSTEM = ("encoder", "pooling", "similarity", "head", "text")
_MAY_DIFFER = ("max_question_tokens", "max_answer_tokens", "min_count")

# The default preset of a training that starts from a sentence encoder of another library.
_PRESET = "mean-minilm"

_EMBEDDING = "encoder.embedding.weight"


def training_recipe(preset: str | None, overrides: Overrides, start: str) -> Recipe:
    """Return the recipe of a training that starts from a model: a preset or file, or that of the model.

    From a sentence encoder of another library, it trains the network, by default as ``mean-minilm``.
    """
    folder = find_folder(start)
    if not is_trained(folder):
        return load_recipe(preset or _PRESET, {"encoder.name": str(folder), **parse_overrides(overrides)})
    if preset is not None:
        return load_recipe(preset, overrides).with_start(start)
    before = model_recipe(start)
    table = {**apply_overrides(before.to_dict(), overrides), "preset": before.preset}
    return recipe_from_dict(table, where=before.preset).with_start(start)


def check_start(recipe: Recipe) -> None:
    """Raise unless a recipe describes the same system as the model to start from."""
    now, before = asdict(recipe), asdict(model_recipe(recipe.start.model))
    for section in _SYSTEM:
        for name in sorted(now[section].keys() | before[section].keys()):
            value, required = now[section].get(name), before[section].get(name)
            if value != required and name not in _MAY_DIFFER:
                expected = f"{required!r}, as in the model {recipe.start.model} to start from"
                raise InputError(recipe.preset, position=f"{section}.{name}", value=value, expected=expected)


def initial_system(recipe: Recipe, texts: TrainingTexts) -> Initialization:
    """Return the system before training: the model to start from.

    New words get ids above the ids of the model. Their vectors come from the recipe's vector file, if any;
    otherwise they are random, because newly learned vectors would lie in another space.
    """
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
