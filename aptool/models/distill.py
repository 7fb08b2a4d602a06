"""Word vectors distilled from a sentence encoder: each word is encoded alone into a static vector.

As in model2vec (Tulkens and van Dongen, 2024), the encoder's states for a word are averaged over its subword
tokens, reduced by PCA over all words, and weighted down for frequent words. Unlike model2vec, only the words
of the collection are encoded, all vectors are first scaled to one length, and frequencies are counted.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch

from aptool.errors import InputError
from aptool.models.pretrained import OpenedNetwork
from aptool.models.ragged import Ragged
from aptool.text.vectors import WordVectors

logger = logging.getLogger(__name__)

SIF = 1e-2  # a in a / (a + p); of 1e-4 to 1e-1 the best value for ranking WikiQA by mean vectors
MOST_TOKENS = 64  # per word
_BATCH = 256  # words per forward pass
_SIZE = 1 / 6  # root mean square of a vector's components, as in the published word2vec vectors


def distill_vectors(
    encoder: OpenedNetwork,
    words: Sequence[str],
    counts: np.ndarray,
    *,
    dim: int = 300,
    sif: float = SIF,
    device: torch.device | str = "cpu",
) -> WordVectors:
    """Distil static vectors for distinct words, which occur ``counts`` times, from a sentence encoder.

    The dimension is smaller than ``dim`` if the vectors span fewer dimensions. ``sif`` is a in the weight
    a / (a + p) of a word of relative frequency p.
    """
    name = encoder.name
    states = encode_words(encoder, words, device=device)
    if not np.isfinite(states).all():
        bad = words[int(np.argmin(np.isfinite(states).all(axis=1)))]
        raise InputError(name, value=bad, expected="an encoder with finite states for every word")
    matrix = principal_components(states, dim)
    logger.info(f"{name}: dimension {states.shape[1]} to {matrix.shape[1]}")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix *= _SIZE * np.sqrt(matrix.shape[1]) / np.maximum(lengths, 1e-12)
    matrix *= sif_weights(counts, sif)[:, None]
    return WordVectors(list(words), matrix.astype(np.float32), name)


def encode_words(
    encoder: OpenedNetwork, words: Sequence[str], *, device: torch.device | str = "cpu"
) -> np.ndarray:
    """(words, hidden) float32: the encoder's mean state over a word and its special tokens."""
    network = encoder.network.to(device)
    tokens = encoder.tokenizer.encode(words, min(MOST_TOKENS, encoder.max_tokens))
    order = np.argsort(tokens.lengths, kind="stable")
    means = []
    with torch.inference_mode():
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            ids, mask = Ragged.of(tokens.take(rows)).padded()  # (rows, longest)
            output = network(input_ids=ids.to(device), attention_mask=mask.long().to(device))
            states = output.last_hidden_state.float().cpu()  # (rows, longest, hidden)
            shares = mask.float() / mask.sum(1, keepdim=True)
            means.append(torch.bmm(shares.unsqueeze(1), states).squeeze(1).numpy())
    return np.concatenate(means)[np.argsort(order)]


def principal_components(vectors: np.ndarray, dim: int) -> np.ndarray:
    """Project (n, h) vectors, minus their mean: (n, min(dim, rank)) float64 principal components.

    The sign of a component makes its largest loading positive, so that every machine gives the same result.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    variances, axes = np.linalg.eigh(centred.T @ centred / max(len(centred), 1))
    variances, axes = np.maximum(variances[::-1], 0), axes[:, ::-1]
    rank = int((variances > 1e-10 * max(variances.sum(), 1e-300)).sum())
    axes = axes[:, : max(min(dim, rank), 1)]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None, :], axis=0)
    components: np.ndarray = centred @ (axes * np.sign(largest))
    return components


def sif_weights(counts: np.ndarray, a: float) -> np.ndarray:
    """(n,) a / (a + p) for words of relative frequency p: smooth inverse frequency (Arora et al., 2017)."""
    frequency = counts / max(counts.sum(), 1)
    weights: np.ndarray = a / (a + frequency)
    return weights
