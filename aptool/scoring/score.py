"""Scoring of pools with a system into a run.

``score`` writes a run file: it scores the missing parts, merges all parts and writes the metadata file. An
``Executor`` decides where row groups are scored; the bytes of the run file do not depend on it.
``score_in_memory`` scores in this process and returns the same scores as a table.
"""

import contextlib
import datetime
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
from typing_extensions import override

from aptool import environment
from aptool.errors import AptoolError
from aptool.formats.atomic import check_apart
from aptool.formats.claim import Claim, claimed_folder
from aptool.formats.collection import MANIFEST, POOLS_SUFFIX, CollectionFiles
from aptool.formats.inputs import Input, check_unchanged
from aptool.formats.ir_metadata import check_metadata, write_metadata
from aptool.formats.location import Location, PathOrUrl, is_remote, location
from aptool.formats.pools import Answers, Unit, answers_beside, read_answers
from aptool.formats.trec import check_run_output, log_ties, questions_with_ties
from aptool.progress import get_progress
from aptool.scoring.parts import (
    Part,
    current_input,
    merge,
    missing_parts,
    parts_folder,
    plan,
    unit_pairs,
    write_part,
)
from aptool.scoring.pipeline import MemorySink, PairMeter, UnitRecord, UnitScores, score_units
from aptool.scoring.server import RerankServer
from aptool.scoring.systems import BaselineLoader, System

if TYPE_CHECKING:
    from aptool.scoring.model_system import ModelLoader
    from aptool.scoring.passages import PassageLoader

logger = logging.getLogger(__name__)

AnySystem: TypeAlias = "System | ModelLoader | BaselineLoader | PassageLoader | RerankServer"


@dataclass(frozen=True)
class ScoredRun:
    """The size and cost of a scored run."""

    pairs: int
    truncated: int  # answers, or passages, truncated at the model's token limit, counted per unit
    units: int
    resumed: int  # units that an earlier call scored
    retried: int  # units retried after the loss of a worker
    run_twice: int  # units of stragglers that a second worker scored first
    workers: int  # worker processes
    seconds: float  # wall time of the last call, without resumed units
    core_seconds: float  # CPU time of the workers
    gpu_seconds: float  # GPU time of the workers


class Executor(ABC):
    """Scores units in this process or elsewhere; used by one call of ``score`` at a time."""

    @abstractmethod
    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        """Open a system to score these units, or a proxy with its fingerprint, tag and token limit.

        ``answers`` is the file with the texts of shared answers.
        """

    @contextlib.contextmanager
    def claim(self, output: Location) -> Iterator[Claim]:
        """Claim the run file and create the folder of its parts while the block runs."""
        with claimed_folder(parts_folder(output), output) as claim:
            yield claim

    @abstractmethod
    def run(self, missing: Sequence[Part], system: System, meter: PairMeter) -> Generator[UnitRecord]:
        """Write the missing parts with the system that ``open`` returned; yield a record per written part.

        When the generator ends, this process can read all parts. After an error, written parts remain.
        """

    def log_summary(self, scored: ScoredRun) -> None:  # noqa: B027 - optional
        """Log the cost of a run; does nothing by default."""


class LocalExecutor(Executor):
    """Scores in this process."""

    def __init__(self) -> None:
        self._answers: Answers | None = None

    @override
    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        opened, self._answers = _open(system, units, answers)
        return opened

    @override
    def run(self, missing: Sequence[Part], system: System, meter: PairMeter) -> Generator[UnitRecord]:
        def write(scores: UnitScores) -> None:
            write_part(missing[scores.number], scores.frame, scores.truncated)

        units = [part.unit for part in missing]
        return score_units(units, system, self._answers, meter, write)


def _open(system: AnySystem, units: Sequence[Unit], answers: Input | None) -> tuple[System, Answers | None]:
    """Open a system in this process; return it and the shared answers."""
    texts = read_answers(*answers) if answers is not None else None
    return system if isinstance(system, System) else system.load(units, texts), texts


