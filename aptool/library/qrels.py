"""Qrels: judgements of relevance, in memory as a polars frame and on disk as a TREC qrels file."""

import copy
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from aptool.errors import counted
from aptool.formats.trec import read_qrels, write_qrels
from aptool.library.arguments import PathLike, check_path, check_type
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

_COLUMNS: dict[str, Any] = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


class Qrels:
    """The judged answers of each question.

    Attributes:
        frame: question_id (str), answer_id (str), relevance (i64: relevant from 1 on, below 0 unjudged), each
            answer of a question once.
        path: the file that the qrels were read from; None of qrels in memory.
    """

    path: str | None = None

    def __init__(self, frame: pl.DataFrame) -> None:
        """Qrels from a polars frame; see ``from_polars``."""
        self.frame = frame_from_polars("qrels", frame, _COLUMNS)
        check_frame("qrels", self.frame)

    @classmethod
    def load(cls, path: PathLike) -> "Qrels":
        """Reads a TREC qrels file (``qid 0 docid relevance``), gzip if its name ends in ``.gz``.

        Args:
            path: a file or a URL.

        Raises:
            AptoolError: the file cannot be read, or a line is not a judgement; the line is named.
        """
        qrels = cls.__new__(cls)
        qrels.path = check_path("path", path)
        qrels.frame = read_qrels(qrels.path)  # checked as it is read
        return qrels

    @classmethod
    def from_polars(cls, frame: pl.DataFrame) -> "Qrels":
        """Qrels from a polars frame.

        Args:
            frame: columns question_id (or query_id, qid), answer_id (or doc_id, docno, docid) and relevance
                (or label) of integers.

        Raises:
            AptoolError: naming the column or the row at fault.
        """
        return cls(frame)

    @classmethod
    def from_pandas(cls, frame: "pd.DataFrame") -> "Qrels":
        """Qrels from a pandas frame; columns and errors as in ``from_polars``."""
        return cls(frame_from_pandas("qrels", frame, _COLUMNS))

    @classmethod
    def from_dict(cls, relevance: Mapping[str, Mapping[str, int]]) -> "Qrels":
        """Qrels from ``{question id: {answer id: relevance}}``.

        Raises:
            AptoolError: naming the question and the answer at fault.
        """
        return cls(frame_from_dict("qrels", relevance, "relevance", pl.Int64()))

    def with_frame(self, frame: pl.DataFrame) -> "Qrels":
        """The qrels with a frame of some of their rows."""
        qrels = copy.copy(self)
        qrels.frame = frame
        return qrels

    def to_polars(self) -> pl.DataFrame:
        """question_id (str), answer_id (str), relevance (i64), by both ids as bytes."""
        return self.frame.sort("question_id", "answer_id")

    def to_pandas(self) -> "pd.DataFrame":
        """The frame of ``to_polars`` in pandas, which must be installed."""
        return to_pandas(self.to_polars())

    def to_dict(self) -> dict[str, dict[str, int]]:
        """``{question id: {answer id: relevance}}``, in the order of ``to_polars``."""
        return nested(self.to_polars(), "relevance")

    def save(self, path: PathLike) -> None:
        """Writes a TREC qrels file; it appears whole or not at all.

        Raises:
            AptoolError: the file cannot be written.
        """
        write_qrels(check_path("path", path), self.frame)

    def __repr__(self) -> str:
        questions = self.frame["question_id"].n_unique()
        return f"Qrels({counted(questions, 'question')}, {counted(self.frame.height, 'judgement')})"


AnyQrels: TypeAlias = Qrels | PathLike | Mapping[str, Mapping[str, int]]


def as_qrels(qrels: object) -> Qrels:
    """The qrels of an argument.

    Args:
        qrels: ``Qrels``, a file, or ``{question id: {answer id: relevance}}``.

    Raises:
        AptoolError: the argument is of another type, or the file is not a qrels file.
    """
    if isinstance(qrels, str | os.PathLike):
        return Qrels.load(qrels)
    if isinstance(qrels, Mapping):
        return Qrels.from_dict(qrels)
    check_type("qrels", qrels, Qrels, "Qrels, a file or a dict {question id: {answer id: relevance}}")
    assert isinstance(qrels, Qrels)
    return qrels
