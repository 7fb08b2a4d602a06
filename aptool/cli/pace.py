"""How fast scoring goes, beside its bar: pairs a second, and how long it will go on."""

import time

from aptool.cli.display import Tick


class Pace:
    """Told of units as they are done; those that were there before count as done, not as speed."""

    def __init__(self, tick: Tick, units: int) -> None:
        self._tick = tick
        self._units = units
        self._begun = time.monotonic()
        self._fresh = self._pairs = 0

    def __call__(self, done: int, pairs: int, fresh: bool = True) -> None:
        """Moves the bar.

        Args:
            done: units done so far.
            pairs: what the last of them had.
            fresh: whether it was scored now.
        """
        if not fresh:
            self._begun = time.monotonic()
            self._tick(done, self._units, "row groups")
            return
        self._fresh += 1
        self._pairs += pairs
        seconds = max(time.monotonic() - self._begun, 1e-3)
        left = (self._units - done) * seconds / self._fresh
        text = f"row groups, {self._pairs / seconds:,.0f} pairs/s, {clock(left)} left"
        self._tick(done, self._units, text)


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