def score(
    units: Sequence[Unit],
    system: AnySystem,
    output: PathOrUrl,
    executor: Executor | None = None,
    *,
    tag: str | None = None,
    answers: PathOrUrl | None = None,
) -> ScoredRun:
    """Score pools into a TREC run file; resume from the parts of an interrupted call.

    Args:
        units: the row groups to score.
        system: the system, or the loader that opens it.
        output: the run file; gzip if its name ends in ``.gz``.
        executor: scores the units; None is this process.
        tag: the tag of the run, one word; None is the tag of the system.
        answers: the file with the texts of shared answers; None is ``answers.parquet`` next to the pools.
    """
    check_run_output(output)
    check_metadata(location(output))
    executor = executor if executor is not None else LocalExecutor()
    started = time.monotonic()
    shared = current_input(answers)
    with get_progress().task("loading model"):
        opened = executor.open(system, units, shared)
    tag = tag if tag is not None else opened.tag
    parts = plan(units, opened, output, tag, shared)
    inputs = input_files(units, shared)
    check_apart(output, (file.path for file in inputs))
    with executor.claim(location(output)) as claim, get_progress().task("score") as update:
        missing = missing_parts(parts)
        pairs = [part.pairs for part in missing]
        meter = PairMeter(update, pairs, sum(part.pairs for part in parts) - sum(pairs))
        with contextlib.closing(executor.run(missing, opened, meter)) as scored:
            records = list(scored)
        check_unchanged(inputs)
        truncated = merge(parts, output, claim.check)
    _log_truncated(truncated, opened)
    scored_run = ScoredRun(
        pairs=sum(part.pairs for part in parts),
        truncated=truncated,
        units=len(parts),
        resumed=len(parts) - len(missing),
        retried=sum(record.attempts > 1 for record in records),
        run_twice=sum(record.again for record in records),
        workers=len({record.worker for record in records}),
        seconds=round(time.monotonic() - started, 3),
        core_seconds=round(sum(record.core_seconds for record in records), 3),
        gpu_seconds=round(sum(record.gpu_seconds for record in records), 3),
    )
    write_metadata(location(output), run_metadata(tag, opened, units, scored_run))
    executor.log_summary(scored_run)
    return scored_run


def score_in_memory(
    units: Sequence[Unit], system: AnySystem, *, answers: PathOrUrl | None = None
) -> tuple[pl.DataFrame, str]:
    """Score pools in this process, without a run file; arguments as in ``score``.

    Returns:
        question_id, answer_id, score (f64), as in the run file that ``score`` writes; the tag of the system.
    """
    shared = current_input(answers)
    with get_progress().task("loading model"):
        opened, texts = _open(system, units, shared)
    inputs, sink = input_files(units, shared), MemorySink(units)
    with get_progress().task("score") as update:
        meter = PairMeter(update, unit_pairs(units))
        for _ in score_units(units, opened, texts, meter, sink):
            pass
        check_unchanged(inputs)
        frame = sink.frame()
    log_ties(opened.tag, questions_with_ties(frame))
    _log_truncated(sink.truncated, opened)
    return frame, opened.tag


def _log_truncated(truncated: int, system: System) -> None:
    if truncated:
        limit = system.max_answer_tokens
        logger.info(f"{truncated} {system.scored_texts} were truncated to {limit} tokens")


def input_files(units: Sequence[Unit], answers: Input | None) -> list[Input]:
    """Return the pools files of units and the files of their shared answers, each once."""
    files = dict.fromkeys(Input(unit.path, unit.version) for unit in units)
    paths = dict.fromkeys(file.path for file in files)
    shared = [answers] if answers is not None else (current_input(answers_beside(path)) for path in paths)
    return [*files, *dict.fromkeys(file for file in shared if file is not None)]


def run_metadata(tag: str, system: System, units: Sequence[Unit], scored: ScoredRun) -> dict[str, Any]:
    """Return the metadata of a run, as JSON values; hardware and versions are those of this process."""
    return {
        "tag": tag,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": environment.command(),
        "system": system.describe(),
        "pools": [_pools(path) for path in dict.fromkeys(unit.path for unit in units)],
        "work": asdict(scored),
        "hardware": environment.hardware(),
        "operating_system": environment.operating_system(),
        "versions": environment.versions(),
    }


def _pools(path: str) -> dict[str, Any]:
    """Return the path of a pools file, and its collection and split, if any."""
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
