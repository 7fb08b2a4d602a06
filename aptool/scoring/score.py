"""From pools and a system to a run.

``score_files`` writes a run file: it scores the missing parts, merges all parts and writes the metadata
file. An ``Executor`` decides where row groups are scored; the bytes of the run file do not depend on it.
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
from typing import Any

import polars as pl
from typing_extensions import override

from aptool import environment
from aptool.errors import InputError
from aptool.formats.atomic import check_apart
from aptool.formats.claim import Claim, claimed_folder
from aptool.formats.collection import POOLS_SUFFIX, collection_beside
from aptool.formats.inputs import Input, check_unchanged
from aptool.formats.ir_metadata import check_metadata, write_metadata
from aptool.formats.local_store import free_bytes
from aptool.formats.location import Location, PathOrUrl, is_remote, location, output_location
from aptool.formats.outputs import sha256_of_output
from aptool.formats.pools import Answers, Unit, answers_beside, read_answers
from aptool.formats.runs import Shard, check_run_output, is_table, main_file
from aptool.formats.trec import count_ties, log_ties
from aptool.progress import Bar, progress
from aptool.scoring.merge import ShardTask, merge, write_shard
from aptool.scoring.parts import (
    Part,
    current_input,
    line_bytes,
    missing_parts,
    parts_folder,
    plan,
    unit_pairs,
    write_part,
)
from aptool.scoring.pipeline import MemorySink, UnitRecord, UnitScores, Work, run_pipelines
from aptool.scoring.systems import Scorer, System

logger = logging.getLogger(__name__)

# Pairs from which the disk space of a run is estimated, and the size of a packed run per byte of its lines.
_LARGE_RUN = 1_000_000
_PACKED = 0.2


@dataclass(frozen=True)
class ScoredRun:
    """The size and cost of a scored run."""

    pairs: int
    truncated: int  # answers truncated at the model's token limit, counted per unit
    units: int
    resumed: int  # units that an earlier call scored
    retried: int  # units retried after the loss of a worker
    run_twice: int  # units of stragglers that a second worker started
    workers: int  # worker processes
    seconds: float  # wall time of the last call, without resumed units
    core_seconds: float  # CPU time of the workers
    gpu_seconds: float  # GPU time of the workers


class Executor(ABC):
    """Scores units in this process or elsewhere; used by one call of ``score_files`` at a time."""

    @abstractmethod
    def open(self, system: System, units: Sequence[Unit], answers: Input | None) -> Scorer:
        """Open a system to score these units, or an equal scorer that identifies it.

        ``answers`` is the file with the texts of shared answers.
        """

    @contextlib.contextmanager
    def claim(self, output: Location) -> Iterator[Claim]:
        """Claim the run file and create the folder of its parts while the block runs."""
        with claimed_folder(parts_folder(output), output) as claim:
            yield claim

    @abstractmethod
    def run(self, missing: Sequence[Part], scorer: Scorer, bar: Bar) -> Generator[UnitRecord]:
        """Write the missing parts with the scorer that ``open`` returned; yield a record per written part.

        When the generator ends, this process can read all parts. After an error, written parts remain.
        """

    def write_shards(self, tasks: Sequence[ShardTask]) -> Sequence[Shard]:
        """Write the shards of a run, whose parts this process can read."""
        return [write_shard(task) for task in tasks]

    def log_summary(self, scored: ScoredRun) -> None:  # noqa: B027 - optional
        """Log the cost of a run; does nothing by default."""


class LocalExecutor(Executor):
    """Scores in this process."""

    def __init__(self) -> None:
        self._answers: Answers | None = None

    @override
    def open(self, system: System, units: Sequence[Unit], answers: Input | None) -> Scorer:
        self._answers = read_answers(*answers) if answers is not None else None
        return system.open(units, self._answers)

    @override
    def run(self, missing: Sequence[Part], scorer: Scorer, bar: Bar) -> Generator[UnitRecord]:
        def write(scores: UnitScores) -> None:
            write_part(missing[scores.number], scores.frame, scores.truncated)

        units = [part.unit for part in missing]
        return run_pipelines(units, scorer, self._answers, bar, write)


def score_files(
    units: Sequence[Unit],
    system: System,
    output: PathOrUrl,
    executor: Executor | None = None,
    *,
    tag: str | None = None,
    answers: PathOrUrl | None = None,
) -> ScoredRun:
    """Score pools into a run of any form; resume from the parts of an interrupted call.

    Args:
        units: the row groups to score.
        system: the system to open.
        output: the run; its name decides the form, see ``formats.runs``.
        executor: scores the units; None is this process.
        tag: the tag of the run, one word; None is the tag of the scorer.
        answers: the file with the texts of shared answers; None is ``answers.parquet`` next to the pools.
    """
    check_run_output(output)
    check_metadata(location(output))
    executor = executor if executor is not None else LocalExecutor()
    started = time.monotonic()
    shared = current_input(answers)
    with progress("loading model"):
        scorer = executor.open(system, units, shared)
    tag = tag if tag is not None else scorer.tag
    parts = plan(units, scorer, output, tag, shared)
    inputs = input_files(units, shared)
    check_apart(output, (file.path for file in inputs))
    with executor.claim(location(output)) as claim:
        missing = missing_parts(parts)
        _check_room(missing, parts, output)
        pairs, work = sum(part.pairs for part in parts), Work()
        with (
            progress("score", pairs, "pairs", pairs - sum(part.pairs for part in missing)) as bar,
            contextlib.closing(executor.run(missing, scorer, bar)) as scored,
        ):
            for record in scored:
                work.add(record)
        check_unchanged(inputs)
        merged = merge(parts, output, claim.check, executor.write_shards)
    _log_truncated(merged.truncated, scorer)
    scored_run = ScoredRun(
        pairs=merged.pairs,
        truncated=merged.truncated,
        units=len(parts),
        resumed=len(parts) - len(missing),
        retried=work.retried,
        run_twice=work.run_twice,
        workers=len(work.workers),
        seconds=round(time.monotonic() - started, 3),
        core_seconds=round(work.core_seconds, 3),
        gpu_seconds=round(work.gpu_seconds, 3),
    )
    sha256 = sha256_of_output(main_file(output))
    write_metadata(location(output), run_metadata(tag, scorer, units, scored_run), sha256)
    executor.log_summary(scored_run)
    return scored_run


def _check_room(missing: Sequence[Part], parts: Sequence[Part], output: PathOrUrl) -> None:
    """Log the disk space that a large run needs; raise if the disk clearly lacks it."""
    final = output_location(output)
    pairs = sum(part.pairs for part in parts)
    if not isinstance(final, Path) or pairs < _LARGE_RUN:
        return
    line = line_bytes([part.unit for part in parts], parts[0].tag)
    packed = _PACKED if is_table(output) or str(output).rstrip("/").endswith(".gz") else 1.0
    needed = int(line * (sum(part.pairs for part in missing) + pairs * packed))
    free = free_bytes(final)
    if needed > free:
        expected = f"about {needed:,} for the parts and the run"
        raise InputError(output, problem=f"{free:,} bytes free", expected=expected)
    logger.info(f"{output}: about {needed / 1e9:.1f} GB for the parts and the run, {free / 1e9:.1f} GB free")


def score_in_memory(
    units: Sequence[Unit], system: System, *, answers: PathOrUrl | None = None
) -> tuple[pl.DataFrame, str]:
    """Score pools in this process, without a run file; arguments as in ``score_files``.

    Returns:
        question_id, answer_id, score (f64), as in the run file of ``score_files``; the tag of the scorer.
    """
    shared = current_input(answers)
    with progress("loading model"):
        texts = read_answers(*shared) if shared is not None else None
        scorer = system.open(units, texts)
    inputs, sink = input_files(units, shared), MemorySink(units)
    with progress("score", sum(unit_pairs(units)), "pairs") as bar:
        for _ in run_pipelines(units, scorer, texts, bar, sink):
            pass
        check_unchanged(inputs)
        frame = sink.frame()
    log_ties(scorer.tag, *count_ties(frame))
    _log_truncated(sink.truncated, scorer)
    return frame, scorer.tag


def _log_truncated(truncated: int, scorer: Scorer) -> None:
    if truncated:
        logger.info(f"{truncated} answers were truncated to {scorer.max_answer_tokens} tokens")


def input_files(units: Sequence[Unit], answers: Input | None) -> list[Input]:
    """Return the pools files of units and the files of their shared answers, each once."""
    files = dict.fromkeys(Input(unit.path, unit.version) for unit in units)
    paths = dict.fromkeys(file.path for file in files)
    shared = [answers] if answers is not None else (current_input(answers_beside(path)) for path in paths)
    return [*files, *dict.fromkeys(file for file in shared if file is not None)]


def run_metadata(tag: str, scorer: Scorer, units: Sequence[Unit], scored: ScoredRun) -> dict[str, Any]:
    """Return the metadata of a run, as JSON values; hardware and versions are those of this process."""
    return {
        "tag": tag,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": environment.command(),
        "system": scorer.description,
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
    collection = None if is_remote(path) else collection_beside(file)
    if collection is None:
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
