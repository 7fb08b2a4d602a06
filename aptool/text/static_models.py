"""Word vectors from static embedding models, read by ``model2vec``: a matrix and a tokenizer."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from aptool.errors import InputError, first_line
from aptool.formats.location import PathOrUrl
from aptool.text.tokenizer import require

logger = logging.getLogger(__name__)

_WORD_STARTS = "▁Ġ"  # prefixes by which tokenizers tell a token that begins a word


def read_static_model(source: PathOrUrl, words: Iterable[str] | None = None) -> tuple[list[str], np.ndarray]:
    """Reads the vectors of words from a static model: the mean of a word's subword vectors.

    Args:
        source: a folder in a layout of model2vec or sentence-transformers, or a name on the Hugging Face hub,
            which is looked for in the hub's cache first.
        words: those wanted; None: all tokens of the vocabulary that are a whole word.

    Returns:
        The words with at least one known token, in the order given, and (words, d) float32.

    Raises:
        AptoolError: the ``model2vec`` package is not installed.
        InputError: there is no such model, it cannot be downloaded or read, or a vector is not finite.
    """
    expected = "a static model: its folder, or its name on the Hugging Face hub"
    library = require("model2vec", purpose=f"{source}: a static model", extra="distill")
    try:
        model = library.StaticModel.from_pretrained(source, force_download=False)
        model.embedding = np.asarray(model.embedding, dtype=np.float32)  # means of float16 would be rounded
        wanted = _whole_words(model) if words is None else [word for word in dict.fromkeys(words) if word]
        lengths = np.array([len(tokens) for tokens in model.tokenize(wanted)], dtype=np.int64)
        known = [wanted[index] for index in np.flatnonzero(lengths)]
        matrix = np.zeros((0, model.dim), dtype=np.float32)
        if known:
            matrix = model.encode(known, normalize=False, max_length=None, use_multiprocessing=False)
    except Exception as error:  # whatever a network, a hub and several file formats can raise
        raise InputError(source, problem=first_line(error), expected=expected) from error
    not_finite = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(not_finite):
        word = known[int(not_finite[0])]
        raise InputError(source, column=word, problem="NaN or infinity", expected="finite numbers")
    whole = int((lengths == 1).sum())
    logger.info(
        f"{source}: static model, dimension {matrix.shape[1]}, {len(known):,} words found, "
        f"{whole:,} as one token and {len(known) - whole:,} as the mean of their subwords"
    )
    return known, matrix.astype(np.float32, copy=False)


def _whole_words(model: Any) -> list[str]:
    """The words that are one token: those whose text is tokenized into the token itself."""
    special = {token.content for token in model.tokenizer.get_added_tokens_decoder().values()}
    vocabulary = sorted(model.tokenizer.get_vocab().items(), key=lambda item: item[1])
    candidates = [(token.lstrip(_WORD_STARTS), index) for token, index in vocabulary if token not in special]
    candidates = [(word, index) for word, index in candidates if word and not word.isspace()]
    # Not model.tokenize, which leaves unknown tokens out: "▁" may be one, and then "ing" would seem a word.
    texts = [word for word, _ in candidates]
    encoded = model.tokenizer.encode_batch(texts, add_special_tokens=False)
    return [word for (word, index), found in zip(candidates, encoded, strict=True) if found.ids == [index]]
