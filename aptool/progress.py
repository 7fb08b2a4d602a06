"""Progress of long operations: tqdm's bars on a terminal or in a notebook, log lines at intervals elsewhere.

The block ``with progress("score", 120, "pairs") as bar`` counts pairs by ``bar.update``.
"""

import logging
import sys
import time
from datetime import timedelta
from typing import Protocol

from typing_extensions import override

logger = logging.getLogger(__name__)

# Seconds between two log lines.
INTERVAL = 10.0


class Bar(Protocol):
    """The part of tqdm's interface that aptool uses."""

    def __enter__(self) -> "Bar": ...

    def __exit__(self, *raised: object) -> None: ...

    def update(self, n: int) -> object:
        """Count ``n`` further units."""

    def set_postfix_str(self, s: str, refresh: bool) -> None:
        """Set the text after the count."""


class LogLines(Bar):
    """Logs a line every ``INTERVAL`` seconds in which the count moved."""

    def __init__(self, name: str, total: int | None = None, unit: str = "", initial: int = 0) -> None:
        self._name, self._total, self._unit, self._initial = name, total, unit, initial
        self._done, self._detail = initial, ""
        self._started = self._logged = time.monotonic()

    @override
    def __enter__(self) -> "LogLines":
        return self

    @override
    def __exit__(self, *raised: object) -> None:
        pass

    @override
    def update(self, n: int) -> None:
        self._done += n
        now = time.monotonic()
        if self._total is None or now - self._logged < INTERVAL:
            return
        self._logged = now
        parts = [f"{self._name}: {self._done:,} of {self._total:,} {self._unit}"]
        speed = (self._done - self._initial) / max(now - self._started, 1e-9)  # without resumed work
        parts.append(f"{speed:,.{0 if speed >= 10 else 1}f} {self._unit}/s")
        if speed > 0 and self._done < self._total:
            parts.append(f"{timedelta(seconds=round((self._total - self._done) / speed))} left")
        logger.info(", ".join([*parts, *([self._detail] if self._detail else [])]))

    @override
    def set_postfix_str(self, s: str, refresh: bool) -> None:
        self._detail = s


def progress(name: str, total: int | None = None, unit: str = "", initial: int = 0) -> Bar:
    """Return a bar for a ``with`` block; ``initial`` units of ``total`` are resumed. None has no count."""
    is_notebook = "ipykernel" in sys.modules
    if not is_notebook and (sys.stderr is None or not sys.stderr.isatty()):
        return LogLines(name, total, unit, initial)
    from tqdm.auto import tqdm

    bar: Bar = tqdm(
        desc=name,
        total=total,
        unit=f" {unit}",
        initial=initial,
        leave=False,  # remove the bar at the end
        file=None if is_notebook else sys.stderr,
        bar_format="{desc}" if total is None else None,
    )
    return bar


def measures_line(measures: dict[str, float]) -> str:
    """Format measures: ``MAP 0.5000, P@1 1.0000``."""
    return ", ".join(f"{name} {value:.4f}" for name, value in measures.items())
