"""Pools: questions with their candidate answers, in memory as a polars frame and on disk as Parquet."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from aptool.errors import InputError, counted, shortened
from aptool.formats.atomic import atomic_file, check_apart
from aptool.formats.collection import answers_of_all
from aptool.formats.location import ObjectPath
from aptool.formats.pools import Answers, PoolRecord, PoolsWriter, Unit, list_units, read_answers, read_pools
from aptool.formats.storage import expand
from aptool.library.arguments import PathLike, check_list, check_path, check_text
from aptool.library.frames import check_frame, check_id, frame_from_pandas, frame_from_polars, to_pandas

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: dict[str, Any] = dict.fromkeys(("question_id", "question", "answer_id", "answer"), pl.String)
_FORM = "a dict {question id: (question, {answer id: answer})}"


class PoolFiles(NamedTuple):
    """Pools on disk: their row groups, and the file of the answers that they share, if they do."""

    units: list[Unit]
    answers: str | None


class Pools:
    """Questions, each with the candidate answers that are to be ranked; relevance is in ``Qrels``.

    Pools of a collection or of files stay on disk until ``frame`` is used, and are scored row group by row
    group.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        """Pools from a polars frame; see ``from_polars``."""
        self._files: PoolFiles | None = None
        self._frame: pl.DataFrame | None = frame_from_polars("pools", frame, _COLUMNS)
        check_frame("pools", self._frame)
        _check_questions(self._frame)

    @classmethod
    def load(cls, path: PathLike | Iterable[PathLike], *, answers: PathLike | None = None) -> "Pools":
        """Opens pools files (``schemas/pools.schema.json``); texts are read when they are needed.

        Args:
            path: a file, folder, glob or URL, or several.
            answers: the file of the answers that the pools share; None is ``answers.parquet`` beside them.

        Raises:
            AptoolError: a file is missing, or is not one of pools.
        """
        several = (
            [path] if isinstance(path, str | ObjectPath) or not isinstance(path, Iterable) else list(path)
        )
        files = [check_path("path", one) for one in check_list("path", several, "at least one path")]
        found = expand(files, ".pools.parquet")
        shared = None if answers is None else check_path("answers", answers)
        if shared is None:
            beside = answers_of_all(found)
            shared = str(beside) if beside is not None else None
        pools = cls.__new__(cls)
        pools._files = PoolFiles(list_units(found), shared)
        pools._frame = None
        return pools

    @classmethod
    def from_polars(cls, frame: pl.DataFrame) -> "Pools":
        """Pools from a polars frame of one row a candidate.

        Args:
            frame: columns question_id (or query_id, qid), question (or query), answer_id (or doc_id, docno,
                docid) and answer (or text), all text.

        Raises:
            AptoolError: naming the column or the row at fault.
        """
        return cls(frame)

    @classmethod
    def from_pandas(cls, frame: "pd.DataFrame") -> "Pools":
        """Pools from a pandas frame; columns and errors as in ``from_polars``."""
        return cls(frame_from_pandas("pools", frame, _COLUMNS))

    @classmethod
    def from_dict(cls, pools: Mapping[str, tuple[str, Mapping[str, str]]]) -> "Pools":
        """Pools from ``{question id: (question, {answer id: answer})}``.

        Raises:
            AptoolError: naming the question and the answer at fault.
        """
        return cls(pl.DataFrame(list(_rows(pools)), schema=_COLUMNS, orient="row"))

    @property
    def frame(self) -> pl.DataFrame:
        """question_id, question, answer_id, answer (all str): one row a candidate, in the order of the pools.

        Raises:
            AptoolError: the files do not hold what pools need.
        """
        if self._frame is None:
            self._frame = _read(*self._on_disk())
        return self._frame

    def to_polars(self) -> pl.DataFrame:
        """The same as ``frame``."""
        return self.frame

    def to_pandas(self) -> "pd.DataFrame":
        """The frame in pandas, which must be installed."""
        return to_pandas(self.frame)

    def to_dict(self) -> dict[str, tuple[str, dict[str, str]]]:
        """``{question id: (question, {answer id: answer})}``."""
        result: dict[str, tuple[str, dict[str, str]]] = {}
        for question_id, question, answer_id, answer in self.frame.iter_rows():
            result.setdefault(question_id, (question, {}))[1][answer_id] = answer
        return result

    def save(self, path: PathLike) -> None:
        """Writes a pools file that holds all texts; it appears whole or not at all.

        Raises:
            AptoolError: the file cannot be written.
        """
        file = check_path("path", path)
        if self._files is not None:
            check_apart(file, dict.fromkeys(unit.path for unit in self._files.units))
        frame = self.frame
        with atomic_file(file) as temporary, PoolsWriter(temporary) as writer:
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
        """The files to score; pools that are in memory only are written to a temporary one."""
        if self._files is not None:
            yield self._files
            return
        with tempfile.TemporaryDirectory(prefix="aptool-") as folder:
            path = Path(folder) / "pools.parquet"
            self.save(path)
            yield PoolFiles(list_units([path]), None)

    @contextmanager
    def files(self) -> Iterator[tuple[list[str], Answers | None]]:
        """The paths of the files, and the answers that they share; pools in memory as in ``on_disk``."""
        with self.on_disk() as (units, answers):
            paths = list(dict.fromkeys(unit.path for unit in units))
            yield paths, read_answers(answers) if answers is not None else None

    def _on_disk(self) -> PoolFiles:
        assert self._files is not None
        return self._files

    def __repr__(self) -> str:
        if self._frame is None:
            files = list(dict.fromkeys(unit.path for unit in self._on_disk().units))
            return f"Pools({', '.join(files)})"
        questions = self._frame["question_id"].n_unique()
        return f"Pools({counted(questions, 'question')}, {counted(self._frame.height, 'candidate')})"


