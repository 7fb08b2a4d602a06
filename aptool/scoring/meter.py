"""Progress of scoring in pairs, also within a unit, whichever worker scores it and however often."""

import threading
from collections.abc import Callable, Sequence

from aptool.formats.location import Location
from aptool.progress import Update
from aptool.scoring.parts import Part

# Called with the number of pairs of each block that has been scored.
Scored = Callable[[int], None]


class PairMeter:
    """Counts the pairs of a run that are scored, from any thread; a unit never counts more than its pairs."""

    def __init__(self, update: Update, parts: Sequence[Part], missing: Sequence[Part]) -> None:
        """Reports the pairs of the parts that an earlier call left.

        Args:
            update: the progress of the run.
            parts: all parts.
            missing: those to score.
        """
        self._update = update
        self._total = sum(part.pairs for part in parts)
        self._done = self._total - sum(part.pairs for part in missing)
        self._reached: dict[Location, int] = {}
        self._lock = threading.Lock()
        update(self._done, self._total, "pairs")

    def add(self, part: Part, pairs: int) -> None:
        """Counts further pairs of a unit."""
        with self._lock:
            self._reach(part, self._reached.get(part.path, 0) + pairs)

    def reach(self, part: Part, pairs: int) -> None:
        """Sets how many pairs of a unit are scored; a unit that is begun again loses none."""
        with self._lock:
            self._reach(part, pairs)

    def _reach(self, part: Part, pairs: int) -> None:
        before = self._reached.get(part.path, 0)
        reached = min(max(pairs, before), part.pairs)
        if reached > before:
            self._reached[part.path] = reached
            self._done += reached - before
            self._update(self._done, self._total, "pairs")
