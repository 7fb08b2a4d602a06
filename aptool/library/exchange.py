"""Runs and qrels as other tools take them: ir_measures' records, and the files of ranx.

trectools, and ranx too, read the TREC run files that ``Run.save`` writes.
"""

import json
from collections.abc import Iterable
from typing import Any

import polars as pl

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, first_line
from aptool.formats.atomic import atomic_file
from aptool.library.arguments import PathLike, check_list, check_path, check_text, check_type
from aptool.library.frames import check_id
from aptool.library.qrels import Qrels
from aptool.library.run import Run

# ranx tells its files by their names, and its columns are called so.
_JSON, _PARQUET = ".json", (".parquet", ".parq")
_RANX = {"question_id": "q_id", "answer_id": "doc_id"}


def to_ir_measures(content: Run | Qrels) -> list[Any]:
    """A run as ``ir_measures.ScoredDoc``, or qrels as ``ir_measures.Qrel``: the input of every provider.

    Raises:
        AptoolError: ir_measures is not installed, or ``content`` is neither.
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


def from_ir_measures(records: Iterable[Any], tag: str = "run") -> Run:
    """A run from records with ``query_id``, ``doc_id`` and ``score``, such as ``ir_measures.read_trec_run``.

    Raises:
        AptoolError: naming the record or the candidate at fault.
    """
    rows = []
    for number, record in enumerate(check_list("records", records, "records of ir_measures")):
        try:
            question, answer, score = record.query_id, record.doc_id, float(record.score)
        except (AttributeError, TypeError, ValueError) as error:
            expected = "a record with query_id, doc_id and score"
            raise InputError("records", place=f"item {number}", value=record, expected=expected) from error
        check_id("records", f"item {number}", "question_id", question)
        check_id("records", f"item {number}", "answer_id", answer)
        rows.append((question, answer, score))
    frame = pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")
    return Run.from_polars(frame, check_text("tag", tag))


def save_ranx(content: Run | Qrels, path: PathLike) -> None:
    """Writes a run or qrels as a file of ranx.

    JSON is for its ``Run.from_file`` and ``Qrels.from_file``, Parquet for its ``Run.from_parquet``.

    Args:
        content: the run or the qrels.
        path: a name that ends in ``.json`` or ``.parquet``, which a run has alone.

    Raises:
        AptoolError: the name ends in something else, or the file cannot be written.
    """
    name = check_path("path", path)
    if not isinstance(content, Run):
        check_type("content", content, Qrels, "a Run or Qrels")
    number = "score" if isinstance(content, Run) else "relevance"
    parquet = name.endswith(_PARQUET)
    if not parquet and not name.endswith(_JSON):
        raise InputError(
            name, problem="unknown kind of file", expected="a name that ends in .json or .parquet"
        )
    if parquet and not isinstance(content, Run):
        raise InputError(name, value=type(content).__name__, expected="a Run; qrels go into a file .json")
    frame = content.to_polars().select("question_id", "answer_id", number)
    with atomic_file(name) as temporary:
        if parquet:
            frame.rename(_RANX).write_parquet(temporary)
        else:
            temporary.write_text(json.dumps(content.to_dict()), encoding="utf-8")


def load_ranx(path: PathLike, tag: str = "run") -> Run:
    """Reads a run file of ranx, JSON or Parquet.

    Raises:
        AptoolError: it cannot be read, or is not a run; the question and the candidate at fault are named.
    """
    name = check_path("path", path)
    try:
        if name.endswith(_PARQUET):
            frame = pl.read_parquet(name).rename({theirs: ours for ours, theirs in _RANX.items()})
            return Run.from_polars(frame.select("question_id", "answer_id", "score"), check_text("tag", tag))
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(name, problem=first_line(error), expected="a run file of ranx") from error
    return Run.from_dict(read_json(name, "a run file of ranx"), check_text("tag", tag))
