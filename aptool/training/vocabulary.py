"""The words a model knows and the vectors that they start from."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from aptool import __version__
from aptool.config import Recipe, VectorOptions
from aptool.formats.collection import Collection
from aptool.models.encoders import WordEncoder
from aptool.models.ranker import Ranker
from aptool.text.skipgram import learn_vectors
from aptool.text.tokenizer import PAD, UNK, Tokens, WordTokenizer
from aptool.text.vectors import WordVectors, coverage, read_vectors, write_vectors
from aptool.training.examples import Texts, split_texts


def make_vocabulary(
    collection: Collection,
    texts: Texts,
    recipe: Recipe,
    seed: int,
    say: Callable[[str], None],
    cache: Path | None = None,
) -> tuple[WordTokenizer, WordVectors | None, Recipe]:
    """The tokenizer, the vectors if any, and the recipe with the size that the vectors turned out to have.

    Vectors from elsewhere give ids to the words of the other splits too: a word that was never trained on
    still has a meaning then.
    """
    options = recipe.text
    learn = WordTokenizer.learn(texts.all(), lowercase=options.lowercase, min_count=options.min_count)
    source = recipe.vectors.source
    if source == "random":
        return learn, None, recipe
    if source == "learned":
        learned = learned_vectors(learn, learn.encode(texts.all()), recipe.vectors, seed, say, cache)
        return learn, learned, recipe
    others = (text for split in collection.splits for text in split_texts(collection, split))
    wanted = WordTokenizer.learn(others, lowercase=options.lowercase).words[2:]
    vectors = read_vectors(source, dict.fromkeys([*learn.words[2:], *wanted]), say)
    tokenizer = WordTokenizer.learn(
        texts.all(), lowercase=options.lowercase, min_count=options.min_count, also=vectors.words
    )
    counts = tokenizer.encode(texts.all()).counts(len(tokenizer))
    covered = coverage(
        vectors, {word: n for word, n in zip(tokenizer.words, counts.tolist(), strict=True) if n}
    )
    say(f"vectors for {covered.types:.1%} of the training texts' words, {covered.tokens:.1%} as they run")
    dim = int(vectors.matrix.shape[1])
    return tokenizer, vectors, replace(recipe, vectors=replace(recipe.vectors, dim=dim))


def embed(
    ranker: Ranker, tokenizer: WordTokenizer, vectors: WordVectors | None, options: VectorOptions
) -> int:
    """Sets the embeddings before training; returns how many words got a vector."""
    assert isinstance(ranker.encoder, WordEncoder)
    weight = ranker.encoder.embedding.weight
    weight.requires_grad_(options.fine_tune)
    known = 0
    with torch.no_grad():
        weight.uniform_(-options.unknown, options.unknown)
        if vectors is not None:
            ids = {word: index for index, word in enumerate(tokenizer.words)}
            rows = np.array([ids.get(word, PAD) for word in vectors.words])
            weight[torch.from_numpy(rows)] = torch.from_numpy(vectors.matrix)
            known = int((rows != PAD).sum())
        weight[PAD] = 0
    return known


def learned_vectors(
    tokenizer: WordTokenizer,
    tokens: Tokens,
    options: VectorOptions,
    seed: int,
    say: Callable[[str], None],
    cache: Path | None = None,
) -> WordVectors:
    """Skip-gram vectors of a vocabulary, from the texts to train on.

    Args:
        tokenizer: the vocabulary.
        tokens: the texts.
        options: size, window and epochs.
        seed: of the learning.
        say: told in a line what is being done.
        cache: a folder in which vectors of the same texts, options and seed are kept.
    """
    made_of = [options.dim, options.window, options.epochs, seed, __version__, tokenizer.words]
    digest = hashlib.sha256(json.dumps(made_of).encode() + tokens.ids.tobytes() + tokens.offsets.tobytes())
    kept = cache / f"learned-{digest.hexdigest()[:16]}.bin" if cache is not None else None
    if kept is not None and kept.is_file():
        return read_vectors(kept, tokenizer.words[UNK + 1 :])
    say(f"learning {options.dim}-dimensional word vectors from {len(tokens.ids)} running words")
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
