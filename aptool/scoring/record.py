"""Records of scoring: one per unit, the summary of a run, and the metadata of a run file."""

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

    number: int  # of the unit, among the units to score
    pairs: int
    worker: str  # host and process id
    attempts: int = 1  # more than one if workers were lost
    again: bool = False  # a second worker scored the unit of a straggler
    seconds: float = 0.0  # wall time that the worker spent on the unit
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    error: str = ""  # one line; empty if the unit was scored
    fatal: bool = False  # every other unit would fail with the same error


@dataclass(frozen=True)
class ScoredRun:
    """The size and cost of a scored run."""

    pairs: int
    truncated: int  # answers truncated at the model's limit, counted per unit
    units: int
    resumed: int  # units that an earlier call had scored
    retried: int  # units that were retried because a worker was lost
    run_twice: int  # units of stragglers that a second worker scored first
    workers: int  # processes that scored
    seconds: float  # wall time of the last call, without resumed units
    core_seconds: float  # time that the workers' cores spent on units
    gpu_seconds: float  # time that the workers' GPUs spent on units


def gather(
    tag: str, system: System, units: Sequence[Unit], scored: ScoredRun, command: str | None
) -> dict[str, Any]:
    """The metadata of a run, as plain values that JSON can hold.

    Returns:
        ``tag``, ``finished`` (UTC), ``command`` (None from Python), ``system`` (see ``System.describe``),
        ``pools`` (see ``_pools``), ``work`` (a ``ScoredRun``), and ``hardware``, ``operating_system`` and
        ``versions`` of the process that merged it.
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
    """The path of a pools file, and the collection and split that it belongs to."""
    pools: dict[str, Any] = {"path": path}
    file = Path(path)
    if is_remote(path) or not (file.parent / MANIFEST).is_file():
        return pools
    try:
        collection = CollectionFiles(file.parent)
    except AptoolError:
        return pools
    split = file.name.removesuffix(POOLS_SUFFIX)
    if split in collection.splits:
        pools |= {
            "collection": collection.name,
            "fingerprint": collection.fingerprint,
            "source": collection.manifest["source"],
            "split": split,
            "first_stage": collection.manifest["details"].get("first_stage", {}).get(split),
        }
    return pools
