"""Records of scoring: one per scored unit, their summary, and the metadata of a run file."""

import datetime
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aptool import environment
from aptool.errors import AptoolError
from aptool.formats.collection import MANIFEST, POOLS_SUFFIX, CollectionFiles
from aptool.formats.pools import Unit
from aptool.formats.urls import is_remote
from aptool.scoring.systems import System


class UnitRecord(NamedTuple):
    """The result of one unit, from the worker that scored it to the summary of the run."""

    number: int  # of the unit, among those to score
    pairs: int
    worker: str  # host and process id
    attempts: int = 1  # how often the unit was begun; more than once if workers were lost
    again: bool = False  # whether another worker had begun the unit and was late
    seconds: float = 0.0  # that the worker spent on the unit
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    error: str = ""  # one line; empty if the unit was scored
    fatal: bool = False  # whether every other unit would fail likewise


@dataclass(frozen=True)
class ScoredRun:
    """How a run file was made."""

    pairs: int
    truncated: int  # answers truncated at the model's limit, counted per unit
    units: int
    resumed: int  # units whose parts an earlier call had left
    retried: int  # units that were started more than once because a worker was lost
    run_twice: int  # units that a second worker scored before the first had
    workers: int  # processes that scored
    seconds: float  # of the last call; units that an earlier one left are not in it
    core_seconds: float  # of its workers: time that a core, or as many as a worker had, spent on units
    gpu_seconds: float  # likewise, of GPUs


def summarize(
    records: Sequence[UnitRecord], *, units: int, missing: int, pairs: int, truncated: int, seconds: float
) -> ScoredRun:
    """The summary of a run.

    Args:
        records: of the units that were scored.
        units: the number of units of the run.
        missing: the number of units that an earlier call had not scored.
        pairs: the number of pairs of the run.
        truncated: the number of truncated answers.
        seconds: that this call took.
    """
    return ScoredRun(
        pairs=pairs,
        truncated=truncated,
        units=units,
        resumed=units - missing,
        retried=sum(record.attempts > 1 for record in records),
        run_twice=sum(record.again for record in records),
        workers=len({record.worker for record in records}),
        seconds=round(seconds, 3),
        core_seconds=round(sum(record.core_seconds for record in records), 3),
        gpu_seconds=round(sum(record.gpu_seconds for record in records), 3),
    )


def gather(
    tag: str, system: System, units: Sequence[Unit], scored: ScoredRun, command: str | None
) -> dict[str, Any]:
    """What made a run, as plain values that JSON can hold.

    Args:
        tag: of the run.
        system: what scored it.
        units: the row groups that were scored.
        scored: how the work went.
        command: the command that made it; None where it was made from Python.

    Returns:
        ``tag``, ``finished`` (UTC), ``command``, ``system`` (see ``System.describe``), ``pools`` (a list:
        ``path``, and where a file is a split of a collection its ``collection``, ``fingerprint``,
        ``source``, ``split`` and ``first_stage``), ``work`` (a ``ScoredRun``), and ``hardware``,
        ``operating_system`` and ``versions`` of the process that merged it.
    """
    return {
        "tag": tag,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "system": system.describe(),
        "pools": [_pools(path) for path in dict.fromkeys(unit.path for unit in units)],
        "work": asdict(scored),
        "hardware": environment.hardware(),
        "operating_system": environment.operating_system(),
        "versions": environment.versions(),
    }


def _pools(path: str) -> dict[str, Any]:
    """A pools file, and the collection that it is a split of."""
    found: dict[str, Any] = {"path": path}
    file = Path(path)
    if is_remote(path) or not (file.parent / MANIFEST).is_file():
        return found
    try:
        collection = CollectionFiles(file.parent)
    except AptoolError:
        return found
    split = file.name.removesuffix(POOLS_SUFFIX)
    if split in collection.splits:
        found |= {
            "collection": collection.name,
            "fingerprint": collection.fingerprint,
            "source": collection.manifest["source"],
            "split": split,
            "first_stage": collection.manifest["details"].get("first_stage", {}).get(split),
        }
    return found
