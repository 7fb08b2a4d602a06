"""Groups of questions for ``evaluate(by=...)``: from a dict, a frame, a file or pools."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, Union

import polars as pl

from aptool.errors import InputError
from aptool.evaluation.groups import groups_of_column, groups_of_files, groups_of_mapping, read_groups
from aptool.evaluation.measures import relevant_from
from aptool.formats.location import ObjectPath
from aptool.formats.pools import read_answers
from aptool.library.arguments import PathLike, check_path
from aptool.library.pools import Pools
from aptool.library.qrels import Qrels
from aptool.reporting import breakdown

if TYPE_CHECKING:
    import pandas as pd

AnyGroups: TypeAlias = Union[pl.DataFrame, "pd.DataFrame", PathLike, Pools]


def question_groups(by: object, groups: object, qrels: Qrels, level: int) -> pl.DataFrame:
    """The group of each question: question_id, group, position.

    Args:
        by: ``{question id: group}``, or a column of ``groups``, or a kind of question with pools.
        groups: a frame, a file or ``Pools``; None if ``by`` is a dict.
        qrels: the judgements.
        level: the lowest relevance that counts as relevant.

    Raises:
        InputError: an argument is of another type, or has no such column.
    """
    if isinstance(by, Mapping):
        if groups is not None:
            raise InputError("groups", problem="given with a dict as by", expected="a column's name as by")
        return groups_of_mapping("by", by)
    if not isinstance(by, str):
        raise InputError("by", value=by, expected="a dict {question id: group}, or the name of a column")
    if isinstance(groups, Pools):
        with groups.on_disk() as (units, answers):
            files = list(dict.fromkeys(unit.path for unit in units))
            kind = next((kind for kind in breakdown.KINDS if kind == by), None)
            if kind is None:
                return groups_of_files(files, by)
            texts = read_answers(answers) if answers is not None else None
            return breakdown.question_groups(files, relevant_from(qrels.frame, level), kind, texts)
    if isinstance(groups, str | os.PathLike | ObjectPath):
        return read_groups(check_path("groups", groups), by)
    return groups_of_column("groups", _frame(groups), by)


def _frame(groups: object) -> pl.DataFrame:
    if isinstance(groups, pl.LazyFrame):
        return groups.collect()
    if isinstance(groups, pl.DataFrame):
        return groups
    kind = type(groups)
    if (kind.__module__.partition(".")[0], kind.__name__) == ("pandas", "DataFrame"):
        return pl.DataFrame({str(name): column.tolist() for name, column in groups.items()}, strict=False)  # type: ignore[attr-defined]
    expected = "a polars or pandas DataFrame, a TSV, CSV or Parquet file, or Pools, with the column of by"
    raise InputError("groups", value=groups, expected=expected)
