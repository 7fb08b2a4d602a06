"""From pools and a system to a run.

``score_files`` writes a run: it scores the missing parts, then joins all parts in the order of the pools and
writes the sidecar. An ``Executor`` decides where units are scored; the bytes of the run do not depend on it.
``score_in_memory`` scores in this process and returns the same scores as a table.
"""

import contextlib
import datetime
import hashlib
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from typing_extensions import override

from aptool import environment, outputs
from aptool.data.pools import Answers, Unit, read_answers
from aptool.data.runs import (
    is_folder,
    join_parts,
    parse_sidecar,
    read_sidecar,
    sidecar_path,
    write_sidecar,
)
from aptool.data.trec import log_ties, rank_candidates
from aptool.data.writing import POOLS_SUFFIX, fingerprint_of, manifest_beside
from aptool.errors import InputError
from aptool.files import Input, check_unchanged
from aptool.outputs import check_apart
from aptool.paths import PathOrUrl, is_remote, names, output_location
from aptool.progress import Bar, progress
from aptool.scoring.pipeline import UnitRecord, Work, run_pipelines
from aptool.scoring.systems import Scorer, System
from aptool.scoring.units import (
    OWN_NAME,
    UNFINISHED_NAME,
    Part,
    Record,
    check_questions,
    current_input,
    input_files,
    missing_parts,
    parts_folder,
    plan,
    read_records,
    record_of,
    write,
)

logger = logging.getLogger(__name__)

# The sidecar in the folder of parts, while the run gets its name.
_PUBLISHING = "run.json"


@dataclass(frozen=True)
class ScoredRun:
    """The size and cost of a scored run."""

    pairs: int
    truncated: int  # answers truncated at the model's token limit, counted per unit
    units: int
    resumed: int  # units that an earlier call scored
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

    @abstractmethod
    def run(self, missing: Sequence[Part], scorer: Scorer, bar: Bar) -> Generator[UnitRecord]:
        """Write the missing parts with the scorer that ``open`` returned; yield a record per written part.

        When the generator ends, this process can read all parts. After an error, written parts remain.
        """


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
        parts = {part.number: part for part in missing}

        def store(number: int, frame: pl.DataFrame, truncated: int) -> Record:
            return write(parts[number], frame, truncated)

        units = {number: part.unit for number, part in parts.items()}
        return run_pipelines(units, scorer, self._answers, bar, store)


def score_files(
    units: Sequence[Unit],
    system: System,
    output: PathOrUrl,
    executor: Executor | None = None,
    *,
    tag: str | None = None,
    answers: PathOrUrl | None = None,
    overwrite: bool = False,
) -> ScoredRun:
    """Score pools into a run of any form; resume from the parts of an interrupted call.

    A complete run of the same arguments is left as it is, unless ``overwrite`` scores it again.

    Args:
        units: the units to score.
        system: the system to open.
        output: the run; its name decides the form, see ``data.runs``.
        executor: scores the units; None is this process.
        tag: the tag of the run, one word; None is the tag of the scorer.
        answers: the file with the texts of shared answers; None is ``answers.parquet`` next to the pools.
        overwrite: replace an existing run, and remove the parts of other arguments.
    """
    check_scored_output(output, overwrite=overwrite)
    executor = executor if executor is not None else LocalExecutor()
    started = time.monotonic()
    shared = current_input(answers)
    with progress("loading model"):
        scorer = executor.open(system, units, shared)
    tag = tag if tag is not None else scorer.tag
    inputs = input_files(units, shared)
    for file in (output, sidecar_path(output)):
        check_apart(file, [*(each.path for each in inputs), *system.paths])
    parts = plan(units, scorer, output, tag, shared)
    key = hashlib.sha256(json.dumps([part.path.name for part in parts]).encode()).hexdigest()[:24]
    if not overwrite and (complete := _complete(output, parts, key)) is not None:
        logger.info(f"{output}: complete, written by the same command before")
        return complete
    with outputs.lock(parts_folder(output)):
        _make_room(output, parts, key, overwrite=overwrite)
        missing = missing_parts(parts)
        by_number, work = _records_of(parts, missing), Work()
        pairs = sum(part.unit.pairs for part in parts)
        resumed = pairs - sum(part.unit.pairs for part in missing)
        with (
            progress("score", pairs, "pairs", resumed) as bar,
            contextlib.closing(executor.run(missing, scorer, bar)) as written,
        ):
            for record in written:
                by_number[record.number] = _found(record.record)
                work.add(record)
        found = [by_number[part.number] for part in parts]
        check_unchanged(inputs)
        _check_counts(parts, found)
        check_questions(units, [each.questions for each in found])
        scored = ScoredRun(
            pairs=sum(each.pairs for each in found),
            truncated=sum(each.truncated for each in found),
            units=len(parts),
            resumed=len(parts) - len(missing),
            workers=len(work.workers),
            seconds=round(time.monotonic() - started, 3),
            core_seconds=round(work.core_seconds, 3),
            gpu_seconds=round(work.gpu_seconds, 3),
        )
        document = {"key": key, "parts": len(parts), **run_metadata(tag, scorer, units, scored)}
        _publish(output, parts, document)
    _log_truncated(scored.truncated, scorer)
    log_ties(str(output), sum(each.tied for each in found), sum(len(each.questions) for each in found))
    return scored


