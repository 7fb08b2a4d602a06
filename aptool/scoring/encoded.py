"""Encoded answers kept from one unit of work for the next, within a number of bytes."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from threading import Lock

from torch import Tensor


class StateStore:
    """A bounded store of what is kept of answers, under numbers that name the answers.

    Negative numbers name nothing: what comes with them is neither kept nor found.

    States come in the batches they were encoded in, and leave in them: the batch that was not looked at for
    the longest time first. A batch looked at since ``begin`` stays, so a unit with more answers than there is
    room for does not push out what the next unit will ask for. Used from several threads.
    """

    def __init__(self, capacity: int) -> None:
        """A store of at most ``capacity`` bytes; 0 keeps nothing."""
        self.capacity = capacity
        self._bytes = 0
        self._places: dict[int, tuple[int, int]] = {}  # number of an answer: its batch, its place there
        # Batches, the one not looked at for longest first: (numbers, what is kept of each, bytes).
        self._batches: OrderedDict[int, tuple[list[int], Sequence[Tensor], int]] = OrderedDict()
        self._fresh: set[int] = set()  # batches looked at since ``begin``
        self._names = count()
        self._lock = Lock()
        self.hits = self.misses = 0

    def begin(self) -> None:
        """A new unit of work starts."""
        self._fresh.clear()

    def get(self, numbers: Sequence[int]) -> list[Tensor | None]:
        """What is kept of each answer, None where nothing is."""
        found: list[Tensor | None] = []
        with self._lock:
            for number in numbers:
                batch, place = self._places.get(number, (-1, 0))
                if batch < 0:
                    found.append(None)
                    continue
                if batch not in self._fresh:
                    self._fresh.add(batch)
                    self._batches.move_to_end(batch)
                found.append(self._batches[batch][1][place])
            missing = sum(kept is None for kept in found)
            self.misses += missing
            self.hits += len(found) - missing
        return found

    def put(self, numbers: list[int], kept: Sequence[Tensor]) -> None:
        """Keeps a batch of answers if there is, or can be made, room for it."""
        if numbers[0] < 0:
            return
        size = sum(states.numel() * states.element_size() for states in kept)
        with self._lock:
            while self._bytes + size > self.capacity and self._batches:
                oldest = next(iter(self._batches))
                if oldest in self._fresh:
                    return
                gone, _, freed = self._batches.pop(oldest)
                for number in gone:
                    del self._places[number]
                self._bytes -= freed
            if self._bytes + size > self.capacity:
                return
            name = next(self._names)
            self._batches[name] = (numbers, kept, size)
            self._places |= {number: (name, place) for place, number in enumerate(numbers)}
            self._fresh.add(name)
            self._bytes += size
