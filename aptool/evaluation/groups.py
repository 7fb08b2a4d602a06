"""Groups of questions: from a dict, a column of a table, or the texts of the pools."""

import io
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import polars as pl

from aptool.arguments import PathLike, check_path, is_path
from aptool.data.frames import NAMES, TABLE, Table, read_columns
from aptool.data.pools import Pools
from aptool.data.runs import Qrels
from aptool.errors import InputError, UsageError, first_line
from aptool.evaluation.texts import KINDS, groups_of_texts, relevant_from
from aptool.paths import PathOrUrl, file_errors, location

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".tsv", ".csv", ".parquet")

AnyGroups: TypeAlias = PathLike | Pools | Table


def question_groups(by: object, groups: object, qrels: Qrels, level: int) -> pl.DataFrame:
    """The groups of each question, from arguments of `evaluate`: question_id, group, position."""
    source = "a group"
    if isinstance(by, Mapping):
        if groups is not None:
            expected = "the name of a column as by"
            raise InputError("groups", problem="not allowed if by is a dict", expected=expected)
        table = groups_of_mapping("by", by)
    elif not isinstance(by, str):
        raise InputError("by", value=by, expected="a dict {question id: group}, or the name of a column")
    elif isinstance(groups, Pools):
        with groups.files() as (files, answers):
            source = ", ".join(files)
            if by in KINDS:
                kind: Any = by
                table = groups_of_texts(files, relevant_from(qrels.frame, level), kind, answers)
            else:
                try:
                    table = groups_of_files(files, by)
                except InputError as error:
                    expected = f"{', '.join(KINDS)}, or a column of groups or of the pools"
                    raise UsageError(f"by {by}: expected {expected} ({error})") from error
    elif is_path(groups):
        source = check_path("groups", groups)
        table = read_groups(source, by)
    else:
        table = groups_of_column("groups", _groups_frame(groups), by)
    if qrels.frame.join(table, on="question_id", how="semi").is_empty():
        name = f"by {by}" if isinstance(by, str) else "by"
        raise UsageError(f"{name}: no question of {qrels.path or 'the qrels'} is in {source}")
    return table


def _groups_frame(groups: object) -> pl.DataFrame:
    expected = f"{TABLE}, a TSV, CSV or Parquet file, or Pools, with the column of by"
    return pl.DataFrame(dict(read_columns("groups", groups, expected)), strict=False)


def groups_of_column(name: str, frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """The group of each question: question_id, group, position; by number, or else by name.

    Args:
        name: name of the frame in errors, such as its path.
        frame: question_id (or query_id, qid) and the column; other columns and repeated rows are ignored.
        column: the column with the names of the groups; a null means no group.
    """
    ids = next((name for name in NAMES["question_id"] if name in frame.columns), None)
    if ids is None:
        raise InputError(name, value=", ".join(frame.columns), expected="a column 'question_id'")
    if column not in frame.columns:
        columns = ", ".join(other for other in frame.columns if other != ids) or "its columns"
        raise InputError(name, problem=f"no column {column!r}", expected=f"one of {columns}")
    if frame.schema[ids] not in (pl.String, pl.Categorical, pl.Enum):
        raise InputError(name, column=ids, value=str(frame.schema[ids]), expected="text")
    if frame.schema[column].is_nested():
        raise InputError(name, column=column, value=str(frame.schema[column]), expected="one value per row")
    pairs = frame.select(question_id=pl.col(ids).cast(pl.String), group=pl.col(column).cast(pl.String))
    pairs = pairs.drop_nulls().unique(maintain_order=True)
    if pairs.is_empty():
        raise InputError(name, column=column, problem="no value", expected="the group of a question")
    repeated = pairs.filter(pl.col("question_id").is_duplicated())
    if not repeated.is_empty():
        question = repeated["question_id"][0]
        values = repeated.filter(question_id=question)["group"].head(2).to_list()
        where = f"question {question!r}"
        raise InputError(
            name, position=where, column=column, value=" and ".join(values), expected="one group"
        )
    order = {group: number for number, group in enumerate(_sorted(pairs["group"].unique().to_list()))}
    position = pl.col("group").replace_strict(order, return_dtype=pl.Int64)
    return pairs.with_columns(position=position)


def read_groups(path: PathOrUrl, column: str) -> pl.DataFrame:
    """The group of each question from a Parquet file, or a TSV or CSV file with a header."""
    suffix = PurePosixPath(str(path)).suffix
    if suffix not in SUFFIXES:
        raise InputError(path, problem="unknown format", expected=f"a name ending in {', '.join(SUFFIXES)}")
    with file_errors(path):
        content = io.BytesIO(location(path).read_bytes())
    try:
        if suffix == ".parquet":
            schema = pl.read_parquet_schema(content)
            columns = [name for name in schema if name in (*NAMES["question_id"], column)]
            frame = (
                pl.read_parquet(content, columns=columns) if column in schema else pl.DataFrame(schema=schema)
            )
        else:
            # Quotation marks in a TSV file are text.
            quotes = {".csv": '"', ".tsv": None}[suffix]
            frame = pl.read_csv(content, separator=_SEPARATORS[suffix], quote_char=quotes, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(path, problem=first_line(error), expected=f"a table ({suffix})") from error
    return groups_of_column(str(path), frame, column)


def groups_of_files(paths: Iterable[PathOrUrl], column: str) -> pl.DataFrame:
    """The group of each question from several files; see `read_groups`."""
    parts = [read_groups(path, column).select("question_id", "group") for path in paths]
    return groups_of_column("pools", pl.concat(parts), "group")


def groups_of_mapping(name: str, groups: Mapping[str, object]) -> pl.DataFrame:
    """The group of each question from ``{question id: group}``; see `groups_of_column`."""
    for question in groups:
        if not isinstance(question, str):
            raise InputError(name, value=question, expected="question ids (str)")
    values = [None if value is None else str(value) for value in groups.values()]
    frame = pl.DataFrame(
        {"question_id": list(groups), "group": values}, schema={"question_id": pl.String, "group": pl.String}
    )
    return groups_of_column(name, frame, "group")


def _sorted(groups: list[str]) -> list[str]:
    """Sort by number if all names are numbers, otherwise as texts."""
    try:
        return sorted(groups, key=lambda group: (float(group), group))
    except ValueError:
        return sorted(groups)
