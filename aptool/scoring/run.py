"""From pools and a system to a run: units of work, their parts, and the run of all parts.

``score_files`` writes a run: it scores the missing parts, then joins all parts in the order of the pools and
writes the sidecar. An ``Executor`` decides where units are scored; the bytes of the run do not depend on it.
``score_in_memory`` scores in this process and returns the same scores as a table.

A part is a piece of a run: it holds the final lines or rows of a unit. The name of its file is a hash of
everything that decides its bytes, and it gets this name when it is complete. So a part that exists is
complete, resumption is a look at names, and several workers may write the same part.

    OUTPUT.parts/000012-FINGERPRINT.json   the record of a part, written before it
    OUTPUT.parts/000012-FINGERPRINT.run    the part; for a run in a folder, OUTPUT/000012-FINGERPRINT.run
"""

import datetime
import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from aptool import environment, outputs
from aptool.data.pools import Answers, Unit, answers_beside, read_answers, read_pools
from aptool.data.runs import (
    is_folder,
    join_parts,
    part_bytes,
    part_suffix,
    read_sidecar,
    sidecar_path,
    write_sidecar,
)
from aptool.data.trec import count_ties, log_ties, rank_candidates
from aptool.environment import __version__
from aptool.errors import AptoolError, InputError
from aptool.files import Input, check_unchanged, stat
from aptool.outputs import check_apart
from aptool.paths import Location, PathOrUrl, file_errors, is_remote, location, names, output_location
from aptool.progress import Bar, progress
from aptool.scoring.systems import Scorer, System, Work

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Names of parts and records, and of those that a killed process has not finished.
_NAME = r"\d{6,}-[0-9a-f]{24}\.(json|run|run\.gz|parquet)"
OWN_NAME = re.compile(_NAME)
UNFINISHED_NAME = re.compile(rf"\.{_NAME}\.\d+-[0-9a-f]{{8}}\.part")

_REQUESTS = 32  # files that are read at the same time


class Part(NamedTuple):
    """A unit of work, and its piece of a run."""

    number: int  # of the unit, from 0, in the order of the pools
    unit: Unit
    path: Location  # the lines or rows of the unit
    record: Location  # a ``Record`` in JSON, written before the part
    tag: str  # the tag of the run


class Record(NamedTuple):
    """What a run needs to know of a part, besides its lines."""

    pairs: int
    truncated: int  # answers truncated at the model's limit
    tied: int  # questions whose candidates, two or more, all have one score
    questions: pl.Series  # question ids, in the order of the pools; a column takes less memory than a list


class Prepared(NamedTuple):
    """A unit that was read and prepared."""

    unit: Unit
    question_ids: pa.Array  # (pools,)
    answer_ids: pa.Array  # (P,)
    pair_question: np.ndarray  # (P,)
    work: Work  # whose ``score`` returns the scores of the pairs


@dataclass(frozen=True)
class ScoredRun:
    """The size of a scored run, and the time that it took."""

    pairs: int
    truncated: int  # answers truncated at the model's token limit, counted per unit
    units: int
    resumed: int  # units that an earlier call scored
    seconds: float  # wall time of the last call, without resumed units


def read(unit: Unit, scorer: Scorer, answers: Answers | None) -> Prepared:
    """Read a unit and prepare it for the scorer, without an accelerator."""
    pools = read_pools(unit, answers)
    return Prepared(unit, pools.question_ids, pools.answer_ids, pools.pair_question, scorer.prepare(pools))


