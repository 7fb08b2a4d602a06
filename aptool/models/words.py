"""Encoders over words: the words that they know, and the vectors that these start from."""

import hashlib
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from aptool import __version__
from aptool.config import Recipe, VectorOptions
from aptool.errors import InputError
from aptool.models.encoder import Corpus, Encoder, Initialization, Shape
from aptool.text.skipgram import learn_vectors
from aptool.text.tokenizer import PAD, UNK, Tokens, WordTokenizer
from aptool.text.vectors import WordVectors, coverage, read_vectors, write_vectors

logger = logging.getLogger(__name__)


class WordEncoder(Encoder):
    """An encoder over word embeddings W0, shared by questions and answers; PAD is the zero vector."""

    Tokenizer = WordTokenizer

    def __init__(self, words: int, dim: int) -> None:
        super().__init__()
        self.shape = Shape(words, dim)
        self.embedding = nn.Embedding(words, dim, padding_idx=PAD, sparse=True)

    @classmethod
    def built(cls, shape: Shape, options: Any) -> Self:
        """See ``Encoder.built``."""
        return cls(shape.words, shape.dim, options)  # type: ignore[call-arg]  # those of the encoders proper

    @classmethod
    def source(cls, recipe: Recipe) -> str:
        """See ``Encoder.source``: the vectors."""
        return recipe.vectors.source

    @classmethod
    def init(cls, recipe: Recipe, options: Any, corpus: Corpus) -> Initialization:
        """See ``Encoder.init``: a vocabulary of the training texts, and vectors as the recipe says."""
        tokenizer, vectors, recipe = make_vocabulary(recipe, corpus)

        def load_weights(ranker: nn.Module) -> int:
            known = 0
            for part in ranker.modules():
                if isinstance(part, WordEncoder):
                    known = embed(part, tokenizer, vectors, recipe.vectors)
            return known

        return Initialization(tokenizer, recipe, Shape(len(tokenizer), recipe.vectors.dim), load_weights)


def make_vocabulary(recipe: Recipe, corpus: Corpus) -> tuple[WordTokenizer, WordVectors | None, Recipe]:
    """The tokenizer, the vectors if any, and the recipe with the size that the vectors turned out to have.

    Vectors from elsewhere give ids to the words of the other splits too: a word that was never trained on
    still has a meaning then.
    """
    options, texts = recipe.text, corpus.texts
    learn = WordTokenizer.learn(texts, lowercase=options.lowercase, min_count=options.min_count)
    source = recipe.vectors.source
    if source == "random":
        return learn, None, recipe
    if source == "learned":
        learned = learned_vectors(learn, learn.encode(texts), recipe.vectors, corpus.seed, corpus.cache)
        return learn, learned, recipe
    wanted = WordTokenizer.learn(corpus.every(), lowercase=options.lowercase).words[2:]
    vectors = read_vectors(source, dict.fromkeys([*learn.words[2:], *wanted]))
    if not vectors.words:
        expected = "vectors for words of the collection, which may be of another language or in other case"
        raise InputError(source, problem="none of its words", expected=expected)
    tokenizer = WordTokenizer.learn(
        texts, lowercase=options.lowercase, min_count=options.min_count, also=vectors.words
    )
    counts = tokenizer.encode(texts).counts(len(tokenizer))
    covered = coverage(
        vectors, {word: n for word, n in zip(tokenizer.words, counts.tolist(), strict=True) if n}
    )
    logger.info(
        f"vectors for {covered.type_share:.1%} of the training texts' distinct words, "
        f"{covered.token_share:.1%} of all their words"
    )
    dim = int(vectors.matrix.shape[1])
    return tokenizer, vectors, replace(recipe, vectors=replace(recipe.vectors, dim=dim))


def embed(
    encoder: WordEncoder, tokenizer: WordTokenizer, vectors: WordVectors | None, options: VectorOptions
) -> int:
    """Sets the embeddings before training; returns how many words got a vector."""
    weight = encoder.embedding.weight
    weight.requires_grad_(options.fine_tune)
    known = 0
    with torch.no_grad():
        weight.uniform_(-options.unknown, options.unknown)
        if vectors is not None:
            ids = {word: index for index, word in enumerate(tokenizer.words)}
            rows = np.array([ids.get(word, PAD) for word in vectors.words], dtype=np.int64)
            weight[torch.from_numpy(rows)] = torch.from_numpy(vectors.matrix)
            known = int((rows != PAD).sum())
        weight[PAD] = 0
    return known


def learned_vectors(
    tokenizer: WordTokenizer,
    tokens: Tokens,
    options: VectorOptions,
    seed: int,
    cache: Path | None = None,
) -> WordVectors:
    """Skip-gram vectors of a vocabulary, from the texts to train on.

    Args:
        tokenizer: the vocabulary.
        tokens: the texts.
        options: size, window and epochs.
        seed: of the learning.
        cache: a folder in which vectors of the same texts, options and seed are kept.
    """
    made_of = [options.dim, options.window, options.epochs, seed, __version__, tokenizer.words]
    digest = hashlib.sha256(json.dumps(made_of).encode() + tokens.ids.tobytes() + tokens.offsets.tobytes())
    kept = cache / f"learned-{digest.hexdigest()[:16]}.bin" if cache is not None else None
    if kept is not None and kept.is_file():
        return read_vectors(kept, tokenizer.words[UNK + 1 :])
    logger.info(f"learning {options.dim}-dimensional word vectors from {len(tokens.ids)} running words")
    matrix = learn_vectors(
        tokens.ids,
        tokens.offsets,
        tokens.counts(len(tokenizer)),
        dim=options.dim,
        window=options.window,
        epochs=options.epochs,
        seed=seed,
    )
    words = slice(UNK + 1, None)  # PAD and UNK are no words
    vectors = WordVectors(tokenizer.words[words], matrix[words], "learned")
    if kept is not None:
        write_vectors(kept, vectors)
    return vectors
