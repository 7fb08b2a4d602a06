"""The classes `Run` and `Qrels`; runs on disk: a TREC run file, a table, or a folder of parts.

The name decides the form. Every form holds the same rows in the same order: questions in the order of the
pools, the candidates of each in that of trec_eval.

    dev.run, dev.run.gz     the lines of ``data.trec``
    scores.parquet          a table with question_id, answer_id, rank and score
    dev/, scores.parquet/   parts of either form, 000000-FINGERPRINT.SUFFIX; their numbers order them

``RUN.json`` beside a run, its sidecar, says what wrote it. A path names a folder of parts if it ends in a
slash, or is a folder with a sidecar; without one the folder is not complete.
"""

import contextlib
import io
import json
import logging
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
from typing_extensions import override

from aptool.arguments import PathLike, check_path, check_text, is_path
from aptool.data.frames import Table, is_answer_id, read_frame
from aptool.data.trec import (
    packed,
    printable,
    rank_candidates,
    read_qrels,
    read_run_lines,
    read_table,
    run_lines,
    to_dicts,
)
from aptool.environment import Tabular
from aptool.errors import AptoolError, InputError, counted
from aptool.files import open_binary
from aptool.outputs import check_output, output_file
from aptool.paths import Location, PathOrUrl, location, names, output_location

logger = logging.getLogger(__name__)

# Number and fingerprint of a part, and its suffix.
PART_NAME = re.compile(r"(\d{6,})-[0-9a-f]{24}\.(run|run\.gz|parquet)")

# Entry of the metadata of a table with the tag of the run.
_TAG = b"aptool.tag"

_COPY_BYTES = 4 << 20


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
    with contextlib.suppress(AptoolError, OSError, ValueError):
        document = json.loads(sidecar_path(path).read_bytes())
        if isinstance(document, dict) and {"key", "tag"} <= set(document):
            return document if "aptool" in document.get("versions", ()) else None
    return None


def write_sidecar(file: Location, document: dict[str, Any]) -> None:
    """Write a sidecar, which completes a run."""
    with output_file(file) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_run(path: PathOrUrl) -> "Run":
    """Read a run of any form; warn if its ranks contradict its scores."""
    is_parts = is_folder(path)
    if not is_parts and location(path).is_dir():
        problem = f"a folder without {sidecar_path(path).name} beside it"
        expected = "a file, or a complete run in parts (tables of other programs: join them to one file)"
        raise InputError(path, problem=problem, expected=expected)
    files = _parts_of(path) if is_parts else [location(path)]
    frame = pl.concat(_read_table(file) if is_table(file) else read_run_lines(file) for file in files)
    contradicting = _contradicting_questions(frame)
    if contradicting:
        questions = frame["question_id"].n_unique()
        logger.warning(
            f"{path}: warning: ranks contradict scores in {contradicting:,} of {questions:,} questions; "
            "candidates are ordered by score, the highest first, as in trec_eval"
        )
    tag = str(frame.item(-1, "tag"))  # of the last line, as trec_eval
    run = run_of_scores(frame.drop("rank", "tag"), tag)
    run.path = str(path)
    return run


def _read_table(path: Location) -> pl.DataFrame:
    """Read a table: question_id, answer_id (both str), rank (i64), score (f64), tag (str)."""
    frame, metadata = read_table(path, "scores", "score")
    first_word = re.split(r"[\s.]", path.name)[0] or "run"
    tag = metadata.get(_TAG, b"").decode("utf-8", "replace") or first_word
    rank = pl.col("rank") if "rank" in frame.columns else pl.lit(None)
    rank = rank.cast(pl.Int64, strict=False)
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
    is_same = pl.col("question_id") == pl.col("question_id").shift(1)
    contradicts = pl.col("rank").diff() * pl.col("score").diff() > 0
    return frame.filter(is_same & contradicts)["question_id"].n_unique()


def part_bytes(path: PathOrUrl, frame: pl.DataFrame, tag: str) -> bytes:
    """The bytes of a run, or of a part: lines, packed lines or a table, as the name of the file says."""
    if not is_answer_id(tag):
        raise InputError(path, column="tag", value=tag, expected="one word without white space")
    if is_table(path):
        return _table_bytes(frame, tag)
    lines = run_lines(frame, tag)
    return packed(lines) if part_suffix(path).endswith(".gz") else lines


