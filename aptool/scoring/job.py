"""Units of scoring: planned, read and scored.

A unit is one row group of a pools file. Its scores go to a part, a file that is written under a temporary
name and renamed to a hash of the input, the row group, the system and the tag. A part is therefore complete
and up to date or does not exist: an interrupted run resumes from the parts it left, and never takes a part of
another input or another system. One process and a cluster map the same functions over the units.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.errors import AptoolError, InputError
from aptool.formats import storage
from aptool.formats.footer import candidate_counts, read_footer, row_groups
from aptool.formats.location import PathOrUrl
from aptool.formats.pools import Answers, Unit, answers_beside, read_pools
from aptool.formats.storage import Input
from aptool.formats.urls import is_remote
from aptool.scoring.parts import Part, parts_folder
from aptool.scoring.systems import System


class Task(NamedTuple):
    """A unit that has been read and prepared: the input of ``score_task``."""

    part: Part
    question_ids: pa.Array  # (pools,)
    answer_ids: pa.Array  # (pairs,)
    pair_question: np.ndarray  # (pairs,)
    prepared: Any  # the result of ``System.prepare``


def plan(
    units: Iterable[Unit], system: System, output: PathOrUrl, tag: str, answers: Input | None = None
) -> list[Part]:
    """Names the part of every unit by everything that its lines depend on.

    Args:
        units: the units.
        system: what will score them.
        output: the run file.
        tag: of the run.
        answers: the file of shared answers; None is ``answers.parquet`` beside each file of pools.

    Raises:
        InputError: an input cannot be read.
    """
    folder = parts_folder(output)
    parts = []
    footers: dict[str, tuple[str, str | None, list[int]]] = {}
    for unit in units:
        if unit.path not in footers:
            identity, footer = _identity(unit.path, unit.version)
            used = answers if answers is not None else shared_input(unit.path)
            shared = _identity(*used)[0] if used is not None else None
            footers[unit.path] = identity, shared, _pairs(unit.path, footer)
        identity, shared, pairs = footers[unit.path]
        facts = [identity, unit.row_group, system.fingerprint, shared, tag]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
        parts.append(Part(unit, folder / f"{digest}.part", pairs[unit.row_group], tag))
    return parts


def shared_input(pools: str) -> Input | None:
    """The answers file beside a file of pools, as an input."""
    beside = answers_beside(pools)
    return Input(str(beside), storage.stat(beside).version) if beside is not None else None


def read_task(part: Part, system: System, answers: Answers | None) -> Task:
    """Reads a unit and prepares it to be scored.

    Raises:
        InputError: the unit cannot be read.
    """
    pools = read_pools(part.unit, answers)
    return Task(part, pools.question_ids, pools.answer_ids, pools.pair_question, system.prepare(pools))


def score_task(
    task: Task, system: System, scored: Callable[[int], None] = lambda pairs: None
) -> pl.DataFrame:
    """Scores all pairs of a unit: question_id, answer_id, score (f32), in the order of the pools.

    Args:
        task: the unit.
        system: what scores it.
        scored: called with the number of pairs of each block that is scored.

    Raises:
        AptoolError: a score is NaN or infinite.
    """
    scores = system.score_reporting(task.prepared, scored)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        question = task.question_ids[int(task.pair_question[bad[0]])].as_py()
        answer = task.answer_ids[int(bad[0])].as_py()
        unit = task.part.unit
        raise AptoolError(
            f"{unit.path}: row group {unit.row_group}: question {question!r}, answer {answer!r}: "
            f"score {scores[bad[0]]}: expected a finite number"
        )
    return pl.DataFrame(
        {
            "question_id": pl.Series(task.question_ids).gather(task.pair_question),
            "answer_id": pl.Series(task.answer_ids),
            "score": scores.astype(np.float32, copy=False),
        }
    )


def digest_of(path: str) -> str:
    """A hash of a file's end, which has the places and statistics of a Parquet file's columns."""
    with storage.open_native(path) as file:
        return hashlib.sha256(_tail(file)).hexdigest()


def _tail(file: pa.NativeFile) -> bytes:
    file.seek(max(0, file.size() - (1 << 16)))
    return bytes(file.read())


def _identity(path: str, version: str | None) -> tuple[str, bytes]:
    """What distinguishes a file from another that replaced it, and its footer."""
    with storage.open_native(path, version) as file:
        tail = _tail(file)
        footer = read_footer(file)
    digest = hashlib.sha256(tail).hexdigest()
    # A folder of this machine may be moved; elsewhere nothing but the whole URL names a file.
    name = path if is_remote(path) else Path(path).name
    return json.dumps([name, version, digest]), footer


def _pairs(path: str, footer: bytes) -> list[int]:
    """The number of pairs of each row group."""
    try:
        return candidate_counts(row_groups(footer))
    except ValueError as error:
        raise InputError(path, problem=str(error), expected="a readable Parquet file") from error
