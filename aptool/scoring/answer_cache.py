"""A cache of encoded answers, which carries them from one unit of work to the next."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from threading import Lock

from torch import Tensor


class AnswerCache:
    """Encoded answers by key, least recently used batches evicted first; safe to use from several threads.

    Keys are non-negative; a negative key stands for an answer that is not to be cached.

    Answers are added in the batches that they were encoded in, and evicted in them. A batch used since
    ``start_unit`` is never evicted, so a unit with more answers than fit does not evict those that the next
    unit will need.
    """

    def __init__(self, capacity: int) -> None:
        """Creates an empty cache of at most ``capacity`` bytes; 0 caches nothing."""
        self.capacity = capacity
        self._bytes = 0
        self._index: dict[int, tuple[int, int]] = {}  # key of an answer: its batch, its place in the batch
        # Batches, the least recently used first: (keys, encoded answers, bytes).
        self._batches: OrderedDict[int, tuple[list[int], Sequence[Tensor], int]] = OrderedDict()
        self._in_use: set[int] = set()  # batches used since ``start_unit``
        self._batch_numbers = count()
        self._lock = Lock()
        self.hits = self.misses = 0

    def start_unit(self) -> None:
        """Starts a unit of work: every batch may be evicted until it is used again."""
        self._in_use.clear()

    def get(self, keys: Sequence[int]) -> list[Tensor | None]:
        """The encoded answer of each key, None where it is not in the cache."""
        found: list[Tensor | None] = []
        with self._lock:
            for key in keys:
                batch, place = self._index.get(key, (-1, 0))
                if batch < 0:
                    found.append(None)
                    continue
                if batch not in self._in_use:
                    self._in_use.add(batch)
                    self._batches.move_to_end(batch)
                found.append(self._batches[batch][1][place])
            missing = sum(answer is None for answer in found)
            self.misses += missing
            self.hits += len(found) - missing
        return found

    def put(self, keys: list[int], answers: Sequence[Tensor]) -> None:
        """Adds a batch of encoded answers if it fits, or if enough batches can be evicted for it."""
        if keys[0] < 0:
            return
        size = sum(states.numel() * states.element_size() for states in answers)
        with self._lock:
            while self._bytes + size > self.capacity and self._batches:
                oldest = next(iter(self._batches))
                if oldest in self._in_use:
                    return
                evicted, _, freed = self._batches.pop(oldest)
                for key in evicted:
                    del self._index[key]
                self._bytes -= freed
            if self._bytes + size > self.capacity:
                return
            batch = next(self._batch_numbers)
            self._batches[batch] = (keys, answers, size)
            self._index |= {key: (batch, place) for place, key in enumerate(keys)}
            self._in_use.add(batch)
            self._bytes += size
