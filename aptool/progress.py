"""Progress of long operations: tqdm's bars on a terminal or in a notebook, log lines at intervals elsewhere.

The block ``with progress("score", 120, "pairs") as bar`` counts pairs by ``bar.update``.
"""

import logging
import sys
import time
from datetime import timedelta

logger = logging.getLogger(__name__)

# Seconds between two log lines.
INTERVAL = 10.0


class Bar:
    """Logs a line every ``INTERVAL`` seconds in which the count moved; has the methods of tqdm."""

    def __init__(self, name: str, total: int | None = None, unit: str = "", initial: int = 0) -> None:
        self._name, self._total, self._unit, self._initial = name, total, unit, initial
        self._done, self._detail = initial, ""
        self._started = self._logged = time.monotonic()

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def update(self, n: int) -> None:
        """Count ``n`` further units."""
        self._done += n
        now = time.monotonic()
        if self._total is None or now - self._logged < INTERVAL:
            return
        self._logged = now
        parts = [f"{self._name}: {self._done:,} of {self._total:,} {self._unit}"]
        speed = (self._done - self._initial) / max(now - self._started, 1e-9)  # without resumed work
        rate = f"{speed:,.{0 if speed >= 10 else 1}f} {self._unit}/s"
        if 0 < speed < 0.1:
            rate = f"{1 / speed:,.0f} s per {self._unit.removesuffix('s')}"
        parts.append(rate)
        if speed > 0 and self._done < self._total:
            parts.append(f"{timedelta(seconds=round((self._total - self._done) / speed))} left")
        logger.info(", ".join([*parts, *([self._detail] if self._detail else [])]))

    def set_postfix_str(self, s: str, refresh: bool) -> None:
        """Set the text after the count."""
        self._detail = s


def progress(name: str, total: int | None = None, unit: str = "", initial: int = 0) -> Bar:
    """Return a bar for a ``with`` block; ``initial`` units of ``total`` are resumed. None has no count."""
    is_notebook = "ipykernel" in sys.modules
    if not is_notebook and (sys.stderr is None or not sys.stderr.isatty()):
        return Bar(name, total, unit, initial)
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
