"""Runs on disk: a TREC run file, a table, or a folder of shards.

The name decides the form. Every form holds the same rows in the order of trec_eval:

    dev.run, dev.run.gz     the lines of ``formats.trec``
    scores.parquet          a table with question_id, answer_id, score and rank
    dev/, scores.parquet/   shards of either form, and ``_run.json``, which lists them in order

A path names a folder of shards if it ends in a slash or holds a manifest.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, Protocol

import polars as pl

from aptool.errors import InputError
from aptool.formats.atomic import (
    check_output,
    check_output_folder,
    output_file,
    output_stream,
    remove_outputs,
)
from aptool.formats.ir_metadata import drop_metadata
from aptool.formats.location import Location, PathOrUrl, location, output_location, store_of
from aptool.formats.outputs import Kind, adopt, sha256_of, sha256_of_output
from aptool.formats.trec import (
    check_rows,
    open_text,
    read_run_lines,
    read_table,
    run_lines,
    tag_of_name,
)

logger = logging.getLogger(__name__)

# Spark, DuckDB and Arrow skip files of a folder of tables whose name begins with an underscore or a dot.
MANIFEST = "_run.json"

# Entry of the metadata of a table with the tag of the run.
_TAG = b"aptool.tag"

# Rows per row group of a table. The bytes do not depend on the sizes of the blocks that are written.
TABLE_ROWS = 1 << 18

_LINE_SCHEMA = {
    **dict.fromkeys(("question_id", "Q0", "answer_id"), pl.String),
    "rank": pl.Int64,
    "score": pl.Float64,
    "tag": pl.String,
}


class RunTable(NamedTuple):
    """A run as read from a file or a folder of shards."""

    frame: pl.DataFrame  # question_id (str), answer_id (str), score (f64), in the order of the file
    tag: str  # from the last line, as in trec_eval


class Shard(NamedTuple):
    """A file of a run in shards, as in the manifest."""

    file: str  # name in the folder
    sha256: str
    bytes: int
    pairs: int
    first: str  # first and last question id
    last: str


class LineWriter(Protocol):
    """The destination of the lines of a run."""

    def write(self, lines: bytes, /) -> object:
        """Write whole lines."""


def is_table(path: PathOrUrl) -> bool:
    """Whether a run, or each of its shards, is a table."""
    return str(path).rstrip("/").endswith(".parquet")


def is_sharded(path: PathOrUrl) -> bool:
    """Whether a path names a folder of shards."""
    return str(path).endswith("/") or (location(path) / MANIFEST).is_file()


def main_file(path: PathOrUrl) -> Location:
    """The file that identifies the content of a run: the manifest of shards, or the run itself."""
    return output_location(path) / MANIFEST if is_sharded(path) else output_location(path)


def check_run_output(path: PathOrUrl, *, overwrite: bool = False) -> None:
    """Raise if a run cannot be written or may not be replaced. Call before long work."""
    kind = Kind.SHARDS if is_sharded(path) else Kind.RUN
    if overwrite:
        adopt(path, kind)
    if kind is Kind.RUN:
        check_output(path, kind)
    else:
        check_output_folder(path, kind)


def read_run(path: PathOrUrl) -> RunTable:
    """Read a run of any form; warn if its ranks contradict its scores."""
    if not is_sharded(path) and location(path).is_dir():
        expected = (
            "a file, or the folder of a run in shards (tables of other programs: join them to one file)"
        )
        raise InputError(path, problem=f"a folder without {MANIFEST}", expected=expected)
    frame = pl.concat(_read_shards(location(path))) if is_sharded(path) else _read_file(path)
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


def _read_shards(folder: Location) -> Iterator[pl.DataFrame]:
    """Read the shards of a folder; raise if one is missing, has changed or contradicts the manifest."""
    from aptool.documents import read_json
    from aptool.formats.schemas import check_document

    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise InputError(folder, problem=f"no {MANIFEST} in it", expected="a run in shards")
    document = read_json(manifest)
    check_document("run", document, manifest)
    last = ""
    for entry in document["shards"]:
        shard = Shard(**entry)
        file = folder / shard.file
        if not file.is_file():
            raise InputError(file, problem="file not found", expected=f"the shard that {MANIFEST} lists")
        if sha256_of(file) != shard.sha256:
            raise InputError(file, problem="changed since the run was written", expected=f"as in {MANIFEST}")
        frame = _read_file(file)
        ends = frame.item(0, "question_id"), frame.item(-1, "question_id")
        if (frame.height, *ends) != (shard.pairs, shard.first, shard.last) or not last < ends[0]:
            expected = "the pairs of each shard, and shards in the order of their questions"
            raise InputError(manifest, position=shard.file, value=entry, expected=expected)
        last = ends[1]
        yield frame


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
    """Write a run (question_id, answer_id, score) of any form, in the order of `rank_candidates`.

    Scores are the numbers that `run_lines` prints. Stale metadata of the run is deleted.
    """
    check_rows(path, frame, "score")
    lines, ends = run_lines(path, frame, tag)
    if is_sharded(path):
        file = shard_location(path, 0, hashlib.sha256(lines).hexdigest())
        with open_run(file, Kind.SHARDS, tag) as run:
            run.write(lines)
        questions = ends["question_id"]
        publish_shards(path, tag, [shard_of(file, frame.height, questions[0], questions[-1])])
    else:
        with open_run(path, Kind.RUN, tag) as run:
            run.write(lines)
    drop_metadata(path)


@contextmanager
def open_run(path: PathOrUrl, kind: Kind, tag: str) -> Iterator[LineWriter]:
    """Open a file of a run atomically, to write its lines in order; a table gets the rows of the lines."""
    if not is_table(path):
        with open_text(path, kind) as file:
            yield file
        return
    with output_stream(path, kind) as stream, _TableWriter(stream, tag) as table:
        yield table


class _TableWriter:
    """Context manager that writes lines as the rows of a table, and buffers one row group."""

    def __init__(self, stream: IO[bytes], tag: str) -> None:
        from aptool.formats.parquet import parquet_writer
        from aptool.formats.schemas import arrow_schema

        schema = arrow_schema("scores", optional=True).with_metadata({_TAG: tag.encode()})
        self._writer = parquet_writer(stream, schema)
        self._lines: list[bytes] = []
        self._rows = 0  # rows of the lines
        self._rest: list[pl.DataFrame] = []  # parsed rows

    def __enter__(self) -> "_TableWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self._flush(1)
        self._writer.close()

    def write(self, lines: bytes) -> None:
        """Add lines."""
        self._lines.append(lines)
        self._rows += lines.count(b"\n")
        if self._rows >= TABLE_ROWS:
            self._flush(TABLE_ROWS)

    def _flush(self, least: int) -> None:
        """Write row groups while ``least`` rows are left."""
        if self._lines:
            options: dict[str, Any] = {"has_header": False, "separator": " ", "quote_char": None}
            self._rest.append(pl.read_csv(b"".join(self._lines), schema=_LINE_SCHEMA, **options))
        frame = pl.concat(self._rest).rechunk()
        while frame.height >= least:
            rows = frame.head(TABLE_ROWS).select(self._writer.schema.names).rechunk()
            self._writer.write_table(rows.to_arrow().cast(self._writer.schema))
            frame = frame.slice(TABLE_ROWS)
        self._lines, self._rest, self._rows = [], [frame], frame.height


def shard_location(folder: PathOrUrl, number: int, digest: str) -> Location:
    """The file of a shard. Its name has a digest, so that a new run does not damage the one it replaces."""
    name = output_location(folder).name
    suffix = ".parquet" if is_table(name) else ".run.gz" if name.endswith(".gz") else ".run"
    return output_location(folder) / f"part-{number:05}-{digest[:12]}{suffix}"


def shard_of(file: Location, pairs: int, first: str, last: str) -> Shard:
    """The entry of a shard that `open_run` has written, from its first to its last question."""
    store, key = store_of(file)
    return Shard(file.name, sha256_of_output(file), store.stat(key).size, pairs, first, last)


def publish_shards(folder: PathOrUrl, tag: str, shards: Sequence[Shard]) -> None:
    """Complete a run in shards: write its manifest, then remove the shards of the run that it replaces."""
    final = output_location(folder)
    document = {"tag": tag, "pairs": sum(shard.pairs for shard in shards)}
    document |= {"shards": [shard._asdict() for shard in shards]}
    with output_file(final / MANIFEST, Kind.SHARDS) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    remove_outputs(final, Kind.SHARDS, keep={MANIFEST, *(shard.file for shard in shards)})
