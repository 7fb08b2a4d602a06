"""Word vectors from a collection's own text: skip-gram with negative sampling (Mikolov et al., 2013).

The objective is word2vec's: for a word w and a word c of its context, with k words n drawn from the
unigram distribution to the power 3/4, maximize log σ(in_w · out_c) + Σ_n log σ(-in_w · out_n). It is
computed with matrix products instead of single dot products:

- The running text is split into blocks of ``_BLOCK`` words. A block and its context are one product, masked
  to the window and to the text of each word.
- A pair at distance o has the weight (window + 1 - o) / window, the probability with which word2vec's
  randomly shortened windows contain it.
- Negatives are sampled once per block and shared by its words, with weights that amount to ``_NEGATIVES``
  samples per pair.
- A batch of blocks is one step, with a learning rate per word (Adagrad with one sum per row), so that rare
  words learn quickly and frequent words do not diverge.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from aptool.progress import progress

_BLOCK = 32  # words that share their negatives
_NEGATIVES = 5  # negative samples per pair
_SHARED = 64  # shared negatives per block
_BATCH = 2048  # running words per step; larger ones are faster and learn less
_RATE = 0.2  # the initial learning rate, which decays linearly to 0
_SAMPLE = 1e-4  # subsampling threshold of frequent words, as in word2vec
_POWER = 0.75  # of the frequency, in the distribution of negatives


class _Table(NamedTuple):
    """Vectors and, per row, the sum of mean squared gradients that sets the row's learning rate."""

    weight: Tensor  # (V, d)
    squares: Tensor  # (V,)