def _table_bytes(frame: pl.DataFrame, tag: str) -> bytes:
    from aptool.data.parquet import arrow_schema, write_tables

    schema = arrow_schema("scores", optional=True).with_metadata({_TAG: tag.encode()})
    # The numbers that are printed: the nearest float64 of 0.1 in float32 is not 0.1.
    printed = pl.col("score").cast(pl.String).cast(pl.Float64)
    rows = printable(frame).with_columns(score=printed).select(schema.names).rechunk()
    stream = io.BytesIO()
    write_tables(stream, schema, [rows.to_arrow().cast(schema)])
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
    from aptool.data.parquet import open_parquet, write_tables

    with open_parquet(parts[0]) as reader:
        schema = reader.schema

    def row_groups() -> Iterator[Any]:
        for part in parts:
            with open_parquet(part) as reader:
                for group in range(reader.metadata.num_row_groups):
                    yield reader.read_row_groups([group], schema.names)

    write_tables(str(file), schema, row_groups())


_RUN_COLUMNS = ("question_id", "answer_id", "score")
_QRELS_COLUMNS = ("question_id", "answer_id", "relevance")


class Run(Tabular):
    """A run: the scores of a system for the candidates of each question.

    Args:
        scores: ``{question id: {answer id: score}}``, or a table with one row per candidate and the columns
            question_id (or query_id, qid), answer_id (or doc_id, docno, docid) and score: a frame of polars,
            pandas or another library with the Arrow stream interface, a list of dicts, or records of
            ir_measures. Ids are texts or whole numbers.
        tag: the name of the system.

    Attributes:
        frame: question_id (str), answer_id (str), score (f64, finite).
        tag: the name of the system.
        path: the file of the run; None for a run in memory.

    Raises:
        AptoolError: a value is invalid; the message names the row and the column.

    Example:
        >>> aptool.Run({"q1": {"a": 0.2, "b": 0.7}, "q2": {"c": 1.0}}, tag="mine")
        Run('mine': 2 questions, 3 candidates)
        >>> import polars as pl
        >>> aptool.Run(pl.DataFrame({"qid": [1], "docno": ["b"], "score": [0.7]})).to_dict()
        {'1': {'b': 0.7}}
    """

    path: str | None = None

    def __init__(self, scores: Table, tag: str = "run") -> None:
        self.frame = read_frame("run", scores, _RUN_COLUMNS)
        self.tag = check_text("tag", tag)

    @classmethod
    def load(cls, path: PathLike) -> "Run":
        """Read a run, with its tag: a TREC file, a table (``.parquet``) or a folder of parts.

        Args:
            path: a file or a URL, also packed as gzip; or a folder that `score` wrote.

        Example:
            >>> aptool.Run({"q1": {"a": 0.2}}, tag="mine").save("mine.run", overwrite=True)
            >>> aptool.Run.load("mine.run")
            Run('mine': 1 question, 1 candidate)
        """
        return read_run(check_path("path", path))

    @property
    def label(self) -> str:
        """The name of the run in errors: its file, or its tag."""
        return self.path or f"run {self.tag!r}"

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return the ranked candidates as a polars frame.

        Returns:
            question_id (str), answer_id (str), score (f64) and rank (i64, from 1):
            questions as they come first in ``frame``, score descending, answer id descending.

        Example:
            >>> aptool.Run({"q1": {"a": 0.2, "b": 0.7}}).to_polars().rows()
            [('q1', 'b', 0.7, 1), ('q1', 'a', 0.2, 2)]
        """
        return rank_candidates(self.frame)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Convert the run to ``{question id: {answer id: score}}``, in the order of `Run.to_polars`.

        Example:
            >>> aptool.Run({"q1": {"a": 0.2, "b": 0.7}}).to_dict()
            {'q1': {'b': 0.7, 'a': 0.2}}
        """
        return to_dicts(self.to_polars(), "score")

    def save(self, path: PathLike, tag: str | None = None, *, overwrite: bool = False) -> None:
        """Write a run, atomically.

        Args:
            path: a TREC run file, gzip if the name ends in ``.gz``; a table with question_id, answer_id,
                rank and score if it ends in ``.parquet``.
            tag: the name of the system in the file, one word. Default: the tag of the run.
            overwrite: replace an existing file.

        Example:
            >>> aptool.Run({"q1": {"a": 0.2, "b": 0.7}}).save("mine.run", tag="mine", overwrite=True)
            >>> from pathlib import Path
            >>> Path("mine.run").read_text().splitlines()
            ['q1 Q0 b 1 0.7 mine', 'q1 Q0 a 2 0.2 mine']
        """
        tag = self.tag if tag is None else check_text("tag", tag)
        file = check_path("path", path)
        check_output(file, overwrite=overwrite)
        data = part_bytes(file, self.frame, tag)
        if read_sidecar(file) is not None:  # of the run that is replaced
            sidecar_path(file).unlink(missing_ok=True)
        with output_file(file) as temporary:
            temporary.write_bytes(data)

    def __repr__(self) -> str:
        questions = self.frame["question_id"].n_unique()
        return (
            f"Run({self.tag!r}: {counted(questions, 'question')}, {counted(self.frame.height, 'candidate')})"
        )


