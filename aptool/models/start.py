"""Warm start: training from the weights of a model.

New words are added to the vocabulary of a model with word vectors.
"""

import logging
from dataclasses import asdict
from functools import partial

import torch

from aptool.config import Overrides, Recipe, apply_overrides, load_recipe, parse_overrides, recipe_from_dict
from aptool.errors import InputError
from aptool.models.build import NewSystem, build_ranker, new_system
from aptool.models.encoders import WordEncoder
from aptool.models.hub import find_folder, is_trained
from aptool.models.initialization import TrainingTexts, init_embedding
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


def initial_system(recipe: Recipe, texts: TrainingTexts) -> NewSystem:
    """Build the system before training, with the weights of the model to start from.

    New words get ids above the ids of the model. Their vectors come from the recipe's vector file, if any;
    otherwise they are random, because newly learned vectors would lie in another space.
    """
    model = load_model(recipe.start.model)
    spec, known = model.ranker.encoder.spec, len(model.tokenizer)
    if not isinstance(model.tokenizer, WordTokenizer):
        ranker = build_ranker(recipe, *spec)
        ranker.load_state_dict(model.ranker.state_dict())
        return new_system(ranker, model.tokenizer, recipe, known, texts)
    tokenizer, vectors = _extend_vocabulary(model, recipe, texts)
    logger.info(
        f"starting from {recipe.start.model}: {known} words and {len(tokenizer) - known} new ones, "
        f"{len(vectors.words) if vectors is not None else 0} of these with a vector"
    )
    ranker = build_ranker(recipe, len(tokenizer), spec.dim)
    assert isinstance(ranker.encoder, WordEncoder)
    initialized = init_embedding(ranker.encoder.embedding, tokenizer, vectors, recipe.vectors)
    weights = {
        name: weight
        for name, weight in model.ranker.state_dict().items()
        if not name.startswith("features.")  # these are statistics of the new training texts
    }
    new = ranker.encoder.embedding.weight.detach()[known:]
    weights[_EMBEDDING] = torch.cat([weights[_EMBEDDING], new])
    ranker.load_state_dict({**ranker.state_dict(), **weights})
    return new_system(ranker, tokenizer, recipe, known + initialized, texts)


def _extend_vocabulary(
    model: LoadedModel, recipe: Recipe, texts: TrainingTexts
) -> tuple[WordTokenizer, WordVectors | None]:
    """Add the words of the texts to the model's tokenizer; return vectors of some new words too."""
    assert isinstance(model.tokenizer, WordTokenizer)
    options, words = recipe.text, model.tokenizer.words[UNK + 1 :]
    learn = partial(WordTokenizer.learn, lowercase=options.lowercase)
    in_model = set(words)
    learned = learn(texts.train, min_count=options.min_count)
    new = [word for word in learned.words[UNK + 1 :] if word not in in_model]
    vectors = None
    if recipe.vectors.source not in ("learned", "random"):
        all_words = learn(texts.all_splits()).words[UNK + 1 :]
        new_words = dict.fromkeys([*new, *(word for word in all_words if word not in in_model)])
        new_vectors = read_vectors(recipe.vectors.source, new_words)
        dim, size = model.ranker.encoder.spec.dim, new_vectors.matrix.shape[1]
        if new_vectors.words and size != dim:
            expected = f"{dim}, as in the model {recipe.start.model} to start from"
            raise InputError(recipe.vectors.source, position="dimension", value=size, expected=expected)
        new = list(dict.fromkeys([*new, *new_vectors.words]))
        vectors = new_vectors if new_vectors.words else None
    tokenizer = WordTokenizer.from_words([*words, *new], lowercase=options.lowercase)
    return tokenizer, vectors
