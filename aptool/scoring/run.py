"""From pools and a system to a run.

``score_files`` writes a run: it scores the missing parts, then joins all parts in the order of the pools and
writes the sidecar. An ``Executor`` decides where units are scored; the bytes of the run do not depend on it.
``score_in_memory`` scores in this process and returns the same scores as a table.
"""

import datetime
import hashlib
import json
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import polars as pl

from aptool import environment, outputs
from aptool.data.pools import Answers, Unit, read_answers
from aptool.data.runs import is_folder, join_parts, read_sidecar, sidecar_path, write_sidecar
from aptool.data.trec import log_ties, rank_candidates
from aptool.errors import InputError
from aptool.files import Input, check_unchanged
from aptool.outputs import check_apart
from aptool.paths import PathOrUrl, names, output_location
from aptool.progress import Bar, progress
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
    read,
    read_records,
    record_of,
    score,
    write,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class ScoredRun:
    """The size of a scored run, and the time that it took."""

    pairs: int
    truncated: int  # answers truncated at the model's token limit, counted per unit
    units: int
    resumed: int  # units that an earlier call scored
    seconds: float  # wall time of the last call, without resumed units


class Executor:
    """Scores units in this process; used by one call of ``score_files`` at a time."""

    def open(self, system: System, units: Sequence[Unit], answers: Input | None) -> Scorer:
        """Open a system to score these units, or an equal scorer that identifies it.

        ``answers`` is the file with the texts of shared answers.
        """
        self.answers = read_answers(*answers) if answers is not None else None
        return system.open(units, self.answers)

    def run(self, missing: Sequence[Part], scorer: Scorer, bar: Bar) -> Iterator[tuple[int, Record]]:
        """Write the missing parts with the scorer that ``open`` returned; yield number and record of each.

        When the iterator ends, this process can read all parts. After an error, written parts remain.
        """

        def store(index: int, frame: pl.DataFrame, truncated: int) -> tuple[int, Record]:
            return missing[index].number, write(missing[index], frame, truncated)

        return score_units([part.unit for part in missing], scorer, self.answers, bar, store)


def score_units(
    units: Sequence[Unit],
    scorer: Scorer,
    answers: Answers | None,
    bar: Bar,
    store: Callable[[int, pl.DataFrame, int], T],
) -> Generator[T]:
    """Score units in this process; while one is scored, the next one is read and the one before is stored.

    ``store`` takes the index of a unit, the result of ``units.score``, and the number of truncated answers;
    its results are yielded.
    """
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        prepared_units = enumerate(read(unit, scorer, answers) for unit in units)
        reading = reader.submit(next, prepared_units, None)
        storing: Future[T] | None = None
        while (following := reading.result()) is not None:
            index, prepared = following
            reading = reader.submit(next, prepared_units, None)
            remaining = prepared.unit.pairs

            def scored(pairs: int) -> None:
                nonlocal remaining
                remaining -= pairs
                bar.update(pairs)

            frame = score(prepared, scorer, scored)
            bar.update(remaining)  # of a scorer that counts none
            if storing is not None:
                yield storing.result()
            storing = writer.submit(store, index, frame, prepared.truncated)
        if storing is not None:
            yield storing.result()


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
    executor = executor if executor is not None else Executor()
    started = time.monotonic()
    shared = current_input(answers)
    with progress("loading model"):
        scorer = executor.open(system, units, shared)
    tag = tag if tag is not None else scorer.tag
    inputs = input_files(units, shared)
    for file in (output, sidecar_path(output)):
        check_apart(file, [each.path for each in inputs])
    parts = plan(units, scorer, output, tag, shared)
    key = hashlib.sha256(json.dumps([part.path.name for part in parts]).encode()).hexdigest()[:24]
    if not overwrite and (complete := _complete(output, parts, key)) is not None:
        logger.info(f"{output}: complete, written by the same command before")
        return complete
    with outputs.lock(parts_folder(output)):
        _make_room(output, parts, key, overwrite=overwrite)
        missing = missing_parts(parts)
        absent = {part.number for part in missing}
        written = [part for part in parts if part.number not in absent]
        records = {part.number: record for part, record in zip(written, read_records(written), strict=True)}
        pairs = sum(part.unit.pairs for part in parts)
        resumed = sum(part.unit.pairs for part in written)
        with progress("score", pairs, "pairs", resumed) as bar:
            records.update(executor.run(missing, scorer, bar))
        found = [records[part.number] for part in parts]
        check_unchanged(inputs)
        check_questions(units, [each.questions for each in found])
        scored = ScoredRun(
            pairs=sum(each.pairs for each in found),
            truncated=sum(each.truncated for each in found),
            units=len(parts),
            resumed=len(parts) - len(missing),
            seconds=round(time.monotonic() - started, 3),
        )
        document = {
            "key": key,
            "parts": len(parts),
            "tag": tag,
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": environment.command(),
            "system": scorer.description,
            "pools": list(dict.fromkeys(unit.path for unit in units)),
            "work": asdict(scored),
            "hardware": environment.hardware(),  # of this process, as the versions
            "versions": environment.versions(),
        }
        _publish(output, parts, document)
    _log_counts(str(output), found, scorer)
    return scored


