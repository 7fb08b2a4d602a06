"""The public class `Qrels`: judgements of relevance, as a polars frame or as a TREC qrels file."""

from typing import Any, TypeAlias

import polars as pl
from typing_extensions import override

from aptool.errors import counted
from aptool.formats.outputs import Kind, adopt
from aptool.formats.tables import Tabular
from aptool.formats.trec import read_qrels, to_dicts, write_qrels
from aptool.library.arguments import PathLike, check_path, is_path
from aptool.library.frames import TABLE, Table, read_frame

_COLUMNS = ("question_id", "answer_id", "relevance")
_TABLE = f"{TABLE}, or a dict {{question id: {{answer id: relevance}}}}; Qrels.load reads files"


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
        >>> aptool.Qrels({"qid": ["q1", "q1"], "docno": ["a", "b"], "label": [False, True]}).to_dict()
        {'q1': {'a': 0, 'b': 1}}
    """

    path: str | None = None

    def __init__(self, judgements: Table) -> None:
        self.frame = read_frame("qrels", judgements, _COLUMNS, _TABLE)

    @classmethod
    def load(cls, path: PathLike) -> "Qrels":
        """Read a TREC qrels file (``qid 0 docid relevance`` per line).

        Args:
            path: a file or a URL; gzip if the name ends in ``.gz``.

        Example:
            >>> aptool.Qrels({"q1": {"a": 0, "b": 1}}).save("mine.qrels")
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
            overwrite: replace an existing file even if aptool did not write it, or it has changed since.

        Example:
            >>> aptool.Qrels({"q1": {"a": 0, "b": 1}}).save("mine.qrels")
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


AnyQrels: TypeAlias = Qrels | PathLike | Table


def as_qrels(qrels: Any) -> Qrels:
    """Convert an argument to qrels: ``Qrels``, a file or a table."""
    if isinstance(qrels, Qrels):
        return qrels
    return Qrels.load(qrels) if is_path(qrels) else Qrels(qrels)
