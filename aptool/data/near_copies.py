"""Near copies of texts, and the division of questions that keeps near copies together.

Texts are near copies if the Jaccard similarity of their words is at least ``THRESHOLD``. They are found by
an exact join with prefix filtering: two sets can only be that similar if they share one of their rarest
elements.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from aptool.data.writing import SplitPools
from aptool.errors import InputError, counted
from aptool.text.words import unicode_words as words

THRESHOLD = 0.8


def encode(texts: Sequence[Sequence[str]], width: int) -> list[np.ndarray]:
    """Encode each text as the sorted set of its runs of ``width`` words; rarer runs have lower numbers.

    A text shorter than ``width`` is one run. Numbers are comparable within one call only.
    """
    sets = [
        {tuple(text[start : start + width]) for start in range(max(len(text) - width, 0) + 1) if text}
        for text in texts
    ]
    frequency = Counter(run for members in sets for run in members)
    rarest_first = sorted(frequency, key=frequency.__getitem__)
    number = {run: rank for rank, run in enumerate(rarest_first)}
    return [np.sort(np.array([number[run] for run in members], dtype=np.int64)) for members in sets]


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """The Jaccard similarity of two encoded texts; 0 if both are empty."""
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / max(len(a) + len(b) - shared, 1)


def near_pairs(
    left: Sequence[np.ndarray], right: Sequence[np.ndarray], threshold: float
) -> list[tuple[int, int]]:
    """All (i, j) with ``jaccard(left[i], right[j]) >= threshold``, sorted; both sides from one `encode`."""
    shared = _prefixes(left, threshold).join(_prefixes(right, threshold), on="element", suffix="_right")
    size, size_right = pl.col("size"), pl.col("size_right")
    similar_size = (size >= threshold * size_right) & (size_right >= threshold * size)
    candidates = shared.filter(similar_size).select("text", "text_right").unique().sort("text", "text_right")
    lefts, rights = ([set(ids.tolist()) for ids in side] for side in (left, right))
    pairs = []
    for i, j in candidates.iter_rows():
        common = len(lefts[i] & rights[j])
        if common >= threshold * (len(lefts[i]) + len(rights[j]) - common):
            pairs.append((i, j))
    return pairs


def _prefixes(sets: Sequence[np.ndarray], threshold: float) -> pl.DataFrame:
    """The rarest elements of each set, of which two similar sets share at least one."""
    sizes = np.array([len(members) for members in sets], dtype=np.int64)
    # The small subtrahend keeps a product such as 0.7 * 10 from being rounded up past its true value.
    lengths = [size - math.ceil(threshold * size - 1e-9) + 1 if size else 0 for size in sizes.tolist()]
    prefixes = [members[:length] for members, length in zip(sets, lengths, strict=True)]
    return pl.DataFrame(
        {
            "element": np.concatenate([np.empty(0, np.int64), *prefixes]),
            "text": np.repeat(np.arange(len(sets)), lengths),
            "size": np.repeat(sizes, lengths),
        }
    )


def divide(content: SplitPools, shares: Sequence[int]) -> dict[str, SplitPools]:
    """Divide the pools of one table among the splits train, dev and test, in proportion to their shares."""
    pools = list(content.pools)
    split_of = assign([pool.question for pool in pools], [pool.question_id for pool in pools], shares)
    if len(set(split_of)) < len(shares):
        problem = f"{counted(len(pools), 'question')}, near copies kept together"
        raise InputError(content.path, problem=problem, expected=f"at least {len(shares)} to split")
    divided = {}
    for number, split in enumerate(("train", "dev", "test")[: len(shares)]):
        part = [pool for pool, of_pool in zip(pools, split_of, strict=True) if of_pool == number]
        divided[split] = content._replace(pools=part)
        # The rows of the whole table that policies affected are counted once.
        content = content._replace(counts={})
    return divided


def assign(questions: Sequence[str], ids: Sequence[str], shares: Sequence[int]) -> list[int]:
    """Assign a fold, from 0, to each question: near copies to one fold, in proportion to the folds' shares.

    Groups are assigned from the largest to the smallest, each to the fold with the fewest questions for its
    share. Groups of one size are ordered by a hash of their first id, which separates neighbours in a file.
    """
    groups: dict[int, list[int]] = {}
    for row, group in enumerate(_groups(questions)):
        groups.setdefault(group, []).append(row)
    order = sorted(groups.values(), key=lambda rows: (-len(rows), hash_of(ids[rows[0]])))
    sizes, fold_of = [0] * len(shares), [0] * len(questions)
    for rows in order:
        fold = min(range(len(shares)), key=lambda number: sizes[number] / shares[number])
        sizes[fold] += len(rows)
        for row in rows:
            fold_of[row] = fold
    return fold_of


def _groups(questions: Sequence[str]) -> list[int]:
    """The group of each question, a number: its near copies, and their near copies in turn."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sets = encode([words(question) for question in questions], 1)
    pairs = np.array(near_pairs(sets, sets, THRESHOLD), dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(sets), len(sets)))
    return list(connected_components(graph, directed=False)[1].tolist())


def hash_of(text: str) -> str:
    """The hash of a text, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
