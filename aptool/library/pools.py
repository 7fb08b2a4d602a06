"""The public class `Pools`: questions with candidate answers, as a polars frame or as Parquet files."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from aptool.errors import InputError, counted, shortened
from aptool.formats.atomic import check_apart, output_file
from aptool.formats.collection import answers_of_all
from aptool.formats.inputs import expand
from aptool.formats.outputs import Kind, adopt
from aptool.formats.pools import Answers, PoolRecord, PoolsWriter, Unit, list_units, read_answers, read_pools
from aptool.library.arguments import PathLike, check_path, check_paths, check_text
from aptool.library.frames import check_frame, check_id, frame_from_pandas, frame_from_polars, to_pandas

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: dict[str, Any] = dict.fromkeys(("question_id", "question", "answer_id", "answer"), pl.String)
_EXPECTED = "a dict {question id: (question, {answer id: answer})}"


class PoolFiles(NamedTuple):
    """Pools on disk."""

    units: list[Unit]  # row groups
    answers: str | None  # file of the answers that the pools share

    @property
    def paths(self) -> list[str]:
        """The distinct paths of the pools files."""
        return list(dict.fromkeys(unit.path for unit in self.units))


class Pools:
    """Questions, each with the candidate answers to rank.

    Pools of files stay on disk until ``frame`` is used, and are scored one row group at a time.

    Args:
        frame: one row per candidate, as for `Pools.from_polars`.

    Raises:
        AptoolError: a value is invalid; the message names the column or the row.

    Example:
        >>> pools = aptool.Pools.from_dict({"q1": ("who wrote it?", {"a": "Nobody knows.", "b": "She did."})})
        >>> pools
        Pools(1 question, 2 candidates)
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self._files: PoolFiles | None = None
        self._frame: pl.DataFrame | None = frame_from_polars("pools", frame, _COLUMNS)
        check_frame("pools", self._frame)
        _check_questions(self._frame)

    @classmethod
    def load(cls, path: PathLike | Iterable[PathLike], *, answers: PathLike | None = None) -> "Pools":
        """Open pools files (``schemas/pools.schema.json``); texts are read when needed.

        Args:
            path: a file, folder, glob or URL, or several of them.
            answers: file of the answers that the pools share. Default: ``answers.parquet`` next to the pools,
                if it exists.

        Returns:
            The pools of all files.

        Raises:
            AptoolError: a file is missing, or is not a pools file.

        Example:
            >>> pools = aptool.Pools.load("data/wikiqa/dev.pools.parquet")
            >>> len(pools.to_dict())
            20
        """
        files = expand(check_paths("path", path), ".pools.parquet")
        shared = answers_of_all(files) if answers is None else check_path("answers", answers)
        pools = cls.__new__(cls)
        pools._files = PoolFiles(list_units(files), None if shared is None else str(shared))
        pools._frame = None
        return pools

    @classmethod
    def from_polars(cls, frame: pl.DataFrame) -> "Pools":
        """Make pools from a polars frame with one row per candidate.

        Args:
            frame: text columns question_id (or query_id, qid), question (or query), answer_id (or doc_id,
                docno, docid) and answer (or text).

        Returns:
            The pools, in memory.

        Raises:
            AptoolError: a value is invalid; the message names the column or the row.

        Example:
            >>> import polars as pl
            >>> rows = [{"qid": "q1", "query": "who wrote it?", "docno": "b", "text": "She did."}]
            >>> aptool.Pools.from_polars(pl.DataFrame(rows)).to_dict()
            {'q1': ('who wrote it?', {'b': 'She did.'})}
        """
        return cls(frame)

    @classmethod
    def from_pandas(cls, frame: "pd.DataFrame") -> "Pools":
        """Make pools from a pandas frame.

        Args:
            frame: the columns of `Pools.from_polars`.

        Returns:
            The pools, in memory.

        Raises:
            AptoolError: a value is invalid; the message names the column or the row.

        Example:
            >>> import pandas as pd
            >>> rows = [{"qid": "q1", "query": "who wrote it?", "docno": "b", "text": "She did."}]
            >>> aptool.Pools.from_pandas(pd.DataFrame(rows))
            Pools(1 question, 1 candidate)
        """
        return cls(frame_from_pandas("pools", frame, _COLUMNS))

    @classmethod
    def from_dict(cls, pools: Mapping[str, tuple[str, Mapping[str, str]]]) -> "Pools":
        """Make pools from a dict.

        Args:
            pools: ``{question id: (question, {answer id: answer})}``.

        Returns:
            The pools, in memory.

        Raises:
            AptoolError: a value is invalid; the message names the question and the answer.

        Example:
            >>> aptool.Pools.from_dict({"q1": ("who wrote it?", {"a": "Nobody knows.", "b": "She did."})})
            Pools(1 question, 2 candidates)
        """
        return cls(pl.DataFrame(list(_rows(pools)), schema=_COLUMNS, orient="row"))

    @property
    def frame(self) -> pl.DataFrame:
        """The pools as a polars frame, read from the files at the first use.

        One row per candidate, in the order of the pools: question_id, question, answer_id, answer (all str).
        """
        if self._frame is None:
            assert self._files is not None
            shared = read_answers(self._files.answers) if self._files.answers is not None else None
            frames = []
            for unit in self._files.units:
                batch = read_pools(unit, shared)
                questions = pl.Series(batch.questions).gather(batch.pair_question)
                answers = pl.Series(batch.answers).gather(batch.pair_answer)
                frames.append(batch.pairs().with_columns(question=questions, answer=answers))
            self._frame = pl.concat(frames).select(list(_COLUMNS))
        return self._frame

    def to_polars(self) -> pl.DataFrame:
        """Return ``frame``: one row per candidate.

        Returns:
            question_id, question, answer_id, answer (all str), in the order of the pools.

        Raises:
            AptoolError: a file of the pools is invalid.

        Example:
            >>> pools = aptool.Pools.from_dict({"q1": ("who wrote it?", {"b": "She did."})})
            >>> pools.to_polars().rows()
            [('q1', 'who wrote it?', 'b', 'She did.')]
        """
        return self.frame

    def to_pandas(self) -> "pd.DataFrame":
        """Convert the pools to a pandas frame.

        Returns:
            The columns and rows of `Pools.to_polars`.

        Raises:
            AptoolError: pandas is not installed, or a file of the pools is invalid.

        Example:
            >>> aptool.Pools.from_dict({"q1": ("who wrote it?", {"b": "She did."})}).to_pandas().shape
            (1, 4)
        """
        return to_pandas(self.frame)

    def to_dict(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Convert the pools to a dict.

        Returns:
            ``{question id: (question, {answer id: answer})}``, in the order of the pools.

        Raises:
            AptoolError: a file of the pools is invalid.

        Example:
            >>> aptool.Pools.from_dict({"q1": ["who wrote it?", {"b": "She did."}]}).to_dict()
            {'q1': ('who wrote it?', {'b': 'She did.'})}
        """
        result: dict[str, tuple[str, dict[str, str]]] = {}
        for question_id, question, answer_id, answer in self.frame.iter_rows():
            result.setdefault(question_id, (question, {}))[1][answer_id] = answer
        return result

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write one pools file with all texts, atomically.

        Args:
            path: a file name that ends in ``.pools.parquet``.
            overwrite: replace an existing file even if aptool did not write it, or it has changed since.

        Raises:
            AptoolError: the file cannot be written or may not be replaced.

        Example:
            >>> pools = aptool.Pools.from_dict({"q1": ("who wrote it?", {"b": "She did."})})
            >>> pools.save("mine.pools.parquet")
            >>> aptool.Pools.load("mine.pools.parquet").to_dict() == pools.to_dict()
            True
        """
        file = check_path("path", path)
        if self._files is not None:
            check_apart(file, self._files.paths)
        if overwrite:
            adopt(file, Kind.POOLS)
        frame = self.frame
        with output_file(file, Kind.POOLS) as temporary, PoolsWriter(temporary) as writer:
            for (question_id, question), rows in frame.group_by(
                "question_id", "question", maintain_order=True
            ):
                writer.write(
                    PoolRecord(
                        str(question_id), str(question), rows["answer_id"].to_list(), rows["answer"].to_list()
                    )
                )

    @contextmanager
    def on_disk(self) -> Iterator[PoolFiles]:
        """The files of the pools; pools in memory are written to a temporary file."""
        if self._files is not None:
            yield self._files
            return
        with tempfile.TemporaryDirectory(prefix="aptool-") as folder:
            path = Path(folder) / "pools.parquet"
            self.save(path)
            yield PoolFiles(list_units([path]), None)

    @contextmanager
    def files(self) -> Iterator[tuple[list[str], Answers | None]]:
        """The paths of the files of ``on_disk``, and the shared answers."""
        with self.on_disk() as files:
            yield files.paths, read_answers(files.answers) if files.answers is not None else None

    def __repr__(self) -> str:
        if self._frame is None:
            assert self._files is not None
            return f"Pools({', '.join(self._files.paths)})"
        questions = self._frame["question_id"].n_unique()
        return f"Pools({counted(questions, 'question')}, {counted(self._frame.height, 'candidate')})"


def _rows(pools: object) -> Iterator[tuple[str, str, str, str]]:
    """The checked rows of a dict: question_id, question, answer_id, answer."""
    if not isinstance(pools, Mapping) or not pools:
        raise InputError("pools", value=pools, expected=_EXPECTED)
    for question_id, pool in pools.items():
        position = f"question {shortened(question_id)}"
        check_id("pools", None, "question_id", question_id)
        if not isinstance(pool, tuple | list) or len(pool) != 2:
            raise InputError("pools", position=position, value=pool, expected=_EXPECTED)
        question, answers = pool
        check_text("pools", question, position)
        if not isinstance(answers, Mapping) or not answers:
            raise InputError("pools", position=position, value=answers, expected="a dict {answer id: answer}")
        for answer_id, answer in answers.items():
            check_id("pools", position, "answer_id", answer_id)
            check_text("pools", answer, f"{position}, answer {shortened(answer_id)}")
            yield question_id, question, answer_id, answer


def _check_questions(frame: pl.DataFrame) -> None:
    """Raise if a question has several texts."""
    other = frame.select(pl.col("question") != pl.col("question").first().over("question_id")).to_series()
    row = other.arg_max() if other.any() else None
    if row is not None:
        value, question = frame["question"][row], frame["question_id"][row]
        expected = f"the text of question {question!r} in earlier rows"
        raise InputError("pools", position=f"row {row}", column="question", value=value, expected=expected)
