"""Scoring: units and a system in, a run out.

``score`` writes a run file: it scores the missing parts, merges all parts and writes the metadata beside the
file. An ``Executor`` decides where units are scored; the bytes of the run file do not depend on it.
``score_in_memory`` scores in this process and returns the same scores as a table.
"""

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import polars as pl
from typing_extensions import override

from aptool import environment
from aptool.formats.claim import Claim, claimed_folder
from aptool.formats.ir_metadata import check_metadata, write_metadata
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.pools import Answers, Unit, read_answers
from aptool.formats.storage import Input, check_unchanged, stat
from aptool.formats.trec import check_run_output
from aptool.models.device import pick_device
from aptool.progress import get_progress
from aptool.scoring.baselines import BaselineLoader
from aptool.scoring.parts import (
    Part,
    merge,
    missing_parts,
    parts_folder,
    plan,
    shared_input,
    unit_pairs,
    write_part,
)
from aptool.scoring.pipeline import MemorySink, PairMeter, UnitScores, score_units
from aptool.scoring.precision import sample_units, sampled_pools
from aptool.scoring.record import ScoredRun, UnitRecord, gather
from aptool.scoring.systems import System

if TYPE_CHECKING:
    from aptool.scoring.model_system import ModelLoader

logger = logging.getLogger(__name__)

AnySystem: TypeAlias = "System | ModelLoader | BaselineLoader"


class Executor(ABC):
    """Scores units in this process or elsewhere. One call of ``score`` at a time uses an executor."""

    def delegate(self, work: Callable[["Executor"], ScoredRun]) -> ScoredRun | None:
        """Call ``work`` in another process if this one cannot assign units; return None otherwise."""
        return None

    @abstractmethod
    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        """Open a system to score these units; for ``plan`` its fingerprint, tag and limit suffice."""

    @contextlib.contextmanager
    def claim(self, output: Location) -> Iterator[Claim]:
        """Claim ``output`` and create the folder of its parts while the block runs."""
        with claimed_folder(parts_folder(output), output) as claim:
            yield claim

    @abstractmethod
    def run(
        self,
        parts: Sequence[Part],
        missing: Sequence[Part],
        system: System,
        answers: Input | None,
        meter: PairMeter,
    ) -> Generator[UnitRecord]:
        """Write the missing parts; yield a record of each once it is written.

        When the generator ends, all parts are complete and readable by this process. After an error, the
        written parts stay.

        Args:
            parts: all parts of the run.
            missing: the parts to write.
            system: the system that ``open`` returned.
            answers: the file with the texts of shared answers.
            meter: counts the scored pairs of the missing parts.
        """

    def log_summary(self, scored: ScoredRun) -> None:  # noqa: B027 - optional
        """Log the cost of a run; by default nothing."""


class LocalExecutor(Executor):
    """Scores in this process."""

    def __init__(self) -> None:
        self._answers: Answers | None = None

    @override
    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        opened, self._answers = _open(system, units, answers)
        return opened

    @override
    def run(
        self,
        parts: Sequence[Part],
        missing: Sequence[Part],
        system: System,
        answers: Input | None,
        meter: PairMeter,
    ) -> Generator[UnitRecord]:

        def write(scores: UnitScores) -> None:
            write_part(missing[scores.number], scores.frame, scores.truncated)

        units = [part.unit for part in missing]
        return score_units(units, system, self._answers, meter, write)


def _open(system: AnySystem, units: Sequence[Unit], answers: Input | None) -> tuple[System, Answers | None]:
    """Open a system in this process, and read the shared answers."""
    texts = read_answers(*answers) if answers is not None else None
    if isinstance(system, BaselineLoader):
        return system.load(units, texts), texts
    if isinstance(system, System):
        return system, texts
    device, sample = pick_device(system.device), sample_units(units)
    return system.load(device, lambda: sampled_pools(sample, texts)), texts


def score(
    units: Sequence[Unit],
    system: AnySystem,
    output: PathOrUrl,
    executor: Executor | None = None,
    *,
    tag: str | None = None,
    answers: PathOrUrl | None = None,
    command: str | None = None,
) -> ScoredRun:
    """Score pools into a TREC run file; resume from the parts of an interrupted call.

    Args:
        units: the row groups to score.
        system: the system; a ``ModelLoader`` for a trained model, a ``BaselineLoader`` for an untrained one.
        output: the run file; gzip if its name ends in ``.gz``.
        executor: where to score; None is this process.
        tag: the tag of the run, one word; None is the system's.
        answers: the file with the texts of shared answers; None is ``answers.parquet`` beside the pools.
        command: the command line for the metadata; None is that of this process, if it is one.
    """
    check_run_output(output)
    check_metadata(location(output))
    executor = executor if executor is not None else LocalExecutor()
    command = command if command is not None else environment.command()
    work = partial(score, units, system, output, tag=tag, answers=answers, command=command)
    if (scored_run := executor.delegate(work)) is not None:
        executor.log_summary(scored_run)
        return scored_run
    started = time.monotonic()
    shared = _input(answers)
    with get_progress().task("loading model"):
        opened = executor.open(system, units, shared)
    tag = tag if tag is not None else opened.tag
    parts = plan(units, opened, output, tag, shared)
    inputs = _inputs(units, shared)
    with executor.claim(location(output)) as claim, get_progress().task("score") as update:
        missing = missing_parts(parts)
        pairs = [part.pairs for part in missing]
        meter = PairMeter(update, pairs, sum(part.pairs for part in parts) - sum(pairs))
        with contextlib.closing(executor.run(parts, missing, opened, shared, meter)) as scored:
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
    write_metadata(location(output), gather(tag, opened, units, scored_run, command))
    executor.log_summary(scored_run)
    return scored_run


def score_in_memory(
    units: Sequence[Unit], system: AnySystem, *, answers: PathOrUrl | None = None
) -> tuple[pl.DataFrame, str]:
    """Score pools in this process, without a run file; see ``score``.

    Returns:
        question_id, answer_id, score (f64): the rows of the run file that ``score`` writes; the system's tag.
    """
    shared = _input(answers)
    with get_progress().task("loading model"):
        opened, texts = _open(system, units, shared)
    inputs, sink = _inputs(units, shared), MemorySink(units)
    with get_progress().task("score") as update:
        meter = PairMeter(update, unit_pairs(units))
        for _ in score_units(units, opened, texts, meter, sink):
            pass
        check_unchanged(inputs)
        frame = sink.frame()
    _log_truncated(sink.truncated, opened)
    return frame, opened.tag


def _log_truncated(truncated: int, system: System) -> None:
    if truncated:
        logger.info(f"{truncated} answers were truncated to {system.max_answer_tokens} tokens")


def _input(answers: PathOrUrl | None) -> Input | None:
    return Input(str(answers), stat(answers).version) if answers is not None else None


def _inputs(units: Sequence[Unit], answers: Input | None) -> list[Input]:
    files = dict.fromkeys(Input(unit.path, unit.version) for unit in units)
    paths = dict.fromkeys(file.path for file in files)
    beside = [answers] if answers is not None else map(shared_input, paths)
    return [*files, *dict.fromkeys(file for file in beside if file is not None)]