def scored_rows(prepared: Prepared, scores: np.ndarray) -> tuple[pl.DataFrame, Record]:
    """The rows of a unit with (P,) scores, and their record.

    Returns:
        question_id, answer_id, score (f32), in the order of the pools; what a run needs to know of them.

    Raises:
        AptoolError: a score is not finite.
    """
    frame = pl.DataFrame(
        {
            "question_id": pl.Series(prepared.question_ids).gather(prepared.pair_question),
            "answer_id": pl.Series(prepared.answer_ids),
            "score": scores.astype(np.float32, copy=False),
        }
    )
    is_finite = np.isfinite(scores)
    if not is_finite.all():
        question, answer, value = frame.row(int(np.argmin(is_finite)))
        reason = f"question {question!r}, answer {answer!r}: score {value}: expected a finite number"
        raise AptoolError(f"{prepared.unit.path}: {prepared.unit.position}: {reason}")
    questions = frame["question_id"].unique(maintain_order=True)
    return frame, Record(frame.height, prepared.work.truncated, count_ties(frame)[0], questions)


def write(part: Part, prepared: Prepared, scores: np.ndarray) -> Record:
    """Write the record of a part, then the part, from the (P,) scores of its unit."""
    frame, record = scored_rows(prepared, scores)
    data = part_bytes(part.path, frame, part.tag)
    document = record._asdict() | {"questions": record.questions.to_list()}
    _put(part.record, json.dumps(document, ensure_ascii=False).encode())
    _put(part.path, data)
    return record


def _put(path: Location, data: bytes) -> None:
    """Write a file whole; other writers of the same bytes may do so at the same time."""
    if not isinstance(path, Path):
        outputs.write_object(path, data)
        return
    with file_errors(path, "a writable folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


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

        def store(index: int, prepared: Prepared, scores: np.ndarray) -> tuple[int, Record]:
            return missing[index].number, write(missing[index], prepared, scores)

        return score_units([part.unit for part in missing], scorer, self.answers, bar, store)


def score_units(
    units: Sequence[Unit],
    scorer: Scorer,
    answers: Answers | None,
    bar: Bar,
    store: Callable[[int, Prepared, np.ndarray], T],
) -> Generator[T]:
    """Score units in this process; while one is scored, the next one is read and the one before is stored.

    ``store`` takes the index of a unit, the unit and its scores (P,); its results are yielded.
    """
    prepared_units = enumerate(read(unit, scorer, answers) for unit in units)
    following = next(prepared_units, None)  # in this thread, which then has the device
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        storing: Future[T] | None = None
        while following is not None:
            index, prepared = following
            reading = reader.submit(next, prepared_units, None)
            scores = prepared.work.score(bar.update)
            if storing is not None:
                yield storing.result()
            storing = writer.submit(store, index, prepared, scores)
            following = reading.result()
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
    given = current_input(answers)
    with progress("loading model"):
        scorer = executor.open(system, units, given)
    tag = tag if tag is not None else scorer.tag
    shared = shared_answers(units, given)
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


def parts_folder(output: PathOrUrl) -> Location:
    """The folder of the records and parts of a run until it is complete."""
    return location(f"{output_location(output)}.parts")


def plan(
    units: Sequence[Unit], scorer: Scorer, output: PathOrUrl, tag: str, shared: dict[str, Input | None]
) -> list[Part]:
    """The parts of a run, one per unit, in the order of the pools.

    Args:
        units: the units of the pools.
        scorer: the scorer of the units; its fingerprint decides the names of the parts.
        output: the run; its name decides the form, see ``data.runs``.
        tag: the tag of the run.
        shared: the result of ``shared_answers``.
    """
    folder = parts_folder(output)
    target = output_location(output) if is_folder(output) else folder
    suffix = part_suffix(output)
    parts = []
    for number, unit in enumerate(units):
        decisive = [
            _identity(Input(unit.path, unit.version)),
            _identity(shared[_folder(unit.path)]),
            *(unit.row_groups, unit.rows, scorer.fingerprint, __version__, tag, suffix),
        ]
        digest = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:24]
        stem = f"{number:06}-{digest}"
        parts.append(Part(number, unit, target / f"{stem}{suffix}", folder / f"{stem}.json", tag))
    return parts


def _identity(file: Input | None) -> list[str | None] | None:
    """What differs between a file and its replacement: its name and its version."""
    if file is None:
        return None
    # A local folder may be moved; a remote file is identified by its URL.
    return [file.path if is_remote(file.path) else file.path.rpartition("/")[2], file.version]


