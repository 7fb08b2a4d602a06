"""A cache of encoded answers, which carries them from one unit of work to the next."""

from collections import OrderedDict
from itertools import count
from threading import Lock
from typing import NamedTuple

import numpy as np
from torch import Tensor


class Found(NamedTuple):
    """Where the answers of some keys are in the cache.

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


class AnswerCache:
    """Encoded answers by key, least recently used batches evicted first; safe to use from several threads.

    Keys are non-negative and not much larger than the number of answers, as row numbers are; a negative key
    stands for an answer that is not to be cached.

    Answers are added in the batches that they were encoded in, and evicted in them. A batch used since
    ``start_unit`` is never evicted, so a unit with more answers than fit does not evict those that the next
    unit will need.
    """

    def __init__(self, capacity: int) -> None:
        """Creates an empty cache of at most ``capacity`` bytes; 0 caches nothing."""
        self.capacity = capacity
        self._bytes = 0
        # Of each key: its batch (-1 for none), the first row of its answer there, and the number of rows.
        self._index = np.empty((3, 0), dtype=np.int32)
        # Batches, the least recently used first: (keys, rows).
        self._batches: OrderedDict[int, tuple[np.ndarray, Tensor]] = OrderedDict()
        self._in_use: set[int] = set()  # batches used since ``start_unit``
        self._batch_numbers = count()
        self._lock = Lock()
        self.hits = self.misses = 0

    def start_unit(self) -> None:
        """Starts a unit of work: every batch may be evicted until it is used again."""
        self._in_use.clear()

    def get(self, keys: np.ndarray) -> Found:
        """Looks up the answers of (n,) keys."""
        with self._lock:
            place = np.full((3, len(keys)), -1, dtype=np.int64)
            known = np.flatnonzero((keys >= 0) & (keys < self._index.shape[1]))
            place[:, known] = self._index[:, keys[known]]
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
        return Found(batches, which - absent, place[1], place[2])

    def put(self, keys: np.ndarray, rows: Tensor, counts: np.ndarray) -> None:
        """Adds a batch of encoded answers if it fits, or if enough batches can be evicted for it.

        Args:
            keys: (n,) int64, all of them negative if the batch is not to be cached.
            rows: (R, ...) rows of the answers, end to end.
            counts: (n,) int64 rows of each answer.
        """
        if keys.max(initial=-1) < 0:
            return
        size = _bytes(rows)
        with self._lock:
            while self._bytes + size > self.capacity and self._batches:
                oldest = next(iter(self._batches))
                if oldest in self._in_use:
                    return
                evicted, freed = self._batches.pop(oldest)
                self._index[0, evicted] = -1
                self._bytes -= _bytes(freed)
            if self._bytes + size > self.capacity:
                return
            self._grow(int(keys.max()) + 1)
            batch = next(self._batch_numbers)
            named = keys >= 0
            self._index[0, keys[named]] = batch
            self._index[1, keys[named]] = (np.cumsum(counts) - counts)[named]
            self._index[2, keys[named]] = counts[named]
            self._batches[batch] = keys[named], rows
            self._in_use.add(batch)
            self._bytes += size

    def _grow(self, keys: int) -> None:
        """Makes room in the index for keys below ``keys``."""
        more = max(keys, 2 * self._index.shape[1]) - self._index.shape[1]
        if keys > self._index.shape[1]:
            self._index = np.concatenate([self._index, np.full((3, more), -1, dtype=np.int32)], axis=1)


def _bytes(rows: Tensor) -> int:
    return rows.numel() * rows.element_size()