def check_scored_output(output: PathOrUrl, *, overwrite: bool = False) -> None:
    """Raise if ``score_files`` cannot write a run, or certainly may not replace it. Call before long work."""
    sidecar = sidecar_path(output)
    is_ours = read_sidecar(output) is not None
    may_replace = overwrite or is_ours or _publishing(output) is not None
    if is_folder(output):
        others = [name for name in names(output_location(output)) if not _is_own(name)]
        outputs.check_output_folder(output, overwrite=may_replace or not others)
    else:
        outputs.check_output(output, overwrite=may_replace)
    outputs.check_output(sidecar, overwrite=overwrite or is_ours)
    outputs.check_output_folder(parts_folder(output), overwrite=True)


def _is_own(name: str) -> bool:
    """Whether a file has the name of a part or of a record, or of one that is not finished."""
    return any(pattern.fullmatch(name) for pattern in (OWN_NAME, UNFINISHED_NAME))


def _publishing(output: PathOrUrl) -> dict[str, Any] | None:
    """The sidecar of a run whose parts are complete, and which is about to get its name."""
    return parse_sidecar(parts_folder(output) / _PUBLISHING)


def _complete(output: PathOrUrl, parts: Sequence[Part], key: str) -> ScoredRun | None:
    """The result of an earlier call with the same arguments; None if there is none."""
    sidecar = read_sidecar(output)
    if sidecar is None or sidecar["key"] != key:
        return None
    if is_folder(output):
        if not {part.path.name for part in parts} <= set(names(output_location(output))):
            return None
    elif not output_location(output).is_file():
        return None
    if names(parts_folder(output)):  # a process was killed before their removal
        with outputs.lock(parts_folder(output)):
            _remove_parts(output)
    return ScoredRun(**sidecar["work"] | {"resumed": len(parts)})


def _make_room(output: PathOrUrl, parts: Sequence[Part], key: str, *, overwrite: bool) -> None:
    """Raise if a run or parts of other arguments exist; with ``overwrite`` remove such parts instead."""
    sidecar, publishing = read_sidecar(output), _publishing(output)
    is_same = any(document is not None and document["key"] == key for document in (sidecar, publishing))
    folder, own = parts_folder(output), {path.name for part in parts for path in (part.path, part.record)}
    folders = [folder, *([output_location(output)] if is_folder(output) else [])]
    if not (overwrite or is_same):
        if len(folders) == 1:
            outputs.check_output(output)
        elif sidecar is not None:
            raise InputError(str(output), problem="it exists", expected=outputs.EXPECTED)
    others = [
        each / name
        for each in folders
        for name in names(each)
        if OWN_NAME.fullmatch(name) and name not in own
    ]
    if not others:
        return
    if not overwrite:
        expected = f"the same arguments and files, or {outputs.EXPECTED}"
        raise InputError(
            str(others[0].parent), problem="parts of a run with other arguments", expected=expected
        )
    if sidecar is not None and len(folders) > 1:
        # Before the parts of which it says that they are complete.
        sidecar_path(output).unlink(missing_ok=True)
    outputs.delete([folder / _PUBLISHING, *others])


