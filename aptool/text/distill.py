"""Word vectors distilled from a sentence encoder: each word is encoded alone into a static vector.

The words of a collection are few enough to encode every one of them. As in model2vec (Tulkens and van Dongen,
2024), the encoder's states for a word are averaged over its subword tokens, reduced by PCA over all words to
the wanted dimension, and frequent words are weighted down. Unlike there, only the words that are needed are
encoded and fitted, all vectors are first scaled to one length, and frequencies are counted, not assumed.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from aptool.errors import InputError, first_line
from aptool.formats.urls import is_remote
from aptool.text.optional import SAFELY, require
from aptool.text.vectors import WordVectors

logger = logging.getLogger(__name__)

SIF = 1e-2  # a of a / (a + p); of 1e-4 to 1e-1 the best at ranking WikiQA by mean vectors
_SIZE = 1 / 6  # root mean square of a vector's components, as in the published word2vec vectors


class SentenceEncoder(NamedTuple):
    """A transformer that computes a state for each token, and its tokenizer."""

    tokenizer: Any
    model: Any


def distill_vectors(
    name: str | Path,
    words: Sequence[str],
    counts: np.ndarray,
    *,
    dim: int = 300,
    sif: float | None = SIF,
    batch: int = 256,
    device: torch.device | str = "cpu",
) -> WordVectors:
    """Distils static vectors for words out of a sentence encoder.

    Args:
        name: a folder with a transformer in the Hugging Face layout, or a name on its hub.
        words: distinct.
        counts: (words,) how often each occurs, for the weighting.
        dim: dimension; the result has a smaller one where the words span no more, and a message is logged.
        sif: a in the weight a / (a + p) of a word of frequency p; None: no weighting.
        batch: words per forward pass.
        device: of the encoder.

    Raises:
        AptoolError: the ``transformers`` package is not installed.
        InputError: there is no such encoder, or a vector is not finite.
    """
    encoder = load_encoder(name)
    states = encode_words(encoder, words, batch=batch, device=device)
    if not np.isfinite(states).all():
        bad = words[int(np.argmin(np.isfinite(states).all(axis=1)))]
        raise InputError(name, value=bad, expected="an encoder with finite states for every word")
    matrix, share = principal_components(states, dim)
    if matrix.shape[1] < dim:
        logger.info(
            f"{name}: {len(words):,} vectors of dimension {states.shape[1]} span {matrix.shape[1]}, not {dim}"
        )
    logger.info(
        f"{name}: dimension {states.shape[1]} to {matrix.shape[1]}, {share:.1%} of the variance explained"
    )
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix *= _SIZE * np.sqrt(matrix.shape[1]) / np.maximum(lengths, 1e-12)
    if sif is not None:
        matrix *= sif_weights(counts, sif)[:, None]
    return WordVectors(list(words), matrix.astype(np.float32), str(name))


def load_encoder(name: str | Path) -> SentenceEncoder:
    """Loads a transformer and its tokenizer from a folder or the hub.

    Raises:
        AptoolError: the ``transformers`` package is not installed.
        InputError: there is no such encoder, or it cannot be downloaded or read.
    """
    expected = "the folder of a transformer, or its name on the Hugging Face hub"
    if is_remote(name):
        raise InputError(name, problem="a URL", expected=expected)
    transformers = require("transformers", purpose=f"distilling from {name}", extra="distill")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(name), use_fast=True, **SAFELY)
        model = transformers.AutoModel.from_pretrained(str(name), **SAFELY)
    except Exception as error:  # whatever a network, a hub and several file formats can raise
        raise InputError(name, problem=first_line(error), expected=expected) from error
    return SentenceEncoder(tokenizer, model.eval())


def encode_words(
    encoder: SentenceEncoder,
    words: Sequence[str],
    *,
    batch: int = 256,
    device: torch.device | str = "cpu",
) -> np.ndarray:
    """(words, hidden) float32: the encoder's mean state over a word and its special tokens.

    Words of about the same length share a batch, with attention masks, so a vector does not depend on the
    rest of its batch beyond rounding.
    """
    tokenizer, model = encoder.tokenizer, encoder.model.to(device)
    tokens = tokenizer(list(words), truncation=True, max_length=64)["input_ids"]
    lengths = np.array([len(ids) for ids in tokens], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    result: np.ndarray | None = None
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            longest = max(int(lengths[rows].max()), 1)
            ids = torch.full((len(rows), longest), tokenizer.pad_token_id or 0)
            mask = torch.zeros((len(rows), longest), dtype=torch.long)
            for at, row in enumerate(rows):
                ids[at, : lengths[row]] = torch.tensor(tokens[row], dtype=torch.long)
                mask[at, : lengths[row]] = 1
            output = model(input_ids=ids.to(device), attention_mask=mask.to(device))
            states = output.last_hidden_state.float().cpu()  # (rows, longest, hidden)
            shares = mask.float() / mask.sum(1, keepdim=True).clamp(min=1)
            means = torch.bmm(shares.unsqueeze(1), states).squeeze(1)
            if result is None:
                result = np.zeros((len(words), means.shape[1]), dtype=np.float32)
            result[rows] = means.numpy()
            if (start // batch) % 20 == 19:
                logger.info(f"{start + len(rows):,} of {len(words):,} words encoded")
    return result if result is not None else np.zeros((0, 1), dtype=np.float32)


def principal_components(vectors: np.ndarray, dim: int) -> tuple[np.ndarray, float]:
    """Projects (n, h) vectors, minus their mean, on their first principal components.

    Returns:
        (n, min(dim, rank)) float64, and the share of the variance explained. Each component's sign makes its
        largest loading positive, so that the result is the same everywhere.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    variances, axes = np.linalg.eigh(centred.T @ centred / max(len(centred), 1))
    variances, axes = np.maximum(variances[::-1], 0), axes[:, ::-1]
    total = variances.sum()
    rank = int((variances > 1e-10 * max(total, 1e-300)).sum())
    kept = max(min(dim, rank), 1)
    axes = axes[:, :kept]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None, :], axis=0)
    share = float(variances[:kept].sum() / total) if total else 1.0
    return centred @ (axes * np.sign(largest)), share


def sif_weights(counts: np.ndarray, a: float) -> np.ndarray:
    """(n,) a / (a + p) for words of relative frequency p: smooth inverse frequency (Arora et al., 2017)."""
    frequency = counts / max(counts.sum(), 1)
    weights: np.ndarray = a / (a + frequency)
    return weights