def _read(units: list[Unit], answers: str | None) -> pl.DataFrame:
    shared = read_answers(answers) if answers is not None else None
    frames = []
    for unit in units:
        read = read_pools(unit, shared)
        frames.append(
            pl.DataFrame(
                {
                    "question_id": pl.Series(read.question_ids).gather(read.pair_question),
                    "question": pl.Series(read.questions).gather(read.pair_question),
                    "answer_id": pl.Series(read.answer_ids),
                    "answer": pl.Series(read.answers).gather(read.pair_answer),
                }
            )
        )
    return pl.concat(frames)


def _rows(pools: object) -> Iterator[tuple[str, str, str, str]]:
    if not isinstance(pools, Mapping) or not pools:
        raise InputError("pools", value=pools, expected=_FORM)
    for question_id, pool in pools.items():
        place = f"question {shortened(question_id)}"
        check_id("pools", None, "question_id", question_id)
        if not isinstance(pool, tuple | list) or len(pool) != 2:
            raise InputError("pools", place=place, value=pool, expected=_FORM)
        question, answers = pool
        check_text("pools", question, place)
        if not isinstance(answers, Mapping) or not answers:
            raise InputError("pools", place=place, value=answers, expected="a dict {answer id: answer}")
        for answer_id, answer in answers.items():
            check_id("pools", place, "answer_id", answer_id)
            check_text("pools", answer, f"{place}, answer {shortened(answer_id)}")
            yield question_id, question, answer_id, answer


def _check_questions(frame: pl.DataFrame) -> None:
    """A question has one text in all of its rows."""
    other = frame.select(pl.col("question") != pl.col("question").first().over("question_id")).to_series()
    row = other.arg_max() if other.any() else None
    if row is not None:
        value, question = frame["question"][row], frame["question_id"][row]
        expected = f"the text that question {question!r} has in the rows before"
        raise InputError("pools", place=f"row {row}", column="question", value=value, expected=expected)