def _folder(path: str) -> str:
    """The folder of a file; ``pathlib`` takes a second for thousands of files."""
    return path.rpartition("/")[0]


def shared_answers(units: Sequence[Unit], given: Input | None = None) -> dict[str, Input | None]:
    """The file of shared answers of each folder of pools; ``given``, if not None, is that of all."""
    folders = {_folder(unit.path): unit.path for unit in units}
    if given is not None:
        return dict.fromkeys(folders, given)
    with ThreadPoolExecutor(_REQUESTS) as threads:
        found = threads.map(lambda path: current_input(answers_beside(path)), folders.values())
        return dict(zip(folders, found, strict=True))


def current_input(path: PathOrUrl | None) -> Input | None:
    """A file with its version; None for None."""
    return Input(str(path), stat(path).version) if path is not None else None


def input_files(units: Sequence[Unit], shared: dict[str, Input | None]) -> list[Input]:
    """The pools files of units and the files of their shared answers, each once."""
    pools = (Input(unit.path, unit.version) for unit in units)
    return list(dict.fromkeys([*pools, *filter(None, shared.values())]))


def missing_parts(parts: Sequence[Part]) -> list[Part]:
    """The parts that were not written."""
    folders = {path.parent for part in parts for path in (part.path, part.record)}
    found = {folder: set(names(folder)) for folder in folders}
    return [
        part
        for part in parts
        if not all(path.name in found[path.parent] for path in (part.path, part.record))
    ]


def read_records(parts: Sequence[Part]) -> Iterator[Record]:
    """Read the records of parts."""
    with ThreadPoolExecutor(_REQUESTS) as threads:
        yield from threads.map(_read_record, parts)


def _read_record(part: Part) -> Record:
    with file_errors(part.record):
        document = json.loads(part.record.read_bytes())
    return Record(**document | {"questions": pl.Series(document["questions"], dtype=pl.String)})


def check_questions(units: Sequence[Unit], questions: Sequence[pl.Series]) -> None:
    """Raise if a question is in two units; ``questions`` are the question ids of each unit."""
    numbers = [pl.repeat(number, len(of_unit), eager=True) for number, of_unit in enumerate(questions)]
    frame = pl.DataFrame({"question_id": pl.concat(questions), "unit": pl.concat(numbers)})
    repeated = frame.filter(pl.col("question_id").is_duplicated())
    if repeated.is_empty():
        return
    question = repeated["question_id"][0]
    first, again = repeated.filter(pl.col("question_id") == question)["unit"].head(2)
    raise InputError(
        units[again].path,
        position=units[again].position,
        column="question_id",
        value=question,
        expected=f"one pool per question, but it is also in {units[first].path}, {units[first].position}",
    )


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
    given, executor = current_input(answers), Executor()
    with progress("loading model"):
        scorer = executor.open(system, units, given)
    inputs = input_files(units, shared_answers(units, given))
    with progress("score", sum(unit.pairs for unit in units), "pairs") as bar:
        rows = score_units(units, scorer, executor.answers, bar, lambda index, *unit: scored_rows(*unit))
        results = list(rows)
        check_unchanged(inputs)
    frame = pl.concat(frame for frame, _ in results)
    records = [record for _, record in results]
    check_questions(units, [record.questions for record in records])
    # A run file has no negative zero.
    score = pl.when(pl.col("score") == 0).then(0.0).otherwise(pl.col("score").cast(pl.Float64))
    _log_counts(scorer.tag, records, scorer)
    return rank_candidates(frame.with_columns(score=score)).drop("rank"), scorer.tag


def _log_counts(name: str, records: Sequence[Record], scorer: Scorer) -> None:
    if truncated := sum(each.truncated for each in records):
        logger.info(f"{truncated} answers were truncated to {scorer.max_answer_tokens} tokens")
    log_ties(name, sum(each.tied for each in records), sum(len(each.questions) for each in records))
