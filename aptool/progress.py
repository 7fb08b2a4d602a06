"""Progress of long operations, as a bar or as log lines.

    with get_progress().task("score") as update:
        update(0, 10, "row groups")  # the state before any work
        update(3, 10, "row groups")

The caller selects the display (``use_progress``). A task without a count has no updates. ``relayed_to`` sends
the log messages and the progress of a worker to the process that shows them.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Protocol

from typing_extensions import override

logger = logging.getLogger(__name__)

# Seconds between two log lines, and between two updates of a bar.
INTERVAL = 10.0
DRAW_SECONDS = 0.1

# Seconds between two posts of progress to another process.
POST_SECONDS = 0.3

# The remaining time is shown after this share or number of seconds of the work, throughput after
# LEAST_SECONDS.
FORECAST_SHARE, FORECAST_SECONDS, LEAST_SECONDS = 0.05, 10.0, 1.0

# tqdm's throughput and remaining time would include start-up and resumed work.
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}"

# Sends a message: ("log", line), ("progress", (task, done, total, unit, detail)) or ("epoch", history entry).
Post = Callable[[str, Any], None]


class Update(Protocol):
    """Reports the progress of a task."""

    def __call__(self, done: int, total: int, unit: str, detail: str = "") -> None:
        """Set the progress to ``done`` of ``total`` units, such as ``pairs``; ``detail`` follows the count.

        The first call reports the state before any work.
        """


class Pace:
    """Progress, throughput and remaining time of a task.

    Throughput is measured from the first completed work: start-up and resumed work do not count.
    """

    def __init__(self) -> None:
        self.done = self.total = 0
        self.unit = self.detail = ""
        self._initial: int | None = None
        self._base: tuple[float, int] | None = None  # time and ``done`` of the first completed work
        self._last = 0.0

    def report(self, now: float, done: int, total: int, unit: str, detail: str = "") -> None:
        """Record the progress at a time in seconds. ``done`` never decreases and never exceeds ``total``."""
        self.total, self.unit, self.detail = total, unit, detail
        before, self.done = self.done, min(max(done, self.done), total)
        if self._initial is None:
            self._initial = self.done
        elif self.done > before:
            self._last = now
            if self._base is None:
                self._base = now, self.done

    @property
    def per_second(self) -> float | None:
        """Throughput in units per second; None if unknown."""
        if self._base is None or self._last - self._base[0] < LEAST_SECONDS:
            return None
        return (self.done - self._base[1]) / (self._last - self._base[0])

    @property
    def seconds_left(self) -> float | None:
        """Remaining time in seconds; None if unknown."""
        speed = self.per_second
        if not speed or self._base is None or self._initial is None:
            return None
        start, initial = self._base
        share = (self.done - initial) / max(self.total - self._initial, 1)
        if share < FORECAST_SHARE and self._last - start < FORECAST_SECONDS:
            return None
        return (self.total - self.done) / speed

    @property
    def remarks(self) -> str:
        """The available parts of throughput, remaining time and detail: ``12 pairs/s, 0:41 left``."""
        speed, left = self.per_second, self.seconds_left
        parts = []
        if speed is not None and speed >= 0.1:
            parts.append(f"{speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s")
        if left is not None and self.done < self.total:
            parts.append(f"{clock(left)} left")
        return ", ".join([*parts, *([self.detail] if self.detail else [])])

    def line(self, name: str, seconds: float) -> str:
        """A log line, ``seconds`` after the start of the task."""
        if not self.total:
            return f"{name}: {seconds:.0f} s"
        return ", ".join(filter(None, [f"{name}: {self.done:,} of {self.total:,} {self.unit}", self.remarks]))


class Progress:
    """The default display: one log line per epoch. Base class of the other displays."""

    def task(self, name: str) -> AbstractContextManager[Update]:
        """Show a task while the block runs."""
        return nullcontext(lambda done, total, unit, detail="": None)

    def epoch(self, entry: dict[str, Any]) -> None:
        """Report the end of an epoch, given its entry of the training history."""
        logger.info(epoch_line(entry))


class LineProgress(Progress):
    """Display without a terminal: a line every ``INTERVAL`` seconds if the innermost task moved."""

    def __init__(self) -> None:
        self._running: list[Pace] = []

    @override
    @contextmanager
    def task(self, name: str) -> Iterator[Update]:
        pace, over, started = Pace(), threading.Event(), time.monotonic()

        def show() -> None:
            shown: tuple[int, str] | None = None
            while not over.wait(INTERVAL):
                state = pace.done, pace.detail
                is_news = not pace.total or state != shown
                if is_news and self._running[-1:] == [pace]:
                    shown = state
                    logger.info(pace.line(name, time.monotonic() - started))

        thread = threading.Thread(target=show, name="aptool progress", daemon=True)
        self._running.append(pace)
        thread.start()
        try:
            yield lambda *state: pace.report(time.monotonic(), *state)
        finally:
            over.set()
            thread.join()
            self._running.remove(pace)


class BarProgress(Progress):
    """Display on a terminal or in a notebook: a bar, which is removed at the end of the task."""

    @override
    @contextmanager
    def task(self, name: str) -> Iterator[Update]:
        from tqdm.auto import tqdm

        stream = None if in_notebook() else sys.stderr
        with tqdm(desc=name, leave=False, file=stream, bar_format="{desc}") as bar:
            pace, drawn = Pace(), 0.0

            def update(done: int, total: int, unit: str, detail: str = "") -> None:
                nonlocal drawn
                now = time.monotonic()
                pace.report(now, done, total, unit, detail)
                if now - drawn < DRAW_SECONDS and pace.done < total:
                    return
                drawn = now
                if bar.total != total:
                    bar.bar_format = f"{_BAR} {unit}{{postfix}}"
                    bar.reset(total)
                bar.n = pace.done
                bar.set_postfix_str(pace.remarks)  # draws the bar

            yield update


_current: Progress | None = None


def get_progress() -> Progress:
    """The current display. By default, notebooks show bars, and other programs log epochs only."""
    if _current is not None:
        return _current
    return BarProgress() if in_notebook() else Progress()


@contextmanager
def use_progress(progress: Progress) -> Iterator[None]:
    """Set the current display while the block runs."""
    global _current
    before, _current = _current, progress
    try:
        yield
    finally:
        _current = before


def in_notebook() -> bool:
    """Whether this process is a notebook kernel."""
    return "ipykernel" in sys.modules


def epoch_line(entry: dict[str, Any]) -> str:
    """Format an entry of a training history as a log line."""
    seconds = entry["seconds"]["train"] + entry["seconds"]["dev"]  # training includes mining
    dev = measures_line(entry["dev"])
    return f"epoch {entry['epoch']}: loss {entry['loss']:.4f}, dev {dev}, {seconds:.0f} s"


def measures_line(measures: dict[str, float]) -> str:
    """Format measures: ``MAP 0.5000, P@1 1.0000``."""
    return ", ".join(f"{name} {value:.4f}" for name, value in measures.items())


def clock(seconds: float) -> str:
    """Format seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class _PostedProgress(Progress):
    """Sends progress and epochs to another process."""

    def __init__(self, post: Post) -> None:
        self._post = post

    @override
    @contextmanager
    def task(self, name: str) -> Iterator[Update]:
        posted, last = time.monotonic(), (name, 0, 0, "", "")
        self._post("progress", last)

        def update(done: int, total: int, unit: str, detail: str = "") -> None:
            nonlocal posted, last
            last = name, done, total, unit, detail
            if time.monotonic() - posted > POST_SECONDS:
                posted = time.monotonic()
                self._post("progress", last)

        yield update
        self._post("progress", last)

    @override
    def epoch(self, entry: dict[str, Any]) -> None:
        self._post("epoch", entry)


