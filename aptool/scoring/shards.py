"""What one unit of scoring reads and writes, and how the parts become one run file.

A unit is one row group of a pools file. Its part is written beside and renamed, under a name derived from the
input, the row group and the system, so a part is either whole and right or not there: a run that was
interrupted goes on from the parts it left, and a part of another input or another system is never taken up.
Who maps ``score_unit`` over the units, one process or a cluster, makes no difference to the result.
"""

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from aptool.errors import AptoolError, InputError
from aptool.formats import storage
from aptool.formats.atomic import atomic_file
from aptool.formats.pools import Answers, Pools, Unit, read_pools
from aptool.formats.trec import write_run


class System(ABC):
    """Whatever gives every pair of some pools a score."""

    fingerprint: str  # two systems that could score differently differ here

    @abstractmethod
    def score(self, pools: Pools) -> np.ndarray:
        """(pairs,) float32 finite scores of all pairs, in the order of ``pools``."""


class Part(NamedTuple):
    """A unit of work and the file that its scores go to."""

    unit: Unit
    path: Path
    pairs: int  # as the input's footer has them: what the part must hold


def parts_folder(output: str | Path) -> Path:
    """Where the parts of a run file stand until it is whole."""
    return Path(f"{output}.parts")


def plan(
    units: Iterable[Unit], system: System, output: str | Path, answers: Answers | None = None
) -> list[Part]:
    """Names the part of every unit, by all that its scores follow from.

    Raises:
        InputError: an input cannot be read.
    """
    folder = parts_folder(output)
    parts = []
    footers: dict[str, tuple[str, pq.FileMetaData]] = {}
    shared = _identity(answers.path)[0] if answers is not None else None
    for unit in units:
        if unit.path not in footers:
            footers[unit.path] = _identity(unit.path)
        identity, footer = footers[unit.path]
        name = json.dumps([identity, unit.row_group, system.fingerprint, shared])
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        parts.append(Part(unit, folder / f"{digest}.arrow", _pairs(footer, unit.row_group)))
    return parts


def score_unit(part: Part, system: System, answers: Answers | None) -> int:
    """Scores one unit and writes its part.

    Returns:
        How many pairs it has.

    Raises:
        InputError: the unit cannot be read, or a score is not finite.
    """
    pools = read_pools(part.unit, answers)
    frame = score_frame(pools, system, place=f"{part.unit.path}: row group {part.unit.row_group}")
    with atomic_file(part.path) as temporary:
        frame.write_ipc(temporary, compression="lz4")
    return len(frame)


def score_frame(pools: Pools, system: System, place: str) -> pl.DataFrame:
    """The scores of all pairs: question_id, answer_id, score (f32), in the order of the pools.

    Raises:
        AptoolError: a score is NaN or infinite.
    """
    scores = system.score(pools)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        question = pools.question_ids[int(pools.pair_question[bad[0]])].as_py()
        answer = pools.answer_ids[int(bad[0])].as_py()
        raise AptoolError(
            f"{place}: question {question!r}, answer {answer!r}: score {scores[bad[0]]}: "
            "expected a finite number"
        )
    return pl.DataFrame(
        {
            "question_id": pl.Series(pools.question_ids.take(pa.array(pools.pair_question))),
            "answer_id": pl.Series(pools.answer_ids),
            "score": scores.astype(np.float32, copy=False),
        }
    )


def is_done(part: Part) -> bool:
    """Whether the part is there, readable and of the right size; one that is not is removed."""
    if not part.path.is_file():
        return False
    try:
        rows = len(pl.read_ipc(part.path))
    except (pl.exceptions.PolarsError, OSError):
        rows = None
    if rows == part.pairs:
        return True
    part.path.unlink()
    return False


def merge(parts: list[Part], output: str | Path, tag: str) -> int:
    """Writes the run file out of all parts, and removes them.

    Returns:
        How many pairs it has.

    Raises:
        InputError: a question stands in two pools.
        AptoolError: a part does not hold every pair of its unit.
    """
    frames = [pl.read_ipc(part.path) for part in parts]
    for part, frame in zip(parts, frames, strict=True):
        if len(frame) != part.pairs:
            raise AptoolError(
                f"{part.path}: {len(frame)} scores: expected {part.pairs}; remove it and run again"
            )
    _check_questions(parts, frames)
    run = pl.concat(frames)
    write_run(output, run, tag)
    shutil.rmtree(parts_folder(output))
    return len(run)


def _check_questions(parts: list[Part], frames: list[pl.DataFrame]) -> None:
    asked = [
        frame.select(pl.col("question_id").unique(maintain_order=True)).with_columns(unit=pl.lit(number))
        for number, frame in enumerate(frames)
    ]
    repeated = pl.concat(asked).filter(pl.col("question_id").is_duplicated())
    if len(repeated):
        question = repeated["question_id"][-1]
        units = [parts[i].unit for i in repeated.filter(pl.col("question_id") == question)["unit"]]
        first, again = units[0], units[-1]
        raise InputError(
            again.path,
            place=f"row group {again.row_group}",
            column="question_id",
            value=question,
            expected=f"one pool a question: it also stands in {first.path}, row group {first.row_group}",
        )


def _identity(path: str) -> tuple[str, pq.FileMetaData]:
    """What tells a file from one that replaced it, and its footer."""
    with storage.open_binary(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - (1 << 16)))
        tail = hashlib.sha256(file.read()).hexdigest()
        footer = pq.read_metadata(file)
    changed = None if storage.is_remote(path) else Path(path).stat().st_mtime_ns
    return json.dumps([Path(path).name, size, changed, tail]), footer


def _pairs(footer: pq.FileMetaData, row_group: int) -> int:
    """How many candidates a row group holds; no pool is empty, so each value of the column is one."""
    group = footer.row_group(row_group)
    for column in range(group.num_columns):
        path = group.column(column).path_in_schema.split(".")
        if path[0] == "candidates" and path[-1] == "answer_id":
            return int(group.column(column).num_values)
    return 0
