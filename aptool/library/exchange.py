"""Runs and qrels of other tools: records of ir_measures and files of ranx."""

import json
from typing import Any

import polars as pl

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, first_line
from aptool.formats.atomic import output_file
from aptool.formats.outputs import Kind, adopt
from aptool.library.arguments import PathLike, check_path, check_text, check_type
from aptool.library.qrels import Qrels
from aptool.library.run import Run

# ranx detects the file type by the name.
_JSON, _PARQUET = ".json", (".parquet", ".parq")
_RANX = {"question_id": "q_id", "answer_id": "doc_id"}


def to_ir_measures(content: Run | Qrels) -> list[Any]:
    """Convert a run or qrels to the records of ir_measures.

    Args:
        content: the run or the qrels.

    Returns:
        ``ir_measures.ScoredDoc`` for a run, ``ir_measures.Qrel`` for qrels, one per candidate.

    Raises:
        AptoolError: ir_measures is not installed, or ``content`` has another type.

    Example:
        >>> aptool.to_ir_measures(aptool.Run({"q1": {"a": 0.2}}))
        [ScoredDoc(query_id='q1', doc_id='a', score=0.2)]
    """
    try:
        import ir_measures
    except ImportError as error:
        raise AptoolError("to_ir_measures needs ir_measures: pip install ir_measures") from error
    if isinstance(content, Run):
        rows = content.to_polars().select("question_id", "answer_id", "score").iter_rows()
        return [ir_measures.ScoredDoc(*row) for row in rows]
    check_type("content", content, Qrels, "a Run or Qrels")
    rows = content.to_polars().select("question_id", "answer_id", "relevance").iter_rows()
    return [ir_measures.Qrel(*row) for row in rows]


def save_ranx(content: Run | Qrels, path: PathLike, *, overwrite: bool = False) -> None:
    """Write a run or qrels as a file of ranx.

    Args:
        content: the run or the qrels.
        path: a file name that ends in ``.json``, for ranx's ``from_file``; or, for a run, in ``.parquet``,
            for ``Run.from_parquet``.
        overwrite: replace an existing file even if aptool did not write it, or it has changed since.

    Raises:
        AptoolError: the file name has another ending, or the file cannot be written or may not be replaced.

    Example:
        >>> aptool.save_ranx(aptool.Run({"q1": {"a": 0.2}}), "run.json")
        >>> from pathlib import Path
        >>> Path("run.json").read_text()
        '{"q1": {"a": 0.2}}'
    """
    name = check_path("path", path)
    if not isinstance(content, Run):
        check_type("content", content, Qrels, "a Run or Qrels")
    parquet = name.endswith(_PARQUET)
    if not parquet and not name.endswith(_JSON):
        raise InputError(
            name, problem="unknown kind of file", expected="a name that ends in .json or .parquet"
        )
    if parquet and not isinstance(content, Run):
        raise InputError(name, value=type(content).__name__, expected="a Run; qrels go into a file .json")
    kind = Kind.RUN if isinstance(content, Run) else Kind.QRELS
    if overwrite:
        adopt(name, kind)
    with output_file(name, kind) as temporary:
        if parquet:
            frame = content.to_polars().select("question_id", "answer_id", "score")
            frame.rename(_RANX).write_parquet(temporary)
        else:
            temporary.write_text(json.dumps(content.to_dict()), encoding="utf-8")


def load_ranx(path: PathLike, tag: str = "run") -> Run:
    """Read a run file of ranx.

    Args:
        path: a JSON file, or a Parquet file with a name that ends in ``.parquet`` or ``.parq``.
        tag: the name of the system.

    Returns:
        The run of the file.

    Raises:
        AptoolError: the file cannot be read, or a value is invalid; the message names the candidate.

    Example:
        >>> aptool.save_ranx(aptool.Run({"q1": {"a": 0.2, "b": 0.7}}), "run.parquet")
        >>> aptool.load_ranx("run.parquet").to_dict()
        {'q1': {'b': 0.7, 'a': 0.2}}
    """
    name = check_path("path", path)
    try:
        if name.endswith(_PARQUET):
            frame = pl.read_parquet(name).rename({name: column for column, name in _RANX.items()})
            return Run(frame.select("question_id", "answer_id", "score"), check_text("tag", tag))
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(name, problem=first_line(error), expected="a run file of ranx") from error
    return Run(read_json(name, "a run file of ranx"), check_text("tag", tag))
