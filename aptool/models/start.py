"""Training that starts from a trained model: its weights, and its vocabulary grown by the new words."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from aptool.config import Recipe, apply_overrides, load_recipe, recipe_from_dict
from aptool.errors import AptoolError, InputError
from aptool.models.build import initialize, with_features
from aptool.models.encoders import WordEncoder
from aptool.models.initialization import Corpus, EncoderSpec, Initialization
from aptool.models.model import LoadedModel, load_model, model_fingerprint, model_recipe
from aptool.text.tokenizer import UNK, WordTokenizer
from aptool.text.vectors import WordVectors, read_vectors

logger = logging.getLogger(__name__)

# Sections of a recipe that decide which weights there are, and what token ids mean.
_SAME = ("encoder", "pooling", "similarity", "head", "text")
# Limits of length may differ.
_MAY_DIFFER = ("max_question_tokens", "max_answer_tokens", "min_count")

# The preset that is trained where none is named.
DEFAULT_PRESET = "ap-cnn"

_EMBEDDING = "encoder.embedding.weight"


def training_recipe(preset: str | None, overrides: Sequence[str] = (), start: str | None = None) -> Recipe:
    """The recipe of a training.

    Args:
        preset: a preset or a recipe file; None is that of the model to start from, or ``DEFAULT_PRESET``.
        overrides: ``section.key=value`` each.
        start: the model to start from, if any.
    """
    if start is None:
        return load_recipe(preset if preset is not None else DEFAULT_PRESET, overrides)
    if preset is not None:
        return load_recipe(preset, overrides).with_start(start)
    before = model_recipe(start)
    # What that model was trained on is not trained on again: its other collections, and its teacher's scores,
    # which are of its own questions.
    learned = before.to_dict()
    again = {**learned, "mixture": {}, "teacher": {**learned["teacher"], "run": ""}}
    table = {**apply_overrides(again, overrides), "preset": before.preset}
    return recipe_from_dict(table, where=before.preset).with_start(start)


def check_start(recipe: Recipe) -> None:
    """Checks that a recipe describes the system of the model that it starts from, if it starts from one."""
    if not recipe.start.model:
        return
    before = model_recipe(recipe.start.model)
    for section in _SAME:
        now, then = (_comparable(getattr(one, section)) for one in (recipe, before))
        for name in sorted(now.keys() | then.keys()):
            if now.get(name) != then.get(name) and name not in _MAY_DIFFER:
                wanted = f"{then.get(name)!r}, as in the model {recipe.start.model} to start from"
                raise InputError(
                    recipe.preset, place=f"{section}.{name}", value=now.get(name), expected=wanted
                )


def start_fingerprint(recipe: Recipe) -> str | None:
    """The fingerprint of the model that a recipe starts from; None if it starts anew."""
    return model_fingerprint(recipe.start.model) if recipe.start.model else None


def initial_system(recipe: Recipe, corpus: Corpus) -> Initialization:
    """The system before training: that of the model that the recipe starts from, or a fresh one.

    Words that the model does not know get ids above its own. They start from the recipe's vector file if it
    names one with vectors of the same dimension, else at random: vectors learned from other texts would lie
    in a space of their own.
    """
    if not recipe.start.model:
        return initialize(recipe, corpus)
    check_start(recipe)
    model = load_model(recipe.start.model)
    if not isinstance(model.tokenizer, WordTokenizer):
        spec = model.ranker.encoder.spec
        return Initialization(
            model.tokenizer, recipe, spec, lambda ranker: _load(ranker, model, None, recipe)
        )
    tokenizer, vectors = _grown(model, recipe, corpus)
    spec = EncoderSpec(len(tokenizer), model.ranker.encoder.spec.dim)
    new = len(tokenizer) - len(model.tokenizer)
    logger.info(
        f"starting from {recipe.start.model}: {len(model.tokenizer)} words and {new} new ones, "
        f"{len(vectors.words) if vectors is not None else 0} of these with a vector"
    )
    load_weights = partial(_load, model=model, grown=(tokenizer, vectors), recipe=recipe)
    initial = Initialization(tokenizer, recipe, spec, load_weights)
    return with_features(initial, recipe, corpus)


def _comparable(section: Any) -> dict[str, Any]:
    return dict(section) if isinstance(section, dict) else asdict(section)


def _grown(model: LoadedModel, recipe: Recipe, corpus: Corpus) -> tuple[WordTokenizer, WordVectors | None]:
    """The model's tokenizer with the corpus's words added, and vectors of some of these."""
    assert isinstance(model.tokenizer, WordTokenizer)
    options, words = recipe.text, model.tokenizer.words[UNK + 1 :]
    known = set(words)
    learn = WordTokenizer.learn(corpus.texts, lowercase=options.lowercase, min_count=options.min_count)
    new = [word for word in learn.words[UNK + 1 :] if word not in known]
    vectors = None
    if recipe.vectors.source not in ("learned", "random"):
        every = WordTokenizer.learn(corpus.all_texts(), lowercase=options.lowercase).words[UNK + 1 :]
        wanted = dict.fromkeys([*new, *(word for word in every if word not in known)])
        vectors = _vectors(model, recipe, wanted)
        dim = model.ranker.encoder.spec.dim
        if vectors.words and vectors.matrix.shape[1] != dim:
            expected = f"{dim}, as in the model {recipe.start.model} to start from"
            raise InputError(
                recipe.vectors.source, place="dimension", value=vectors.matrix.shape[1], expected=expected
            )
        new = list(dict.fromkeys([*new, *vectors.words]))
    return WordTokenizer.from_words([*words, *new], lowercase=options.lowercase), vectors


def _vectors(model: LoadedModel, recipe: Recipe, wanted: Iterable[str]) -> WordVectors:
    """The recipe's vectors of some words; those of the start model may stand on another machine only."""
    try:
        return read_vectors(recipe.vectors.source, wanted)
    except AptoolError as error:
        if recipe.vectors.source != model.recipe.vectors.source:
            raise
        raise AptoolError(
            f"{error}, with the vectors of the model {recipe.start.model} to start from; "
            f"--vectors names others, or random"
        ) from error


def _load(
    ranker: nn.Module,
    model: LoadedModel,
    grown: tuple[WordTokenizer, WordVectors | None] | None,
    recipe: Recipe,
) -> int:
    """Sets the weights; returns how many tokens did not start at random."""
    weights: dict[str, Tensor] = {
        name: weight
        for name, weight in model.ranker.state_dict().items()
        if not name.startswith("features.")  # statistics of the texts that are trained on now
    }
    known = len(model.tokenizer)
    if grown is not None:
        tokenizer, vectors = grown
        options = recipe.vectors
        before = weights[_EMBEDDING]
        embedding = torch.empty(len(tokenizer), before.shape[1]).uniform_(-options.unknown, options.unknown)
        embedding[: len(before)] = before
        if vectors is not None and vectors.words:
            ids = {word: index for index, word in enumerate(tokenizer.words)}
            rows = torch.tensor([ids[word] for word in vectors.words])
            embedding[rows] = torch.from_numpy(vectors.matrix)
            known += len(rows)
        weights[_EMBEDDING] = embedding
        for part in ranker.modules():
            if isinstance(part, WordEncoder):
                part.embedding.weight.requires_grad_(options.fine_tune)
    own = ranker.state_dict()
    ranker.load_state_dict({**own, **weights})
    return known
