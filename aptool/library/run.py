"""The public class `Run`: the scores of a system, as a polars frame or as a TREC run file."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from typing_extensions import override

from aptool.errors import InputError, counted
from aptool.formats.outputs import Kind, adopt
from aptool.formats.tables import Tabular
from aptool.formats.trec import check_run_output, rank_candidates, read_run, to_dicts, write_run
from aptool.library.arguments import PathLike, check_list, check_path, check_text, is_path
from aptool.library.frames import TABLE, Table, read_frame

_COLUMNS = ("question_id", "answer_id", "score")
_TABLE = f"{TABLE}, or a dict {{question id: {{answer id: score}}}}; Run.load reads files"


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
        """Read a TREC run file (``qid Q0 docid rank score tag`` per line), with its tag.

        Args:
            path: a file or a URL; gzip if the name ends in ``.gz``.

        Example:
            >>> aptool.Run({"q1": {"a": 0.2}}, tag="mine").save("mine.run")
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
            question_id (str), answer_id (str), score (f64) and rank (i64, from 1), in trec_eval's order:
            question id ascending, score descending, answer id descending.

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
        """Write a TREC run file, atomically.

        Args:
            path: the file; gzip if the name ends in ``.gz``.
            tag: the name of the system in the file, one word. Default: the tag of the run.
            overwrite: replace an existing file even if aptool did not write it, or it has changed since.

        Example:
            >>> aptool.Run({"q1": {"a": 0.2, "b": 0.7}}).save("mine.run", tag="mine")
            >>> from pathlib import Path
            >>> Path("mine.run").read_text().splitlines()
            ['q1 Q0 b 1 0.7 mine', 'q1 Q0 a 2 0.2 mine']
        """
        tag = self.tag if tag is None else check_text("tag", tag)
        file = check_path("path", path)
        if overwrite:
            adopt(file, Kind.RUN)
        check_run_output(file)
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


def check_texts(name: str, texts: object) -> list[str]:
    """Return a list of texts, which may be empty."""
    items = check_list(name, texts, "a list of texts", empty=True)
    return [check_text(name, text, f"item {number}") for number, text in enumerate(items)]


def check_pairs(pairs: object) -> tuple[list[str], np.ndarray, list[str]]:
    """Return the distinct questions of pairs, (pairs,) int64 indices of questions, and the answers."""
    expected = "a list of pairs of texts (question, answer)"
    questions: list[str] = []
    answers: list[str] = []
    for number, pair in enumerate(check_list("pairs", pairs, expected, empty=True)):
        position = f"item {number}"
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(
                "pairs", position=position, value=pair, expected="a pair of texts (question, answer)"
            )
        questions.append(check_text("pairs", pair[0], f"{position}, question"))
        answers.append(check_text("pairs", pair[1], f"{position}, answer"))
    distinct, rows = distinct_texts(questions)
    return distinct, rows, answers


def distinct_texts(texts: list[str]) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts in order of appearance, and (n,) int64 indices of the texts."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return list(rows), np.array([rows[text] for text in texts], dtype=np.int64)