def check_scored_output(output: PathOrUrl, *, overwrite: bool = False) -> None:
    """Raise if ``score_files`` cannot write a run, or certainly may not replace it. Call before long work."""
    sidecar, folder = sidecar_path(output), parts_folder(output)
    is_ours = read_sidecar(output) is not None
    # An earlier call with parts may have been interrupted while it replaced the output; see ``_make_room``.
    may_replace = overwrite or is_ours or any(_is_own(name) for name in names(folder))
    if is_folder(output):
        others = [name for name in names(output_location(output)) if not _is_own(name)]
        outputs.check_output_folder(output, overwrite=may_replace or not others)
    else:
        outputs.check_output(output, overwrite=may_replace)
    outputs.check_output(sidecar, overwrite=overwrite or is_ours)
    outputs.check_output_folder(folder, overwrite=True)


def _is_own(name: str) -> bool:
    """Whether a file has the name of a part or of a record, or of one that is not finished."""
    return any(pattern.fullmatch(name) for pattern in (OWN_NAME, UNFINISHED_NAME))


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
    sidecar = read_sidecar(output)
    is_same = not missing_parts(parts) or (sidecar is not None and sidecar["key"] == key)
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
    outputs.delete(others)


def _publish(output: PathOrUrl, parts: Sequence[Part], document: dict[str, Any]) -> None:
    """Give the run its name, then write its sidecar and remove the parts.

    A call after an interruption finds all parts, and does this again.
    """
    if not is_folder(output):
        sidecar_path(output).unlink(missing_ok=True)  # that of a run to replace
        join_parts([part.path for part in parts], output)
    write_sidecar(sidecar_path(output), document)
    _remove_parts(output)


def _remove_parts(output: PathOrUrl) -> None:
    """Remove the files of the folder of parts, and unfinished ones of a run in a folder; others stay."""
    folder = parts_folder(output)
    paths = [folder / name for name in names(folder) if _is_own(name)]
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
    shared, executor = current_input(answers), Executor()
    with progress("loading model"):
        scorer = executor.open(system, units, shared)
    inputs = input_files(units, shared)
    with progress("score", sum(unit.pairs for unit in units), "pairs") as bar:
        scored = list(score_units(units, scorer, executor.answers, bar, _in_memory))
        check_unchanged(inputs)
    frame = pl.concat(frame for frame, _ in scored)
    records = [record for _, record in scored]
    check_questions(units, [record.questions for record in records])
    # A run file has no negative zero.
    score = pl.when(pl.col("score") == 0).then(0.0).otherwise(pl.col("score").cast(pl.Float64))
    _log_counts(scorer.tag, records, scorer)
    return rank_candidates(frame.with_columns(score=score)).drop("rank"), scorer.tag


def _in_memory(index: int, frame: pl.DataFrame, truncated: int) -> tuple[pl.DataFrame, Record]:
    return frame, record_of(frame, truncated)


def _log_counts(name: str, records: Sequence[Record], scorer: Scorer) -> None:
    if truncated := sum(each.truncated for each in records):
        logger.info(f"{truncated} answers were truncated to {scorer.max_answer_tokens} tokens")
    log_ties(name, sum(each.tied for each in records), sum(len(each.questions) for each in records))