def learn_vectors(
    token_ids: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    *,
    dim: int = 100,
    window: int = 5,
    epochs: int = 5,
    seed: int = 0,
) -> np.ndarray:
    """Learn a vector for each word of a vocabulary, (V, d) float32; deterministic for a seed.

    Texts are those of `Tokens`, and ``window``, the distance of the farthest context word, is 1 to 32. A word
    without occurrences in ``counts`` (V,) keeps its small random vector.
    """
    draw = np.random.default_rng(seed)
    vocabulary = len(counts)
    first = draw.random((vocabulary, dim), dtype=np.float32)
    inner = _Table(torch.from_numpy((first - 0.5) / dim), torch.zeros(vocabulary))
    outer = _Table(torch.zeros(vocabulary, dim), torch.zeros(vocabulary))
    if not counts.sum():
        return inner.weight.numpy()
    keep = _keep_probability(counts)
    noise = np.cumsum(counts.astype(np.float64) ** _POWER)
    band = _band(window)
    with _one_torch_thread(), torch.inference_mode(), progress("word vectors", epochs, "epochs") as bar:
        for epoch in range(epochs):
            ids, texts = _epoch_order(token_ids, offsets, keep, draw)
            steps = -(-len(ids) // _BATCH)
            for step, (words, owners) in enumerate(_batches(ids, texts)):
                blocks = len(words) // _BLOCK
                drawn = np.searchsorted(noise, draw.random(blocks * _SHARED) * noise[-1], side="right")
                against = torch.from_numpy(drawn).view(blocks, _SHARED)
                rate = _RATE * (1 - (epoch + step / steps) / epochs)
                _step(inner, outer, words, owners, against, band, _NEGATIVES, rate)
            bar.update(1)
    return inner.weight.numpy()


def _step(
    inner: _Table,
    outer: _Table,
    words: Tensor,
    texts: Tensor,
    against: Tensor,
    band: Tensor,
    negatives: int,
    rate: float,
) -> None:
    """One step on a batch of T running words, in T / B blocks, with gradients written out.

    Both tables are changed. ``words`` are (T,) ids, ``texts`` (T,) the text of each word, -1 for padding,
    ``against`` (blocks, K) ids of the negatives, and ``band`` is that of `_band`.
    """
    size, span = band.shape
    window = (span - size) // 2
    blocks, shared = against.shape
    dim = inner.weight.shape[1]
    context = pad(words, (window, window))  # (T + 2 window,)
    owners = pad(texts, (window, window), value=-1)
    text_of_word = texts.view(blocks, size, 1)
    is_pair = (text_of_word == owners.unfold(0, span, size).unsqueeze(1)) & (text_of_word >= 0)
    weight = band * is_pair  # (blocks, B, span)

    middle = inner.weight.index_select(0, words).view(blocks, size, dim)
    around = outer.weight.index_select(0, context).unfold(0, span, size)  # (blocks, d, span)
    sampled = outer.weight.index_select(0, against.view(-1)).view(blocks, shared, dim)

    # d/ds of -log σ(s) is σ(s) - 1, of -log σ(-s) it is σ(s).
    pull = torch.bmm(middle, around).sigmoid_().sub_(1).mul_(weight)  # (blocks, B, span)
    push = torch.bmm(middle, sampled.mT).sigmoid_()  # (blocks, B, K)
    push.mul_(weight.sum(2, keepdim=True).mul_(negatives / shared))

    to_middle = torch.bmm(pull, around.mT).baddbmm_(push, sampled).view(-1, dim)
    to_sampled = torch.bmm(push.mT, middle).view(-1, dim)
    to_around = _overlapped(torch.bmm(pull.mT, middle), size, window)
    _descend(inner, words, to_middle, rate)
    _descend(outer, torch.cat([context, against.view(-1)]), torch.cat([to_around, to_sampled]), rate)


def _overlapped(gradient: Tensor, size: int, window: int) -> Tensor:
    """Sum the overlapping spans (blocks, B + 2 window, d) to (T + 2 window, d)."""
    blocks, _, dim = gradient.shape
    total = gradient.new_zeros(blocks * size + 2 * window, dim)
    total[window : window + blocks * size] = gradient[:, window : window + size].reshape(-1, dim)
    total[: blocks * size].view(blocks, size, dim)[:, :window] += gradient[:, :window]
    total[2 * window :].view(blocks, size, dim)[:, size - window :] += gradient[:, window + size :]
    return total


def _descend(table: _Table, rows: Tensor, gradient: Tensor, rate: float) -> None:
    """Adagrad with one learning rate per row; the gradients of a repeated row are summed."""
    table.squares.index_add_(0, rows, gradient.square().mean(1))
    scale = table.squares.index_select(0, rows).add_(1e-10).rsqrt_().mul_(-rate)
    table.weight.scatter_add_(0, rows.unsqueeze(1).expand_as(gradient), gradient * scale.unsqueeze(1))


def _band(window: int) -> Tensor:
    """(B, B + 2 window): weight of the pair of word i and word j - window of a block."""
    distance = torch.arange(_BLOCK + 2 * window) - window - torch.arange(_BLOCK).unsqueeze(1)
    weight = (window + 1 - distance.abs()).clamp_(min=0) / window
    weight[distance == 0] = 0
    return weight


def _keep_probability(counts: np.ndarray) -> np.ndarray:
    """(V,) sqrt(t / f) + t / f at word frequency f, as in the word2vec program."""
    ratio = _SAMPLE * counts.sum() / np.maximum(counts, 1)
    probability: np.ndarray = np.minimum(np.sqrt(ratio) + ratio, 1.0)
    return probability


def _epoch_order(
    token_ids: np.ndarray, offsets: np.ndarray, keep: np.ndarray, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The words of one epoch and their texts, with texts shuffled and frequent words subsampled."""
    lengths = np.diff(offsets)
    order = draw.permutation(len(lengths))
    lengths = lengths[order]
    texts = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    ids = token_ids[np.arange(lengths.sum()) + np.repeat(offsets[:-1][order] - before, lengths)]
    selected = draw.random(len(ids)) < keep[ids]
    return ids[selected].astype(np.int64), texts[selected]


def _batches(ids: np.ndarray, texts: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of ids and their texts; words of text -1 pad the last batch to full blocks."""
    for start in range(0, len(ids), _BATCH):
        words, owners = (torch.from_numpy(array[start : start + _BATCH]) for array in (ids, texts))
        missing = -len(words) % _BLOCK
        yield pad(words, (0, missing)), pad(owners, (0, missing), value=-1)


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
