"""The order in which pairs are scored: grouped by answer, in blocks of a number of tokens."""

import numpy as np


def group_by_answer(
    lengths: np.ndarray, pair_answer: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups pairs by answer.

    Answers that pools share are sorted by length, so that they fit into common batches. Others keep the order
    of the pairs, so that the pairs of a pool stay with their question.

    Args:
        lengths: (answers,) tokens of each answer.
        pair_answer: (P,) the answer of each pair.

    Returns:
        The answers present; the pairs, grouped by answer in that order; where the pairs of each answer start.
    """
    counts = np.bincount(pair_answer, minlength=len(lengths))
    present = np.flatnonzero(counts)
    if is_shared(present, pair_answer):
        by = lengths
    else:
        by = np.empty(len(lengths), dtype=np.int64)
        by[pair_answer[::-1]] = np.arange(len(pair_answer))[::-1]  # the first pair of each
    present = present[np.argsort(by[present], kind="stable")]
    turn = np.empty(len(lengths), dtype=np.int64)
    turn[present] = np.arange(len(present))
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts[present])])
    return present, _counting_order(turn[pair_answer]), starts


def _counting_order(keys: np.ndarray) -> np.ndarray:
    """(P,) the stable order of non-negative numbers, by counting 16 bits of them at a time."""
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")  # numpy counts numbers of 16 bits
    most, shift = int(keys.max()), 16
    while most >> shift:
        order = order[np.argsort(((keys >> shift) & 0xFFFF).astype(np.uint16)[order], kind="stable")]
        shift += 16
    return order


def is_shared(present: np.ndarray, pair_answer: np.ndarray) -> bool:
    """Whether an answer is in two pools or more on average."""
    return len(pair_answer) >= 2 * len(present)


def blocks_of(lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Splits texts into consecutive blocks of about ``tokens`` tokens each."""
    if not len(lengths):
        return []
    block = (np.cumsum(lengths) - lengths) // tokens
    return np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(block)) + 1)
