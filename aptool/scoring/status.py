"""The status file of a run, ``RUN.parts/status.json``, for an operator to look at while the run is scored.

The file is written every ``SECONDS`` and removed when the run is complete. After an error or a kill, it stays
with the parts.
"""

import contextlib
import datetime
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple

from aptool.errors import AptoolError, InputError, first_line
from aptool.formats.atomic import atomic_file, remove_leftovers
from aptool.formats.location import Location
from aptool.progress import Pace, Update
from aptool.scoring.parts import Part
from aptool.scoring.pipeline import UnitRecord
from aptool.version import __version__

logger = logging.getLogger(__name__)

NAME = "status.json"

# Seconds between two renewals.
SECONDS = 5.0

# First bytes of a status file, by which it differs from a file of the user.
_START = b'{\n "aptool": '


class _Work(NamedTuple):
    """The work of a worker."""

    units: int = 0
    pairs: int = 0
    seconds: float = 0.0

    def figures(self) -> dict[str, Any]:
        speed = round(self.pairs / self.seconds, 1) if self.seconds else None
        return {"units": self.units, "pairs": self.pairs, "pairs_per_second": speed}


class RunStatus:
    """The progress of a run: pairs from the meter, and the work of each worker from its records."""

    def __init__(self, path: Location, missing: Sequence[Part], resumed: int, update: Update) -> None:
        """Set the file; ``update`` also gets the progress of ``update``."""
        self._path, self._missing, self._resumed, self._update = path, missing, resumed, update
        self._pace = Pace()
        self._scored: set[int] = set()
        self._retries = self._bad_rows = 0
        self._slowest: UnitRecord | None = None
        self._workers: dict[str, _Work] = {}
        self._lock = threading.RLock()
        self._is_written = self._has_failed = False

    def update(self, done: int, total: int, unit: str, detail: str = "") -> None:
        """Take the progress of the run, as `Update`."""
        with self._lock:
            self._pace.report(monotonic(), done, total, unit, detail)
        self._update(done, total, unit, detail)

    def add(self, record: UnitRecord) -> UnitRecord:
        """Add and return the record of a scored unit."""
        with self._lock:
            self._scored.add(record.number)
            self._retries += record.attempts - 1
            self._bad_rows += record.bad_rows
            if self._slowest is None or record.seconds > self._slowest.seconds:
                self._slowest = record
            before = self._workers.get(record.worker, _Work())
            self._workers[record.worker] = _Work(
                before.units + 1, before.pairs + record.pairs, before.seconds + record.seconds
            )
        return record

    def renew(self, state: str) -> None:
        """Write the file; if it cannot be written, log a warning once."""
        with self._lock:
            text = self._text(state)
        try:
            if not self._is_written and self._path.is_file() and not self._is_own():
                raise InputError(self._path, problem="not a status file of aptool", expected="another name")
            with atomic_file(self._path) as temporary:
                temporary.write_text(text, encoding="utf-8")
            self._is_written = True
        except (OSError, AptoolError) as error:
            if not self._has_failed:
                logger.warning(f"status file: {first_line(error)}; the run goes on without it")
            self._has_failed = True

    def _is_own(self) -> bool:
        return self._path.read_bytes().startswith(_START)

    def end(self, error: BaseException | None) -> None:
        """Remove the file of a complete run; write the error of another run, if it lasted long enough."""
        if error is not None:
            if self._is_written:
                self.renew(f"ended: {first_line(error)}")
            return
        with contextlib.suppress(OSError, AptoolError):
            if self._is_own():
                self._path.unlink()

    def _text(self, state: str) -> str:
        """The status as JSON, with one line per value and per worker."""
        lines = [f" {json.dumps(name)}: {_value(value)}" for name, value in self._status(state).items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def _status(self, state: str) -> dict[str, Any]:
        pace, left, speed = self._pace, self._pace.seconds_left, self._pace.per_second
        return {
            "aptool": __version__,
            "state": state,
            "renewed": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "pairs": pace.done,
            "total_pairs": pace.total,
            "pairs_per_second": None if speed is None else round(speed, 1),
            "seconds_left": None if left is None else round(left),
            "units": self._resumed + len(self._scored),
            "total_units": self._resumed + len(self._missing),
            "resumed_units": self._resumed,
            "retries": self._retries,
            "bad_rows": self._bad_rows,  # without resumed units
            "slowest_unit": self._described(self._slowest),
            "workers": [{"worker": name, **work.figures()} for name, work in sorted(self._workers.items())],
        }

    def _described(self, record: UnitRecord | None) -> dict[str, Any] | None:
        if record is None:
            return None
        unit, seconds = self._missing[record.number].unit, round(record.seconds, 1)
        return {"file": unit.path, "row_group": unit.row_group, "seconds": seconds, "worker": record.worker}


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in value) + "\n ]"
    return json.dumps(value)


@contextlib.contextmanager
def run_status(
    folder: Location, missing: Sequence[Part], resumed: int, update: Update
) -> Iterator[RunStatus]:
    """Keep the status file in the folder of the parts while the block scores and merges them."""
    status, ended = RunStatus(folder / NAME, missing, resumed, update), threading.Event()
    remove_leftovers(folder / NAME)

    def renew() -> None:
        while not ended.wait(SECONDS):
            status.renew("running")

    thread = threading.Thread(target=renew, name="aptool status", daemon=True)
    thread.start()
    error: BaseException | None = None
    try:
        yield status
    except BaseException as raised:
        error = raised
        raise
    finally:
        ended.set()
        thread.join()
        status.end(error)
