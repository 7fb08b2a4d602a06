"""A system before training: its vocabulary, word vectors and weights, new or those of a model.

Word vectors are random, learned from the training texts by skip-gram, or read from a file. An encoder over a
pretrained network has its tokenizer and weights. A warm start (``start.model`` of a recipe) begins with the
weights of a model with word vectors, whose vocabulary gets the new words, or of one over a network.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from aptool.config import (
    Overrides,
    Recipe,
    VectorOptions,
    apply_overrides,
    load_recipe,
    parse_overrides,
    recipe_from_dict,
)
from aptool.environment import __version__
from aptool.errors import InputError
from aptool.files import local_copy
from aptool.models.build import Ranker, build_ranker, component
from aptool.models.encoders import Encoder, WordEncoder
from aptool.models.hub import find_folder, is_trained
from aptool.models.model import LoadedModel, load_model, model_recipe, read_tensors, write_tensors
from aptool.outputs import output_file
from aptool.paths import Location
from aptool.text.tokenizer import PAD, UNK, TextTokenizer, Tokens, WordTokenizer
from aptool.text.vectors import WordVectors, read_vectors

logger = logging.getLogger(__name__)

_MATRIX = "vectors"  # name of the tensor of learned vectors

# Sections of a recipe that must be equal, except these options.
_SYSTEM = ("encoder", "pooling", "similarity", "head", "text")
_MAY_DIFFER = ("max_question_tokens", "max_answer_tokens", "min_count")

# The default preset of a training that starts from a sentence encoder of another library.
_PRESET = "mean-minilm"

_EMBEDDING = "encoder.embedding.weight"


class TrainingTexts(NamedTuple):
    """Texts for the initialization of a system."""

    train: list[str]  # distinct texts of the training split
    all_splits: Callable[[], Iterator[str]]  # yields the texts of all splits
    seed: int
    cache: Location | None = None  # folder of learned vectors


class NewSystem(NamedTuple):
    """A system before training."""

    ranker: Ranker
    tokenizer: TextTokenizer
    recipe: Recipe  # its ``vectors.dim`` is the dimension of the vectors that were read
    initialized: int  # number of tokens with initial vectors


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


def initialize(recipe: Recipe, texts: TrainingTexts) -> NewSystem:
    """Build a system with its initial weights; the pair features learn the words of the training texts."""
    encoder_class, options = component(recipe, "encoder")
    if recipe.start.model:
        system = _from_model(recipe, texts)
    elif issubclass(encoder_class, WordEncoder):
        tokenizer, vectors, recipe = make_vocabulary(recipe, texts)
        ranker = build_ranker(recipe, len(tokenizer), recipe.vectors.dim)
        initialized = _init_embedding(ranker.encoder, tokenizer, vectors, recipe.vectors)
        system = NewSystem(ranker, tokenizer, recipe, initialized)
    else:
        tokenizer, spec, weights = encoder_class.pretrained(recipe, options)
        ranker = build_ranker(recipe, *spec)
        ranker.encoder.load_state_dict(weights)
        system = NewSystem(ranker, tokenizer, recipe, len(tokenizer))
    if system.ranker.features is not None:
        assert isinstance(system.tokenizer, WordTokenizer)
        system.tokenizer.identify_words = True
        system.ranker.features.learn(system.tokenizer, texts.train)
    return system


def make_vocabulary(recipe: Recipe, texts: TrainingTexts) -> tuple[WordTokenizer, WordVectors | None, Recipe]:
    """Return the tokenizer, the word vectors if any, and the recipe with the dimension of the vectors.

    With vectors from a file, words of the other splits that have a vector get an id too.
    """
    options = recipe.text
    learn = partial(WordTokenizer.learn, lowercase=options.lowercase)
    tokenizer = learn(texts.train, min_count=options.min_count)
    source = recipe.vectors.source
    if source == "random":
        return tokenizer, None, recipe
    if source == "learned":
        tokens = tokenizer.encode(texts.train)
        return tokenizer, learned_vectors(tokenizer, tokens, recipe.vectors, texts.seed, texts.cache), recipe
    all_words = learn(texts.all_splits()).words[UNK + 1 :]
    vectors = read_vectors(source, dict.fromkeys([*tokenizer.words[UNK + 1 :], *all_words]))
    if not vectors.words:
        expected = "vectors of its language, and with text.lowercase=false if they are of cased words"
        raise InputError(source, problem="no vector for any word of the collection", expected=expected)
    tokenizer = learn(texts.train, min_count=options.min_count, also=vectors.words)
    counts = tokenizer.encode(texts.train).counts(len(tokenizer))
    with_vector = set(vectors.words)
    has_vector = np.array([word in with_vector for word in tokenizer.words])
    logger.info(
        f"vectors for {has_vector[counts > 0].mean():.1%} of the distinct words of the training texts "
        f"({counts[has_vector].sum() / counts.sum():.1%} of their occurrences)"
    )
    dim = int(vectors.matrix.shape[1])
    return tokenizer, vectors, replace(recipe, vectors=replace(recipe.vectors, dim=dim))


def _init_embedding(
    encoder: Encoder, tokenizer: WordTokenizer, vectors: WordVectors | None, options: VectorOptions
) -> int:
    """Initialize word embeddings (V, d); return the number of words with a vector.

    Words without a vector are initialized uniformly in [-unknown, unknown], PAD with zeros.
    """
    assert isinstance(encoder, WordEncoder)
    weight = encoder.embedding.weight
    weight.requires_grad_(options.fine_tune)
    with_vector = 0
    with torch.no_grad():
        weight.uniform_(-options.unknown, options.unknown)
        if vectors is not None:
            ids = {word: index for index, word in enumerate(tokenizer.words)}
            rows = np.array([ids.get(word, PAD) for word in vectors.words], dtype=np.int64)
            weight[torch.from_numpy(rows)] = torch.from_numpy(vectors.matrix)
            with_vector = int((rows != PAD).sum())
        weight[PAD] = 0
    return with_vector


def learned_vectors(
    tokenizer: WordTokenizer, tokens: Tokens, options: VectorOptions, seed: int, cache: Location | None = None
) -> WordVectors:
    """Learn skip-gram vectors of a vocabulary from texts, or read them from the cache folder."""
    from aptool.text.skipgram import learn_vectors

    inputs = [options.dim, options.window, options.epochs, seed, __version__, tokenizer.words]
    digest = hashlib.sha256(json.dumps(inputs).encode() + tokens.ids.tobytes() + tokens.offsets.tobytes())
    cached = cache / f"learned-{digest.hexdigest()[:16]}.safetensors" if cache is not None else None
    words = slice(UNK + 1, None)  # PAD and UNK are not words
    if cached is not None and cached.is_file():
        with local_copy(cached) as local:
            matrix = read_tensors(local)[0][_MATRIX].numpy()
        return WordVectors(tokenizer.words[words], matrix[words], "learned")
    logger.info(f"learning {options.dim}-dimensional word vectors from {len(tokens.ids)} tokens")
    matrix = learn_vectors(
        tokens.ids,
        tokens.offsets,
        tokens.counts(len(tokenizer)),
        dim=options.dim,
        window=options.window,
        epochs=options.epochs,
        seed=seed,
    )
    if cached is not None:
        with output_file(cached) as temporary:
            write_tensors(temporary, {_MATRIX: torch.from_numpy(matrix)}, {})
    return WordVectors(tokenizer.words[words], matrix[words], "learned")


def _from_model(recipe: Recipe, texts: TrainingTexts) -> NewSystem:
    """Build a system with the weights of the model to start from.

    New words get ids above the ids of the model. Their vectors come from the recipe's vector file, if any;
    otherwise they are random, because newly learned vectors would lie in another space.
    """
    model = load_model(recipe.start.model)
    spec, known = model.ranker.encoder.spec, len(model.tokenizer)
    if not isinstance(model.tokenizer, WordTokenizer):
        ranker = build_ranker(recipe, *spec)
        ranker.load_state_dict(model.ranker.state_dict())
        return NewSystem(ranker, model.tokenizer, recipe, known)
    tokenizer, vectors = _extend_vocabulary(model, recipe, texts)
    logger.info(
        f"starting from {recipe.start.model}: {known} words and {len(tokenizer) - known} new ones, "
        f"{len(vectors.words) if vectors is not None else 0} of these with a vector"
    )
    ranker = build_ranker(recipe, len(tokenizer), spec.dim)
    initialized = _init_embedding(ranker.encoder, tokenizer, vectors, recipe.vectors)
    weights = {
        name: weight
        for name, weight in model.ranker.state_dict().items()
        if not name.startswith("features.")  # these are statistics of the new training texts
    }
    own = ranker.state_dict()
    weights[_EMBEDDING] = torch.cat([weights[_EMBEDDING], own[_EMBEDDING][known:]])
    ranker.load_state_dict({**own, **weights})
    return NewSystem(ranker, tokenizer, recipe, known + initialized)


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
