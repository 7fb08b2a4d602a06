"""Runs on disk: a TREC run file, a table, or a folder of parts.

The name decides the form. Every form holds the same rows in the same order: questions in the order of the
pools, the candidates of each in that of trec_eval.

    dev.run, dev.run.gz     the lines of ``formats.trec``
    scores.parquet          a table with question_id, answer_id, rank and score
    dev/, scores.parquet/   parts of either form, 000000-FINGERPRINT.SUFFIX; their numbers order them

``RUN.json`` beside a run, its sidecar, says what wrote it. A path names a folder of parts if it ends in a
slash, or is a folder with a sidecar; without one the folder is not complete.
"""

import contextlib
import hashlib
import io
import json
import logging
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from aptool import outputs
from aptool.data.trec import (
    check_rows,
    packed,
    printable,
    read_run_lines,
    read_table,
    run_lines,
    tag_of_name,
)
from aptool.errors import AptoolError, InputError
from aptool.files import open_binary
from aptool.outputs import output_file
from aptool.paths import Location, PathOrUrl, location, names, output_location
from aptool.version import __version__

logger = logging.getLogger(__name__)

# Number and fingerprint of a part, and its suffix.
PART_NAME = re.compile(r"(\d{6,})-[0-9a-f]{24}\.(run|run\.gz|parquet)")

# Entry of the metadata of a table with the tag of the run.
_TAG = b"aptool.tag"

_COPY_BYTES = 4 << 20


class RunTable(NamedTuple):
    """A run as read from a file or a folder of parts."""

    frame: pl.DataFrame  # question_id (str), answer_id (str), score (f64), in the order of the file
    tag: str  # from the last line, as in trec_eval


def is_table(path: PathOrUrl) -> bool:
    """Whether a run, or each of its parts, is a table."""
    return str(path).rstrip("/").endswith(".parquet")


def is_folder(path: PathOrUrl) -> bool:
    """Whether a path names a run in a folder of parts."""
    return str(path).endswith("/") or (location(path).is_dir() and read_sidecar(path) is not None)


def part_suffix(path: PathOrUrl) -> str:
    """The suffix of the parts of a run."""
    name = output_location(path).name
    return ".parquet" if is_table(name) else ".run.gz" if name.endswith(".gz") else ".run"


def sidecar_path(path: PathOrUrl) -> Location:
    """The sidecar of a run: RUN.json."""
    return location(f"{output_location(path)}.json")


def read_sidecar(path: PathOrUrl) -> dict[str, Any] | None:
    """The sidecar of a run; None if there is no such file, or another program wrote it."""
    return parse_sidecar(sidecar_path(path))


def parse_sidecar(file: Location) -> dict[str, Any] | None:
    """The content of a sidecar; None if there is no such file, or another program wrote it."""
    with contextlib.suppress(AptoolError, OSError, ValueError):
        document = json.loads(file.read_bytes())
        if isinstance(document, dict) and {"key", "tag"} <= set(document):
            return document if "aptool" in document.get("versions", ()) else None
    return None


def write_sidecar(file: Location, document: dict[str, Any]) -> None:
    """Write a sidecar, which completes a run."""
    with output_file(file) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def check_run_output(path: PathOrUrl, *, overwrite: bool = False) -> None:
    """Raise if a run cannot be written or may not be replaced. Call before long work."""
    if is_folder(path):
        outputs.check_output_folder(path, overwrite=overwrite)
        if not overwrite and read_sidecar(path) is not None:
            raise InputError(str(path), problem="it exists", expected=outputs.EXPECTED)
    else:
        outputs.check_output(path, overwrite=overwrite)


def read_run(path: PathOrUrl) -> RunTable:
    """Read a run of any form; warn if its ranks contradict its scores."""
    is_parts = is_folder(path)
    if not is_parts and location(path).is_dir():
        problem = f"a folder without {sidecar_path(path).name} beside it"
        expected = "a file, or a complete run in parts (tables of other programs: join them to one file)"
        raise InputError(path, problem=problem, expected=expected)
    frame = pl.concat(map(_read_file, _parts_of(path))) if is_parts else _read_file(path)
    contradicting = _contradicting_questions(frame)
    if contradicting:
        questions = frame["question_id"].n_unique()
        logger.warning(
            f"{path}: warning: ranks contradict scores in {contradicting:,} of {questions:,} questions; "
            "candidates are ordered by score, the highest first, as in trec_eval"
        )
    return RunTable(frame.drop("rank", "tag"), str(frame.item(-1, "tag")))


def _read_file(path: PathOrUrl) -> pl.DataFrame:
    """Read a file: question_id, answer_id, tag (all str), rank (str or i64), score (f64)."""
    return _read_table(path) if is_table(path) else read_run_lines(path)