def run_of_scores(frame: pl.DataFrame, tag: str) -> Run:
    """Make a run from a valid frame, without checking it."""
    run = Run.__new__(Run)
    run.frame, run.tag = frame, tag
    return run


AnyRun: TypeAlias = Run | PathLike | Table


def as_run(run: Any) -> Run:
    """Convert an argument to a run: ``Run``, a file or a table."""
    if isinstance(run, Run):
        return run
    return Run.load(run) if is_path(run) else Run(run)


class Qrels(Tabular):
    """Relevance judgements (qrels): the relevance of answers to questions.

    Args:
        judgements: ``{question id: {answer id: relevance}}``, or a table with one row per judgement and the
            columns question_id, answer_id and relevance (or label), as for `Run`. The relevance is a whole
            number, which may be a boolean, a float or a text.

    Attributes:
        frame: question_id (str), answer_id (str), relevance (i64: relevant from 1 on, unjudged below 0).
        path: the file of the qrels; None for qrels in memory.

    Raises:
        AptoolError: a value is invalid; the message names the row and the column.

    Example:
        >>> aptool.Qrels({"q1": {"a": 0, "b": 1}, "q2": {"c": 1}})
        Qrels(2 questions, 3 judgements)
        >>> aptool.Qrels([{"qid": 1, "docno": "a", "label": False}]).to_dict()
        {'1': {'a': 0}}
    """

    path: str | None = None

    def __init__(self, judgements: Table) -> None:
        self.frame = read_frame("qrels", judgements, _QRELS_COLUMNS)

    @classmethod
    def load(cls, path: PathLike) -> "Qrels":
        """Read a TREC qrels file (``qid 0 docid relevance`` per line), or a Parquet table.

        Args:
            path: a file or a URL; gzip if the name ends in ``.gz``; a table with question_id, answer_id and
                relevance if it ends in ``.parquet``.

        Example:
            >>> aptool.Qrels({"q1": {"a": 0, "b": 1}}).save("mine.qrels", overwrite=True)
            >>> aptool.Qrels.load("mine.qrels")
            Qrels(1 question, 2 judgements)
        """
        qrels = cls.__new__(cls)
        qrels.path = check_path("path", path)
        qrels.frame = read_qrels(qrels.path)
        return qrels

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return question_id (str), answer_id (str), relevance (i64), sorted by both ids.

        Example:
            >>> aptool.Qrels({"q1": {"b": 1, "a": 0}}).to_polars().rows()
            [('q1', 'a', 0), ('q1', 'b', 1)]
        """
        return self.frame.sort("question_id", "answer_id")

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Convert to ``{question id: {answer id: relevance}}``, in the order of `Qrels.to_polars`.

        Example:
            >>> aptool.Qrels({"q1": {"b": 1, "a": 0}}).to_dict()
            {'q1': {'a': 0, 'b': 1}}
        """
        return to_dicts(self.to_polars(), "relevance")

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write a TREC qrels file, atomically.

        Args:
            path: the file; gzip if the name ends in ``.gz``.
            overwrite: replace an existing file.

        Example:
            >>> aptool.Qrels({"q1": {"a": 0, "b": 1}}).save("mine.qrels", overwrite=True)
            >>> from pathlib import Path
            >>> Path("mine.qrels").read_text().splitlines()
            ['q1 0 a 0', 'q1 0 b 1']
        """
        file = check_path("path", path)
        check_output(file, overwrite=overwrite)
        lines = self.to_polars().select("question_id", pl.lit("0"), "answer_id", "relevance")
        text = lines.write_csv(include_header=False, separator=" ", quote_style="never").encode()
        with output_file(file) as temporary:
            temporary.write_bytes(packed(text) if file.endswith(".gz") else text)

    def __repr__(self) -> str:
        questions = self.frame["question_id"].n_unique()
        return f"Qrels({counted(questions, 'question')}, {counted(self.frame.height, 'judgement')})"


AnyQrels: TypeAlias = Qrels | PathLike | Table


def as_qrels(qrels: Any) -> Qrels:
    """Convert an argument to qrels: ``Qrels``, a file or a table."""
    if isinstance(qrels, Qrels):
        return qrels
    return Qrels.load(qrels) if is_path(qrels) else Qrels(qrels)
