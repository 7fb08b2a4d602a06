"""Units of scoring: planned, read and scored.

A unit is one row group of a pools file. Its scores go to a part, a file that is written under a temporary
name and renamed to a hash of the input, the row group, the system and the tag. A part is therefore complete
and up to date or does not exist: an interrupted run resumes from the parts it left, and never takes a part of
another input or another system. One process and a cluster map the same functions over the units.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.errors import AptoolError, InputError
from aptool.formats import storage
from aptool.formats.footer import value_counts
from aptool.formats.location import PathOrUrl
from aptool.formats.pools import Answers, Unit, read_pools
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

    Raises:
        InputError: an input cannot be read.
    """
    folder = parts_folder(output)
    parts = []
    footers: dict[str, tuple[str, list[int]]] = {}
    shared = _identity(*answers)[0] if answers is not None else None
    for unit in units:
        if unit.path not in footers:
            footers[unit.path] = _identity(unit.path, unit.version)
        identity, pairs = footers[unit.path]
        name = json.dumps([identity, unit.row_group, system.fingerprint, shared, tag])
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        parts.append(Part(unit, folder / f"{digest}.part", pairs[unit.row_group], tag))
    return parts


def read_task(part: Part, system: System, answers: Answers | None) -> Task:
    """Reads a unit and prepares it to be scored.

    Raises:
        InputError: the unit cannot be read.
    """
    pools = read_pools(part.unit, answers)
    return Task(part, pools.question_ids, pools.answer_ids, pools.pair_question, system.prepare(pools))


def score_task(task: Task, system: System) -> pl.DataFrame:
    """Scores all pairs of a unit: question_id, answer_id, score (f32), in the order of the pools.

    Raises:
        AptoolError: a score is NaN or infinite.
    """
    scores = system.score(task.prepared)
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


def _identity(path: str, version: str | None) -> tuple[str, list[int]]:
    """What distinguishes a file from another that replaced it, and the number of pairs of each row group."""
    with storage.open_native(path, version) as file:
        size = file.size()
        file.seek(max(0, size - (1 << 16)))
        tail = file.read()
        length = int.from_bytes(tail[-8:-4], "little")
        file.seek(max(0, size - 8 - length))
        footer = file.read(length)
    digest = hashlib.sha256(tail).hexdigest()
    try:
        groups = value_counts(footer)
    except ValueError as error:
        raise InputError(path, problem=str(error), expected="a readable Parquet file") from error
    # A folder of this machine may be moved; elsewhere nothing but the whole URL names a file.
    name = path if is_remote(path) else Path(path).name
    return json.dumps([name, version, digest]), [_pairs(group) for group in groups]


def _pairs(columns: dict[tuple[str, ...], int]) -> int:
    """Number of candidates in a row group; no pool is empty, so every value of the column is one."""
    ids = (count for path, count in columns.items() if path[0] == "candidates" and path[-1] == "answer_id")
    return next(ids, 0)
