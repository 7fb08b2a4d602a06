"""The public class `Qrels`: judgements of relevance, as a polars frame or as a TREC qrels file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from aptool.errors import counted
from aptool.formats.outputs import Kind, adopt
from aptool.formats.trec import nested, read_qrels, write_qrels
from aptool.library.arguments import PathLike, check_path, check_type, is_path
from aptool.library.frames import (
    check_frame,
    frame_from_dict,
    frame_from_pandas,
    frame_from_polars,
    to_pandas,
)

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: dict[str, Any] = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


class Qrels:
    """Relevance judgements (qrels): the relevance of answers to questions.

    Args:
        frame: one row per judgement, as for `Qrels.from_polars`.

    Attributes:
        frame: question_id (str), answer_id (str), relevance (i64: relevant from 1 on, unjudged below 0).
        path: the file of the qrels; None for qrels in memory.

    Raises:
        AptoolError: a value is invalid; the message names the column or the row.

    Example:
        >>> aptool.Qrels.from_dict({"q1": {"a": 0, "b": 1}, "q2": {"c": 1}})
        Qrels(2 questions, 3 judgements)
    """

    path: str | None = None

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame_from_polars("qrels", frame, _COLUMNS)
        check_frame("qrels", self.frame)

    @classmethod
    def load(cls, path: PathLike) -> "Qrels":
        """Read a TREC qrels file (``qid 0 docid relevance`` per line).

        Args:
            path: a file or a URL; gzip if the name ends in ``.gz``.

        Returns:
            The judgements of the file.

        Raises:
            AptoolError: the file cannot be read, or a line is invalid; the message names the line.

        Example:
            >>> aptool.Qrels.from_dict({"q1": {"a": 0, "b": 1}}).save("mine.qrels")
            >>> aptool.Qrels.load("mine.qrels")
            Qrels(1 question, 2 judgements)
        """
        qrels = cls.__new__(cls)
        qrels.path = check_path("path", path)
        qrels.frame = read_qrels(qrels.path)
        return qrels

    @classmethod
    def from_polars(cls, frame: pl.DataFrame) -> "Qrels":
        """Make qrels from a polars frame with one row per judgement.

        Args:
            frame: text columns question_id (or query_id, qid) and answer_id (or doc_id, docno, docid), and
                an integer column relevance (or label).

        Returns:
            The qrels, in memory.

        Raises:
            AptoolError: a value is invalid; the message names the column or the row.

        Example:
            >>> import polars as pl
            >>> frame = pl.DataFrame({"qid": ["q1"], "docno": ["b"], "label": [1]})
            >>> aptool.Qrels.from_polars(frame).to_dict()
            {'q1': {'b': 1}}
        """
        return cls(frame)

    @classmethod
    def from_pandas(cls, frame: "pd.DataFrame") -> "Qrels":
        """Make qrels from a pandas frame.

        Args:
            frame: the columns of `Qrels.from_polars`.

        Returns:
            The qrels, in memory.

        Raises:
            AptoolError: a value is invalid; the message names the column or the row.

        Example:
            >>> import pandas as pd
            >>> frame = pd.DataFrame({"qid": ["q1"], "docno": ["b"], "label": [1]})
            >>> aptool.Qrels.from_pandas(frame).to_dict()
            {'q1': {'b': 1}}
        """
        return cls(frame_from_pandas("qrels", frame, _COLUMNS))

    @classmethod
    def from_dict(cls, relevance: Mapping[str, Mapping[str, int]]) -> "Qrels":
        """Make qrels from a dict.

        Args:
            relevance: ``{question id: {answer id: relevance}}``, the relevance an integer.

        Returns:
            The qrels, in memory.

        Raises:
            AptoolError: a value is invalid; the message names the question and the answer.

        Example:
            >>> aptool.Qrels.from_dict({"q1": {"a": 0, "b": 2}})
            Qrels(1 question, 2 judgements)
        """
        return cls(frame_from_dict("qrels", relevance, "relevance", pl.Int64()))

    def to_polars(self) -> pl.DataFrame:
        """Return the judgements as a polars frame.

        Returns:
            question_id (str), answer_id (str), relevance (i64), sorted by both ids.

        Example:
            >>> aptool.Qrels.from_dict({"q1": {"b": 1, "a": 0}}).to_polars().rows()
            [('q1', 'a', 0), ('q1', 'b', 1)]
        """
        return self.frame.sort("question_id", "answer_id")

    def to_pandas(self) -> "pd.DataFrame":
        """Convert the judgements to a pandas frame.

        Returns:
            The columns and rows of `Qrels.to_polars`.

        Raises:
            AptoolError: pandas is not installed.

        Example:
            >>> aptool.Qrels.from_dict({"q1": {"b": 1, "a": 0}}).to_pandas()["relevance"].tolist()
            [0, 1]
        """
        return to_pandas(self.to_polars())

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Convert the judgements to a dict.

        Returns:
            ``{question id: {answer id: relevance}}``, in the order of `Qrels.to_polars`.

        Example:
            >>> aptool.Qrels.from_dict({"q1": {"b": 1, "a": 0}}).to_dict()
            {'q1': {'a': 0, 'b': 1}}
        """
        return nested(self.to_polars(), "relevance")

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write a TREC qrels file, atomically.

        Args:
            path: the file; gzip if the name ends in ``.gz``.
            overwrite: replace an existing file even if aptool did not write it, or it has changed since.

        Raises:
            AptoolError: the file cannot be written or may not be replaced.

        Example:
            >>> aptool.Qrels.from_dict({"q1": {"a": 0, "b": 1}}).save("mine.qrels")
            >>> from pathlib import Path
            >>> Path("mine.qrels").read_text().splitlines()
            ['q1 0 a 0', 'q1 0 b 1']
        """
        file = check_path("path", path)
        if overwrite:
            adopt(file, Kind.QRELS)
        write_qrels(file, self.frame)

    def __repr__(self) -> str:
        questions = self.frame["question_id"].n_unique()
        return f"Qrels({counted(questions, 'question')}, {counted(self.frame.height, 'judgement')})"


AnyQrels: TypeAlias = Qrels | PathLike | Mapping[str, Mapping[str, int]]


def as_qrels(qrels: object) -> Qrels:
    """Convert an argument to qrels: ``Qrels``, a file, or ``{question id: {answer id: relevance}}``."""
    if is_path(qrels):
        return Qrels.load(qrels)
    if isinstance(qrels, Mapping):
        return Qrels.from_dict(qrels)
    return check_type("qrels", qrels, Qrels, "Qrels, a file or a dict {question id: {answer id: relevance}}")
