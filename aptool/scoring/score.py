"""Scoring: units and a system in, a run out.

``score`` writes a run file: it checks the output and the tag, finds the missing parts, merges all parts,
reports truncated answers and writes the run's metadata beside the file (``formats.ir_metadata``). An
``Executor`` decides where units are scored; the bytes of the run file do not depend on the executor.
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

from aptool import environment
from aptool.formats.claim import Claim, claimed_folder
from aptool.formats.ids import check_one_word
from aptool.formats.ir_metadata import check_metadata, check_run_output, write_metadata
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.pools import Answers, Unit, read_answers
from aptool.formats.storage import Input, check_unchanged, stat
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
from aptool.scoring.record import ScoredRun, UnitRecord, gather, summarize
from aptool.scoring.systems import System

if TYPE_CHECKING:
    from aptool.scoring.model_system import ModelLoader

logger = logging.getLogger(__name__)

AnySystem: TypeAlias = "System | ModelLoader | BaselineLoader"


class Executor(ABC):
    """Scores units in this process or elsewhere. One call of ``score`` at a time uses an executor."""

    def drive(self, work: Callable[["Executor"], ScoredRun]) -> ScoredRun:
        """Calls ``work`` with the executor to use: itself, unless another process has to hand out units."""
        return work(self)

    @abstractmethod
    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        """Opens a system to score these units; for ``plan`` its fingerprint, tag and limit suffice.

        Raises:
            AptoolError: the system cannot be opened.
        """

    @contextlib.contextmanager
    def claim(self, output: Location) -> Iterator[Claim]:
        """Claims ``output``, and provides the folder for its parts, while the block runs.

        Raises:
            InputError: another process is writing it.
        """
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

        When the generator ends, all parts are complete and readable by this process.

        Args:
            parts: all parts of the run.
            missing: those to write.
            system: the system that ``open`` returned.
            answers: the file with the texts of shared answers.
            meter: counts the pairs of the missing parts that are scored.

        Raises:
            AptoolError: a unit cannot be scored; parts that are written stay.
        """


class LocalExecutor(Executor):
    """Scores in this process."""

    def __init__(self) -> None:
        self._answers: Answers | None = None

    def open(self, system: AnySystem, units: Sequence[Unit], answers: Input | None) -> System:
        """See ``Executor.open``."""
        opened, self._answers = _open(system, units, answers)
        return opened

    def run(
        self,
        parts: Sequence[Part],
        missing: Sequence[Part],
        system: System,
        answers: Input | None,
        meter: PairMeter,
    ) -> Generator[UnitRecord]:
        """See ``Executor.run``."""

        def write(scores: UnitScores) -> None:
            write_part(missing[scores.number], scores.frame, scores.truncated)

        units = [part.unit for part in missing]
        yield from score_units(units, system, self._answers, meter, write)


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
) -> ScoredRun:
    """Scores pools into a TREC run file; resumes from the parts that an interrupted call left.

    Args:
        units: the row groups to score.
        system: the system; a ``ModelLoader`` for a trained model, a ``BaselineLoader`` for an untrained one.
        output: the run file; gzip if its name ends in ``.gz``.
        executor: where to score; None is this process.
        tag: the tag of the run, one word; None is the system's.
        answers: the file with the texts of shared answers; None is ``answers.parquet`` beside the pools.

    Raises:
        UsageError: the tag is not one word, or there is no such device.
        InputError: an input is not valid, or the output or its metadata cannot be written.
        AptoolError: a unit could not be scored; parts that are written stay.
    """
    if tag is not None:
        check_one_word("tag", tag)
    check_run_output(output)
    shared = _input(answers)
    check_metadata(location(output))
    executor = executor if executor is not None else LocalExecutor()
    return executor.drive(partial(_score, units, system, output, tag, shared, environment.command()))


def score_in_memory(
    units: Sequence[Unit], system: AnySystem, *, answers: PathOrUrl | None = None
) -> tuple[pl.DataFrame, str]:
    """Score pools in this process, without a run file.

    Args:
        units: the row groups to score.
        system: see ``score``.
        answers: see ``score``.

    Returns:
        question_id, answer_id, score (f64): the rows of the run file that ``score`` writes; the system's tag.

    Raises:
        InputError: an input is not valid.
        AptoolError: a unit could not be scored.
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


def _score(
    units: Sequence[Unit],
    system: AnySystem,
    output: PathOrUrl,
    tag: str | None,
    answers: Input | None,
    command: str | None,
    executor: Executor,
) -> ScoredRun:
    started = time.monotonic()
    with get_progress().task("loading model"):
        opened = executor.open(system, units, answers)
    tag = tag if tag is not None else opened.tag
    parts = plan(units, opened, output, tag, answers)
    inputs = _inputs(units, answers)
    with executor.claim(location(output)) as claim, get_progress().task("score") as update:
        missing = missing_parts(parts)
        pairs = [part.pairs for part in missing]
        meter = PairMeter(update, pairs, sum(part.pairs for part in parts) - sum(pairs))
        with contextlib.closing(executor.run(parts, missing, opened, answers, meter)) as scored:
            records = list(scored)
        check_unchanged(inputs)
        merged = merge(parts, output, claim.check)
    _log_truncated(merged.truncated, opened)
    scored_run = summarize(
        records,
        units=len(parts),
        missing=len(missing),
        pairs=merged.pairs,
        truncated=merged.truncated,
        seconds=time.monotonic() - started,
    )
    write_metadata(location(output), gather(tag, opened, units, scored_run, command))
    return scored_run


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
