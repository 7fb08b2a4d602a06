"""A system that scores the passages of long candidates with another system.

Passages are texts: the other system tokenizes, encodes, caches and stores them as it does whole candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import override

from aptool.formats.parquet import to_arrow
from aptool.formats.pools import PART_OF_SHARED, Answers, PoolBatch, Unit
from aptool.scoring.systems import System
from aptool.text.passages import Passages, cut_texts


class PreparedPassages(NamedTuple):
    """The input of ``PassageSystem.score``."""

    prepared: Any  # of the other system
    counts: np.ndarray  # (pairs,) int64 passages per candidate


class PassageSystem(System):
    """Scores candidates by their passages."""

    scored_texts = "passages"

    def __init__(self, system: System, passages: Passages) -> None:
        """Wrap a system; raise if the passages are longer than its token limit."""
        passages.check_limit(system.max_answer_tokens)
        self._system, self._passages = system, passages
        self.fingerprint = passages.fingerprint(system.fingerprint)
        self.tag = system.tag
        self.max_answer_tokens = system.max_answer_tokens

    @override
    def prepare(self, pools: PoolBatch) -> PreparedPassages:
        cut, counts = cut_pools(pools, self._passages)
        return PreparedPassages(self._system.prepare(cut), counts)

    @override
    def score_reporting(self, prepared: PreparedPassages, scored: Callable[[int], None]) -> np.ndarray:
        pairs, total = len(prepared.counts), int(prepared.counts.sum())
        lock, done = Lock(), 0

        def scored_passages(number: int) -> None:
            nonlocal done
            with lock:
                before, done = done, min(done + number, total)
                candidates = pairs * done // total - pairs * before // total
            scored(candidates)

        scores = self._system.score_reporting(prepared.prepared, scored_passages)
        return self._passages.aggregated(scores, prepared.counts)

    @override
    def copies(self, most: int) -> list[System]:
        _, *copies = self._system.copies(most)
        return [self, *(PassageSystem(copy, self._passages) for copy in copies)]

    @override
    def truncated(self, prepared: PreparedPassages) -> int:
        return self._system.truncated(prepared.prepared)

    @override
    def describe(self) -> dict[str, Any]:
        return {**self._system.describe(), **self._passages.describe()}


@dataclass(frozen=True)
class PassageLoader:
    """A loader of a system, such as a ``ModelLoader``, and the passages that the system scores."""

    loader: Any
    passages: Passages

    def load(self, units: Sequence[Unit], answers: Answers | None) -> PassageSystem:
        """Load the system to score row groups with shared answers."""
        return PassageSystem(self.loader.load(units, answers), self.passages)


def with_passages(system: Any, passages: Passages) -> PassageSystem | PassageLoader:
    """Return a system, or the loader of one, that scores passages with ``system``."""
    wrap = PassageSystem if isinstance(system, System) else PassageLoader
    return wrap(system, passages)


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
