"""Units of work and their parts of a run: read, score, write.

A part is a piece of a run: it holds the final lines or rows of a unit. The name of its file is a hash of
everything that decides its bytes, and it gets this name when it is complete. So a part that exists is
complete, resumption is a look at names, and several workers may write the same part. The local pipeline and
the workers of a cluster call the same three functions.

    OUTPUT.parts/000012-FINGERPRINT.json   the record of a part, written before it
    OUTPUT.parts/000012-FINGERPRINT.run    the part; for a run in a folder, OUTPUT/000012-FINGERPRINT.run
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.data.pools import Answers, Unit, answers_beside, read_pools
from aptool.data.runs import is_folder, part_bytes, part_suffix
from aptool.data.trec import count_ties
from aptool.environment import __version__
from aptool.errors import AptoolError, InputError
from aptool.files import Input, stat
from aptool.outputs import write_object
from aptool.paths import Location, PathOrUrl, file_errors, is_remote, location, names, output_location
from aptool.scoring.systems import Scorer

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
    """A unit that was read and prepared: the input of ``score``."""

    unit: Unit
    question_ids: pa.Array  # (pools,)
    answer_ids: pa.Array  # (P,)
    pair_question: np.ndarray  # (P,)
    inputs: Any  # the result of ``Scorer.prepare``
    truncated: int  # answers truncated at the model's limit


def read(unit: Unit, scorer: Scorer, answers: Answers | None) -> Prepared:
    """Read a unit and prepare it for the scorer, such as tokenize it; uses no accelerator."""
    pools = read_pools(unit, answers)
    inputs = scorer.prepare(pools)
    truncated = scorer.truncated(inputs)
    return Prepared(unit, pools.question_ids, pools.answer_ids, pools.pair_question, inputs, truncated)


def score(
    prepared: Prepared, scorer: Scorer, progress: Callable[[int], None] = lambda pairs: None
) -> pl.DataFrame:
    """Score a unit: question_id, answer_id, score (f32), in the order of the pools.

    ``progress`` is called with the number of pairs of each block.

    Raises:
        AptoolError: a score is not finite.
    """
    scores = scorer.score(prepared.inputs, progress)
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
    return frame


def write(part: Part, frame: pl.DataFrame, truncated: int) -> Record:
    """Write the record of a part, then the part; ``frame`` is the result of ``score``."""
    record = record_of(frame, truncated)
    data = part_bytes(part.path, frame, part.tag)
    document = record._asdict() | {"questions": record.questions.to_list()}
    _put(part.record, json.dumps(document, ensure_ascii=False).encode())
    _put(part.path, data)
    return record


def record_of(frame: pl.DataFrame, truncated: int) -> Record:
    """The record of a unit; ``frame`` is the result of ``score``."""
    questions = frame["question_id"].unique(maintain_order=True)
    return Record(frame.height, truncated, count_ties(frame)[0], questions)


def _put(path: Location, data: bytes) -> None:
    """Write a file whole; other writers of the same bytes may do so at the same time."""
    if not isinstance(path, Path):
        write_object(path, data)
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


def parts_folder(output: PathOrUrl) -> Location:
    """The folder of the records and parts of a run until it is complete."""
    return location(f"{output_location(output)}.parts")


def plan(
    units: Sequence[Unit], scorer: Scorer, output: PathOrUrl, tag: str, answers: Input | None = None
) -> list[Part]:
    """The parts of a run, one per unit, in the order of the pools.

    Args:
        units: the units of the pools.
        scorer: the scorer of the units; its fingerprint decides the names of the parts.
        output: the run; its name decides the form, see ``data.runs``.
        tag: the tag of the run.
        answers: the file with the texts of shared answers; None is ``answers.parquet`` next to the pools.
    """
    folder = parts_folder(output)
    target = output_location(output) if is_folder(output) else folder
    suffix = part_suffix(output)
    shared = _shared_answers((unit.path for unit in units), answers)
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


def _shared_answers(paths: Iterable[str], answers: Input | None) -> dict[str, Input | None]:
    """The file of shared answers of each folder of pools; ``answers``, if given, is that of all."""
    folders = {_folder(path): path for path in paths}
    if answers is not None:
        return dict.fromkeys(folders, answers)
    with ThreadPoolExecutor(_REQUESTS) as threads:
        found = threads.map(lambda path: current_input(answers_beside(path)), folders.values())
        return dict(zip(folders, found, strict=True))


def current_input(path: PathOrUrl | None) -> Input | None:
    """A file with its version; None for None."""
    return Input(str(path), stat(path).version) if path is not None else None


def input_files(units: Sequence[Unit], answers: Input | None) -> list[Input]:
    """The pools files of units and the files of their shared answers, each once."""
    files = dict.fromkeys(Input(unit.path, unit.version) for unit in units)
    shared = dict.fromkeys(_shared_answers((file.path for file in files), answers).values())
    return [*files, *(file for file in shared if file is not None)]


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