class _Found(NamedTuple):
    """The record of a part, with its question ids in a column, which takes less memory."""

    pairs: int
    truncated: int
    tied: int
    questions: pl.Series


def _found(record: Record) -> _Found:
    return _Found(*record[:3], pl.Series(record.questions, dtype=pl.String))


def _records_of(parts: Sequence[Part], missing: Sequence[Part]) -> dict[int, _Found]:
    """The records of the parts that are not missing, by number."""
    absent = {part.number for part in missing}
    written = [part for part in parts if part.number not in absent]
    return {part.number: _found(record) for part, record in zip(written, read_records(written), strict=True)}


def _check_counts(parts: Sequence[Part], found: Sequence[_Found]) -> None:
    """Raise if the candidates of row groups are not as many as the footer says."""
    counts: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for part, each in zip(parts, found, strict=True):
        count = counts.setdefault((part.unit.path, part.unit.row_groups), [0, 0])
        count[0] += each.pairs
        count[1] += part.unit.pairs
    for (path, groups), (pairs, expected) in counts.items():
        if pairs != expected:
            position = Unit(path, groups, pairs).position
            raise InputError(
                path,
                position=position,
                problem=f"{pairs:,} candidates",
                expected=f"{expected:,}, as the footer says",
            )


def _publish(output: PathOrUrl, parts: Sequence[Part], document: dict[str, Any]) -> None:
    """Give the run its name, then write its sidecar and remove the parts.

    The sidecar in the folder of parts lets a call after an interruption do this again, and replace the run.
    """
    folder = parts_folder(output)
    write_sidecar(folder / _PUBLISHING, document)
    if not is_folder(output):
        sidecar_path(output).unlink(missing_ok=True)  # that of a run to replace
        join_parts([part.path for part in parts], output)
    write_sidecar(sidecar_path(output), document)
    _remove_parts(output)


def _remove_parts(output: PathOrUrl) -> None:
    """Remove the files of the folder of parts, and unfinished ones of a run in a folder; others stay."""
    folder = parts_folder(output)
    paths = [folder / name for name in names(folder) if _is_own(name) or name == _PUBLISHING]
    if is_folder(output):
        final = output_location(output)
        paths += [final / name for name in names(final) if UNFINISHED_NAME.fullmatch(name)]
    outputs.delete(paths)


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
    inputs = input_files(units, shared)
    frames: dict[int, pl.DataFrame] = {}
    found: dict[int, _Found] = {}

    def store(number: int, frame: pl.DataFrame, truncated: int) -> Record:
        frames[number] = frame
        return record_of(frame, truncated)

    with progress("score", sum(unit.pairs for unit in units), "pairs") as bar:
        for record in run_pipelines(dict(enumerate(units)), scorer, texts, bar, store):
            found[record.number] = _found(record.record)
        check_unchanged(inputs)
    records = [found[number] for number in range(len(units))]
    check_questions(units, [each.questions for each in records])
    frame = pl.concat(frames[number] for number in range(len(units)))
    # A run file has no negative zero.
    score = pl.when(pl.col("score") == 0).then(0.0).otherwise(pl.col("score").cast(pl.Float64))
    log_ties(scorer.tag, sum(each.tied for each in records), sum(len(each.questions) for each in records))
    _log_truncated(sum(each.truncated for each in records), scorer)
    return rank_candidates(frame.with_columns(score=score)).drop("rank"), scorer.tag


def _log_truncated(truncated: int, scorer: Scorer) -> None:
    if truncated:
        logger.info(f"{truncated} answers were truncated to {scorer.max_answer_tokens} tokens")


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
    manifest = None if is_remote(path) else manifest_beside(file)
    if manifest is None:
        return pools
    split = file.name.removesuffix(POOLS_SUFFIX)
    if split in manifest["splits"]:
        pools |= {
            "collection": manifest["name"],
            "fingerprint": fingerprint_of(manifest),
            "source": manifest["source"],
            "split": split,
            "first_stage": manifest["details"].get("first_stage", {}).get(split),
        }
    return pools
