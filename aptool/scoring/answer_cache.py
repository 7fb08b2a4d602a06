"""A cache of encoded answers, which carries them from one unit of work to the next."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import count
from threading import Lock
from typing import NamedTuple

import numpy as np
from torch import Tensor


class Found(NamedTuple):
    """Positions of answers in the cache.

    Attributes:
        batches: the batches that hold an answer of these keys.
        batch: (n,) int64 which of them, -1 for an answer that is not in the cache.
        starts: (n,) int64 its first row there.
        counts: (n,) int64 its number of rows.
    """

    batches: list[Tensor]
    batch: np.ndarray
    starts: np.ndarray
    counts: np.ndarray


_ABSENT = (-1, -1, -1)


class AnswerCache:
    """Encoded answers by key, least recently used batches evicted first; safe to use from several threads.

    The key None stands for an answer that is not to be cached.

    Answers are added in the batches that they were encoded in, and evicted in them. A batch used since
    ``start_unit`` is never evicted, so a unit with more answers than fit does not evict those that the next
    unit will need.
    """

    def __init__(self, capacity: int) -> None:
        """Creates an empty cache of at most ``capacity`` bytes; 0 caches nothing."""
        self.capacity = capacity
        self._bytes = 0
        # Of each key: its batch, the first row of its answer there, and the number of rows.
        self._index: dict[Hashable, tuple[int, int, int]] = {}
        # Batches, the least recently used first: (keys, rows).
        self._batches: OrderedDict[int, tuple[list[Hashable], Tensor]] = OrderedDict()
        self._in_use: set[int] = set()  # batches used since ``start_unit``
        self._batch_numbers = count()
        self._lock = Lock()
        self.hits = self.misses = 0

    def start_unit(self) -> None:
        """Starts a unit of work: every batch may be evicted until it is used again."""
        self._in_use.clear()

    def get(self, keys: Sequence[Hashable]) -> Found:
        """Looks up the answers of some keys."""
        with self._lock:
            entries = [self._index.get(key, _ABSENT) for key in keys]
            place = np.array(entries, dtype=np.int64).reshape(-1, 3).T
            numbers, which = np.unique(place[0], return_inverse=True)
            absent = int(len(numbers) > 0 and numbers[0] < 0)
            batches = []
            for number in numbers[absent:].tolist():
                self._in_use.add(number)
                self._batches.move_to_end(number)
                batches.append(self._batches[number][1])
            missing = int((place[0] < 0).sum())
            self.misses += missing
            self.hits += len(keys) - missing
        return Found(batches, which - absent, place[1].copy(), place[2].copy())

    def put(self, keys: Sequence[Hashable], rows: Tensor, counts: np.ndarray) -> None:
        """Adds a batch of encoded answers if it fits, or if enough batches can be evicted for it.

        Args:
            keys: of n answers, all of them None if the batch is not to be cached.
            rows: (R, ...) rows of the answers, end to end.
            counts: (n,) int64 rows of each answer.
        """
        size = _bytes(rows)
        if size > self.capacity or all(key is None for key in keys):
            return
        with self._lock:
            while self._bytes + size > self.capacity:
                oldest = next(iter(self._batches))
                if oldest in self._in_use:
                    return
                self._evict(oldest)
            batch = next(self._batch_numbers)
            starts = np.cumsum(counts) - counts
            for key, start, number in zip(keys, starts.tolist(), counts.tolist(), strict=True):
                if key is not None:
                    self._index[key] = batch, start, number
            self._batches[batch] = list(keys), rows
            self._in_use.add(batch)
            self._bytes += size

    def _evict(self, batch: int) -> None:
        keys, rows = self._batches.pop(batch)
        for key in keys:
            if self._index.get(key, _ABSENT)[0] == batch:  # another batch may have the same answer
                del self._index[key]
        self._bytes -= _bytes(rows)


def _bytes(rows: Tensor) -> int:
    return rows.numel() * rows.element_size()
