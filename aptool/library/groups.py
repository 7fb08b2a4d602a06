"""Groups of questions from a dict, a frame, a file or pools."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, Union

import polars as pl

from aptool.errors import InputError, UsageError
from aptool.evaluation.evaluation import groups_of_column, groups_of_files, groups_of_mapping, read_groups
from aptool.evaluation.measures import relevant_from
from aptool.formats.location import ObjectPath
from aptool.library.arguments import PathLike, check_path
from aptool.library.pools import Pools
from aptool.library.qrels import Qrels
from aptool.reporting import kinds

if TYPE_CHECKING:
    import pandas as pd

AnyGroups: TypeAlias = Union[pl.DataFrame, "pd.DataFrame", PathLike, Pools]


def question_groups(
    by: object, groups: object, qrels: Qrels, level: int, *, options: bool = False
) -> pl.DataFrame:
    """The group of each question: question_id, group, position.

    Args:
        by: see ``evaluate``.
        groups: see ``evaluate``.
        qrels: the judgements.
        level: the lowest relevance that counts as relevant.
        options: whether errors name options of a command instead of arguments.
    """
    source = "a group"
    name = f"--by {by}" if options else "by"
    if isinstance(by, Mapping):
        if groups is not None:
            raise InputError(
                "groups", problem="not allowed if by is a dict", expected="the name of a column as by"
            )
        table = groups_of_mapping("by", by)
    elif not isinstance(by, str):
        raise InputError("by", value=by, expected="a dict {question id: group}, or the name of a column")
    elif isinstance(groups, Pools):
        with groups.files() as (files, answers):
            source = ", ".join(files)
            kind = next((kind for kind in kinds.KINDS if kind == by), None)
            if kind is not None:
                relevant = relevant_from(qrels.frame, level)
                table = kinds.question_groups(files, relevant, kind, answers)
            else:
                try:
                    table = groups_of_files(files, by)
                except InputError as error:
                    sources = "--groups FILE or of the pools" if options else "the pools"
                    expected = f"{', '.join(kinds.KINDS)}, or a column of {sources}"
                    raise UsageError(f"{name}: expected {expected} ({error})") from error
    elif isinstance(groups, str | os.PathLike | ObjectPath):
        source = check_path("groups", groups)
        table = read_groups(source, by)
    else:
        table = groups_of_column("groups", _frame(groups), by)
    if qrels.frame.join(table, on="question_id", how="semi").is_empty():
        raise UsageError(f"{name}: no question of {qrels.path or 'the qrels'} is in {source}")
    return table


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
