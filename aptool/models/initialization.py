"""Initialization of systems over word embeddings: vocabulary and word vectors.

Word vectors are random, learned from the training texts by skip-gram, or read from a file. Encoders over a
pretrained network load its tokenizer and weights instead (``pretrained.py``).
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from aptool.config import Recipe, VectorOptions
from aptool.environment import __version__
from aptool.errors import InputError
from aptool.files import local_copy
from aptool.models.tensor_file import read_tensors, write_tensors
from aptool.outputs import output_file
from aptool.paths import Location
from aptool.text.tokenizer import PAD, UNK, TextTokenizer, Tokens, WordTokenizer

if TYPE_CHECKING:
    from aptool.text.vectors import WordVectors

logger = logging.getLogger(__name__)

_MATRIX = "vectors"  # name of the tensor of learned vectors


class EncoderSpec(NamedTuple):
    """Sizes and network of an encoder, as in ``config.json`` of a model."""

    vocabulary_size: int
    dim: int  # d, dimension of the word embeddings, or of a pretrained network's states
    network: dict[str, Any] | None = None  # configuration of a pretrained network, as in ``transformers``


class TrainingTexts(NamedTuple):
    """Texts for the initialization of a system."""

    train: list[str]  # distinct texts of the training split
    all_splits: Callable[[], Iterator[str]]  # yields the texts of all splits
    seed: int
    cache: Location | None = None  # folder of learned vectors


class Prepared(NamedTuple):
    """What a new system is built from."""

    tokenizer: TextTokenizer
    recipe: Recipe  # its ``vectors.dim`` is the dimension of the vectors that were read
    spec: EncoderSpec
    source: Any  # of the initial weights, for ``Encoder.load``


def make_vocabulary(
    recipe: Recipe, texts: TrainingTexts
) -> tuple[WordTokenizer, "WordVectors | None", Recipe]:
    """Return the tokenizer, the word vectors if any, and the recipe with the dimension of the vectors.

    With vectors from a file, words of the other splits that have a vector get an id too.
    """
    from aptool.text.vectors import read_vectors

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


def init_embedding(
    embedding: nn.Embedding, tokenizer: WordTokenizer, vectors: "WordVectors | None", options: VectorOptions
) -> int:
    """Initialize word embeddings (V, d); return the number of words with a vector.

    Words without a vector are initialized uniformly in [-unknown, unknown], PAD with zeros.
    """
    weight = embedding.weight
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
) -> "WordVectors":
    """Learn skip-gram vectors of a vocabulary from texts, or read them from the cache folder."""
    from aptool.text.skipgram import learn_vectors
    from aptool.text.vectors import WordVectors

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