def _read_table(path: PathOrUrl) -> pl.DataFrame:
    frame, metadata = read_table(path, "scores", "score")
    tag = metadata.get(_TAG, b"").decode("utf-8", "replace") or tag_of_name(path)
    rank = pl.col("rank") if "rank" in frame.columns else pl.lit(None, pl.Int64)
    return frame.select("question_id", "answer_id", rank.alias("rank"), "score", tag=pl.lit(tag))


def _parts_of(path: PathOrUrl) -> list[Location]:
    """The parts of a complete run in a folder, in the order of their numbers."""
    folder = location(path)
    sidecar = read_sidecar(path)
    if sidecar is None:
        problem = f"no {sidecar_path(path).name} beside it"
        raise InputError(path, problem=problem, expected="a complete run in parts")
    parts = in_order(names(folder))
    if len(parts) != sidecar.get("parts"):
        expected = f"{sidecar.get('parts')}, as {sidecar_path(path).name} says"
        raise InputError(path, problem=f"{len(parts):,} parts", expected=expected)
    return [folder / name for name in parts]


def in_order(files: Iterable[str]) -> list[str]:
    """The names of parts among those of files, by their numbers."""
    numbers = {name: int(match[1]) for name in files if (match := PART_NAME.fullmatch(name))}
    return sorted(numbers, key=numbers.__getitem__)


def _contradicting_questions(frame: pl.DataFrame) -> int:
    """The number of questions in which the better rank of two adjacent lines has the lower score."""
    steps = frame.select(
        "question_id",
        rank=pl.col("rank").cast(pl.Int64, strict=False).diff(),
        score=pl.col("score").diff(),
        same=pl.col("question_id") == pl.col("question_id").shift(1),
    )
    is_worse = (pl.col("rank") > 0) & (pl.col("score") > 0)
    is_better = (pl.col("rank") < 0) & (pl.col("score") < 0)
    return steps.filter(pl.col("same") & (is_worse | is_better))["question_id"].n_unique()


def write_run(path: PathOrUrl, frame: pl.DataFrame, tag: str) -> None:
    """Write a run (question_id, answer_id, score) of any form, ranked and printed by ``trec.printable``.

    The sidecar of a file that is replaced is removed.
    """
    check_rows(path, frame, "score")
    data, is_parts = part_bytes(path, frame, tag), is_folder(path)
    if read_sidecar(path) is not None:
        sidecar_path(path).unlink(missing_ok=True)
    if not is_parts:
        with output_file(path) as file:
            file.write_bytes(data)
        return
    key = hashlib.sha256(data).hexdigest()[:24]
    folder = output_location(path)
    name = f"{0:06}-{key}{part_suffix(path)}"
    with output_file(folder / name) as file:
        file.write_bytes(data)
    outputs.delete([folder / old for old in names(folder) if PART_NAME.fullmatch(old) and old != name])
    write_sidecar(
        sidecar_path(path), {"key": key, "tag": tag, "parts": 1, "versions": {"aptool": __version__}}
    )


def part_bytes(path: PathOrUrl, frame: pl.DataFrame, tag: str) -> bytes:
    """The bytes of a run, or of a part: lines, packed lines or a table, as the name of the file says."""
    if is_table(path):
        return _table_bytes(path, frame, tag)
    lines = run_lines(path, frame, tag)
    return packed(lines) if part_suffix(path).endswith(".gz") else lines


def _table_bytes(path: PathOrUrl, frame: pl.DataFrame, tag: str) -> bytes:
    from aptool.data.ids import is_answer_id
    from aptool.data.parquet import parquet_writer
    from aptool.data.schemas import arrow_schema

    if not is_answer_id(tag):
        raise InputError(path, column="tag", value=tag, expected="one word without white space")
    schema = arrow_schema("scores", optional=True).with_metadata({_TAG: tag.encode()})
    # The numbers that are printed: the nearest float64 of 0.1 in float32 is not 0.1.
    printed = pl.col("score").cast(pl.String).cast(pl.Float64)
    rows = printable(frame).with_columns(score=printed).select(schema.names).rechunk()
    stream = io.BytesIO()
    with parquet_writer(stream, schema) as writer:
        writer.write_table(rows.to_arrow().cast(schema))
    return stream.getvalue()


def join_parts(parts: Sequence[Location], path: PathOrUrl) -> None:
    """Write a run file that is its parts, one after the other: their bytes, or their row groups."""
    with output_file(path) as temporary:
        if is_table(path):
            _join_tables(parts, temporary)
            return
        with temporary.open("wb") as file:
            for part in parts:
                with open_binary(part) as opened:
                    shutil.copyfileobj(opened, file, _COPY_BYTES)


def _join_tables(parts: Sequence[Location], file: Path) -> None:
    from aptool.data.parquet import open_parquet, parquet_writer

    with open_parquet(parts[0]) as reader:
        schema = reader.schema
    with parquet_writer(str(file), schema) as writer:
        for part in parts:
            with open_parquet(part) as reader:
                for group in range(reader.metadata.num_row_groups):
                    writer.write_table(reader.read_row_group(group, schema.names))
