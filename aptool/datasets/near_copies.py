"""Texts that say nearly the same: sets of words or of runs of words, compared by their Jaccard similarity.

The join is exact. It rests on prefix filtering (Bayardo, Ma and Srikant 2007, *Scaling up all pairs
similarity search*): sort every set by how rare its elements are; two sets with similarity of at least t
then share one of the first n - ceil(t n) + 1 elements of each, n being the size of that set.
"""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl


def encode(texts: Sequence[Sequence[str]], width: int) -> list[np.ndarray]:
    """Each text as the sorted set of its runs of ``width`` words, as numbers; the rarest run is the least.

    A text shorter than ``width`` is one run. Numbers compare within one call only.
    """
    vocabulary: dict[str, int] = {"": 0}
    runs = []
    for text in texts:
        ids = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in text], dtype=np.int64)
        if 0 < len(ids) < width:
            ids = np.pad(ids, (0, width - len(ids)))
        runs.append(ids)
    if len(vocabulary) ** width >= 2**63:
        raise ValueError(f"{len(vocabulary)} distinct words in runs of {width} do not fit 64 bits")
    sets = []
    for ids in runs:
        count = max(len(ids) - width + 1, 0)
        codes = np.zeros(count, dtype=np.int64)
        for place in range(width):
            codes = codes * len(vocabulary) + ids[place : place + count]
        sets.append(np.unique(codes))
    codes, frequency = np.unique(np.concatenate([np.empty(0, np.int64), *sets]), return_counts=True)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(len(codes))
    return [np.sort(rank[np.searchsorted(codes, one)]) for one in sets]


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Size of the intersection over size of the union of two encoded sets; 0 if both are empty."""
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / max(len(a) + len(b) - shared, 1)


def near_pairs(
    left: Sequence[np.ndarray], right: Sequence[np.ndarray], threshold: float
) -> list[tuple[int, int]]:
    """All (i, j) with ``jaccard(left[i], right[j]) >= threshold``, sorted; both sides from one ``encode``."""
    shared = _prefixes(left, threshold).join(_prefixes(right, threshold), on="element", suffix="_right")
    within = (pl.col("size") >= threshold * pl.col("size_right")) & (
        pl.col("size_right") >= threshold * pl.col("size")
    )
    candidates = shared.filter(within).select("text", "text_right").unique().sort("text", "text_right")
    members = [set(one.tolist()) for one in right]
    found = []
    last, current = -1, set[int]()
    for i, j in candidates.iter_rows():
        if i != last:
            last, current = i, set(left[i].tolist())
        both = len(current & members[j])
        if both >= threshold * (len(current) + len(members[j]) - both):
            found.append((i, j))
    return found


def _prefixes(sets: Sequence[np.ndarray], threshold: float) -> pl.DataFrame:
    sizes = np.array([len(one) for one in sets], dtype=np.int64)
    # The small subtrahend keeps a product such as 0.7 * 10 from being rounded up past its true value.
    lengths = [size - math.ceil(threshold * size - 1e-9) + 1 if size else 0 for size in sizes.tolist()]
    parts = [one[:length] for one, length in zip(sets, lengths, strict=True)]
    return pl.DataFrame(
        {
            "element": np.concatenate([np.empty(0, np.int64), *parts]),
            "text": np.repeat(np.arange(len(sets)), lengths),
            "size": np.repeat(sizes, lengths),
        }
    )
