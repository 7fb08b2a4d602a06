"""The public classes `Run` and `Qrels`: scores and judgements, as polars frames or as TREC files."""

from typing import Any, TypeAlias

import polars as pl
from typing_extensions import override

from aptool.arguments import PathLike, check_path, check_text, is_path
from aptool.data.frames import TABLE, Table, read_frame
from aptool.data.runs import check_run_output, read_run, write_run
from aptool.data.trec import rank_candidates, read_qrels, to_dicts, write_qrels
from aptool.errors import counted
from aptool.outputs import check_output
from aptool.version import Tabular

_COLUMNS = ("question_id", "answer_id", "score")
_TABLE = f"{TABLE}, or a dict {{question id: {{answer id: score}}}}; Run.load reads files"
_QRELS_COLUMNS = ("question_id", "answer_id", "relevance")
_QRELS = f"{TABLE}, or a dict {{question id: {{answer id: relevance}}}}; Qrels.load reads files"


class Run(Tabular):
    """A run: the scores of a system for the candidates of each question.

    Args:
        scores: ``{question id: {answer id: score}}``, or a table with one row per candidate and the columns
            question_id (or query_id, qid), answer_id (or doc_id, docno, docid) and score: a frame of polars,
            pandas or another library with the Arrow stream interface, a dict of columns, a list of dicts, or
            records of ir_measures. Ids are texts or whole numbers.
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
        self.frame = read_frame("run", scores, _COLUMNS, _TABLE)
        self.tag = check_text("tag", tag)

    @classmethod
    def load(cls, path: PathLike) -> "Run":
        """Read a run, with its tag: a TREC file, a table (``.parquet``) or a folder of parts.

        Args:
            path: a file or a URL, also packed as gzip, bzip2 or xz; or a folder that `score` wrote.

        Example:
            >>> aptool.Run({"q1": {"a": 0.2}}, tag="mine").save("mine.run", overwrite=True)
            >>> aptool.Run.load("mine.run")
            Run('mine': 1 question, 1 candidate)
        """
        file = check_path("path", path)
        table = read_run(file)
        run = run_of_scores(table.frame, table.tag)
        run.path = file
        return run

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
                rank and score if it ends in ``.parquet``; a folder of parts if it ends in a slash.
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
        check_run_output(file, overwrite=overwrite)
        write_run(file, self.frame, tag)

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
        >>> aptool.Qrels({"qid": ["q1", "q1"], "docno": ["a", "b"], "label": [False, True]}).to_dict()
        {'q1': {'a': 0, 'b': 1}}
    """

    path: str | None = None

    def __init__(self, judgements: Table) -> None:
        self.frame = read_frame("qrels", judgements, _QRELS_COLUMNS, _QRELS)

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