class RelayedTasks:
    """Context manager that shows the tasks of another process, one at a time, in the current display."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._update: Update | None = None
        self._task = ExitStack()

    def __enter__(self) -> "RelayedTasks":
        return self

    def __exit__(self, *raised: object) -> None:
        self._task.close()

    def show(self, state: tuple[str, int, int, str, str]) -> None:
        """Show the value of a ``progress`` message."""
        name, done, total, unit, detail = state
        if name != self._name or self._update is None:
            self._task.close()
            self._name, self._update = name, self._task.enter_context(get_progress().task(name))
        if total:
            self._update(done, total, unit, detail)


class _Silence(Progress):
    """Display of nothing, not even of epochs."""

    @override
    def epoch(self, entry: dict[str, Any]) -> None:
        pass


class _Handler(logging.Handler):
    """Sends log messages to another process."""

    def __init__(self, post: Post) -> None:
        super().__init__(logging.INFO)
        self._post = post

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._post("log", record.getMessage())


@contextmanager
def relayed_to(post: Post | None) -> Iterator[None]:
    """Send the messages and the progress of this process while the block runs; None discards them."""
    if post is None:
        with use_progress(_Silence()):
            yield
        return
    root = logging.getLogger("aptool")
    handler, level = _Handler(post), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with use_progress(_PostedProgress(post)):
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
