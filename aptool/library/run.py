"""Runs: the scores of a system, in memory as a polars frame and on disk as a TREC run file."""

import copy
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from aptool.errors import InputError, counted
from aptool.formats.ir_metadata import check_run_output
from aptool.formats.trec import rank_candidates, read_run, write_run
from aptool.library.arguments import PathLike, check_list, check_path, check_text, check_type
from aptool.library.frames import (
    check_frame,
    frame_from_dict,
    frame_from_pandas,
    frame_from_polars,
    nested,
    to_pandas,
)

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: dict[str, Any] = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}


class Run:
    """The scores of a system for the candidates of each question.

    Attributes:
        frame: question_id (str), answer_id (str), score (f64, finite), each candidate of a question once.
        tag: the name of the system.
        path: the file that the run was read from; None of a run in memory.
    """

    path: str | None = None

    def __init__(self, frame: pl.DataFrame, tag: str = "run") -> None:
        """A run from a polars frame; see ``from_polars``."""
        self.frame = frame_from_polars("run", frame, _COLUMNS)
        check_frame("run", self.frame)
        self.tag = check_text("tag", tag)

    @classmethod
    def from_scores(cls, frame: pl.DataFrame, tag: str) -> "Run":
        """A run of a frame that is one already: question_id, answer_id and score, checked as it was made."""
        run = cls.__new__(cls)
        run.frame, run.tag = frame, tag
        return run

    @classmethod
    def load(cls, path: PathLike) -> "Run":
        """Reads a TREC run file (``qid Q0 docid rank score tag``), gzip if its name ends in ``.gz``.

        Args:
            path: a file or a URL.

        Raises:
            AptoolError: the file cannot be read, or a line is not one of a run; the line is named.
        """
        file = check_path("path", path)
        read = read_run(file)
        run = cls.from_scores(read.frame, read.tag)
        run.path = file
        return run

    @classmethod
    def from_polars(cls, frame: pl.DataFrame, tag: str = "run") -> "Run":
        """A run from a polars frame.

        Args:
            frame: columns question_id (or query_id, qid), answer_id (or doc_id, docno, docid) and score.
            tag: the name of the system.

        Raises:
            AptoolError: naming the column or the row at fault.
        """
        return cls(frame, tag)

    @classmethod
    def from_pandas(cls, frame: "pd.DataFrame", tag: str = "run") -> "Run":
        """A run from a pandas frame; columns and errors as in ``from_polars``."""
        return cls(frame_from_pandas("run", frame, _COLUMNS), tag)

    @classmethod
    def from_dict(cls, scores: Mapping[str, Mapping[str, float]], tag: str = "run") -> "Run":
        """A run from ``{question id: {answer id: score}}``.

        Raises:
            AptoolError: naming the question and the answer at fault.
        """
        return cls(frame_from_dict("run", scores, "score", pl.Float64()), tag)

    def with_frame(self, frame: pl.DataFrame) -> "Run":
        """The run with a frame of some of its rows."""
        run = copy.copy(self)
        run.frame = frame
        return run

    def to_polars(self) -> pl.DataFrame:
        """question_id (str), answer_id (str), score (f64) and rank (i64, from 1), in trec_eval's order.

        The order is: question id ascending, score descending, answer id descending, ids compared as bytes.
        """
        return rank_candidates(self.frame)

    def to_pandas(self) -> "pd.DataFrame":
        """The frame of ``to_polars`` in pandas, which must be installed."""
        return to_pandas(self.to_polars())

    def to_dict(self) -> dict[str, dict[str, float]]:
        """``{question id: {answer id: score}}``, in the order of ``to_polars``."""
        return nested(self.to_polars(), "score")

    def save(self, path: PathLike, tag: str | None = None) -> None:
        """Writes a TREC run file; it appears whole or not at all, and replaces nothing but a run.

        Args:
            path: the file; gzip if its name ends in ``.gz``.
            tag: the name of the system in the file, one word; None is the run's own.

        Raises:
            AptoolError: the file cannot be written, one that is not a run is there, or the tag is not one
                word.
        """
        tag = self.tag if tag is None else check_text("tag", tag)
        file = check_path("path", path)
        check_run_output(file)
        write_run(file, self.frame, tag)

    def __repr__(self) -> str:
        questions = self.frame["question_id"].n_unique()
        return (
            f"Run({self.tag!r}: {counted(questions, 'question')}, {counted(self.frame.height, 'candidate')})"
        )


AnyRun: TypeAlias = Run | PathLike | Mapping[str, Mapping[str, float]]


def as_run(run: object) -> Run:
    """The run of an argument.

    Args:
        run: ``Run``, a file, or ``{question id: {answer id: score}}``.

    Raises:
        AptoolError: the argument is of another type, or the file is not a run.
    """
    if isinstance(run, str | os.PathLike):
        return Run.load(run)
    if isinstance(run, Mapping):
        return Run.from_dict(run)
    check_type("run", run, Run, "a Run, a file or a dict {question id: {answer id: score}}")
    assert isinstance(run, Run)
    return run


def check_texts(name: str, texts: object) -> list[str]:
    """A list of texts, which may be empty.

    Raises:
        InputError: an item is no text.
    """
    items = check_list(name, texts, "a list of texts", empty=True)
    return [check_text(name, text, f"item {number}") for number, text in enumerate(items)]


def check_pairs(pairs: object) -> tuple[list[str], np.ndarray, list[str]]:
    """The distinct questions of some pairs, (pairs,) int64 the question of each pair, and its answer.

    Raises:
        InputError: an item is no pair of texts.
    """
    expected = "pairs of texts (question, answer)"
    questions: list[str] = []
    answers: list[str] = []
    for number, pair in enumerate(check_list("pairs", pairs, f"a list of {expected}", empty=True)):
        place = f"item {number}"
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError("pairs", place=place, value=pair, expected="a pair of texts (question, answer)")
        questions.append(check_text("pairs", pair[0], f"{place}, question"))
        answers.append(check_text("pairs", pair[1], f"{place}, answer"))
    distinct, rows = distinct_texts(questions)
    return distinct, rows, answers


def distinct_texts(texts: list[str]) -> tuple[list[str], np.ndarray]:
    """The distinct texts in order of appearance, and (n,) int64 the row of each text among them."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return list(rows), np.array([rows[text] for text in texts], dtype=np.int64)
