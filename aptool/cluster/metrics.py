"""Metrics of scoring workers, in the Prometheus endpoint of each Ray node."""

from collections.abc import Iterable

from ray.util.metrics import Counter

from aptool.scoring.pipeline import UnitRecord

DESCRIPTIONS = {
    "aptool_pairs": "Scored pairs.",
    "aptool_units": "Scored units.",
    "aptool_unit_seconds": "Seconds spent on scored units.",
    "aptool_retries": "Attempts at units after the loss of a worker.",
    "aptool_bad_rows": "Pools that were set aside.",
    "aptool_failed_units": "Units that ended in an error.",
}


class WorkerMetrics:
    """Counters of one worker process, with the tag ``worker``."""

    def __init__(self, worker: str) -> None:
        self._counters = {
            name: Counter(name, description=text, tag_keys=("worker",)) for name, text in DESCRIPTIONS.items()
        }
        for counter in self._counters.values():
            counter.set_default_tags({"worker": worker})

    def count(self, records: Iterable[UnitRecord]) -> None:
        """Add the work of units."""
        for record in records:
            values = {
                "aptool_pairs": record.pairs,
                "aptool_units": not record.error,
                "aptool_unit_seconds": record.seconds,
                "aptool_retries": record.attempts - 1,
                "aptool_bad_rows": record.bad_rows,
                "aptool_failed_units": bool(record.error),
            }
            for name, value in values.items():
                if value > 0:
                    self._counters[name].inc(float(value))
