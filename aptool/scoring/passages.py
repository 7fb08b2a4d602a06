"""From pools to pools of passages, and from the progress of passages to that of candidates."""

from collections.abc import Callable
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa

from aptool.formats.parquet import to_arrow
from aptool.formats.pools import PART_OF_SHARED, PoolBatch
from aptool.text.passages import Passages, cut_texts


def cut_pools(pools: PoolBatch, passages: Passages) -> tuple[PoolBatch, np.ndarray]:
    """Cut the candidates of pools into passages, a pair each; also return the passages per candidate."""
    whole = pools.answers.to_pylist()
    texts, per_answer = cut_texts(whole, passages)
    starts = np.cumsum(per_answer) - per_answer
    is_whole = np.array([texts[start] == text for start, text in zip(starts, whole, strict=True)], dtype=bool)
    if is_whole.all():
        return pools, np.ones(len(pools.pair_answer), dtype=np.int64)
    shared_rows = np.where(is_whole | (pools.shared_rows < 0), pools.shared_rows, PART_OF_SHARED)
    counts = per_answer[pools.pair_answer]
    ends = np.concatenate([[0], np.cumsum(counts)])
    first = starts[pools.pair_answer]
    pairs = np.repeat(np.arange(len(counts)), counts)
    return (
        replace(
            pools,
            offsets=ends[pools.offsets],
            answer_ids=pools.answer_ids.take(to_arrow(pairs)),
            answers=pa.array(texts, type=pools.answers.type),
            pair_answer=first[pairs] + np.arange(len(pairs)) - ends[pairs],
            shared_rows=np.repeat(shared_rows, per_answer),
        ),
        counts,
    )


def candidate_progress(counts: np.ndarray, progress: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function of scored passages that calls ``progress`` with scored candidates; thread-safe.

    ``counts`` (n,) has the passages of each candidate.
    """
    candidates, total = len(counts), int(counts.sum())
    lock, done = Lock(), 0

    def passages_scored(number: int) -> None:
        nonlocal done
        with lock:
            before, done = done, min(done + number, total)
            scored = candidates * done // total - candidates * before // total
        progress(scored)

    return passages_scored
