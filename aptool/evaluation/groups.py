"""Groups of questions from a column of the user's: of a table, or of pools files."""

import io
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import polars as pl

from aptool.errors import InputError, first_line
from aptool.formats.location import PathOrUrl, location
from aptool.formats.storage import readable

_QUESTION_IDS = ("question_id", "query_id", "qid")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".tsv", ".csv", ".parquet")


def groups_of_column(name: str, frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """The group of each question.

    Args:
        name: name of the frame in errors, such as its path.
        frame: question_id (or query_id, qid) and the column; further columns and repeated rows are ignored.
        column: its values are the names of the groups. A question with a null value is in no group.

    Returns:
        question_id (str), group (str), position (i64: the order of the groups, by number if all are numbers,
        else by name).

    Raises:
        InputError: a column is missing or of another type, no value is given, or a question is in two groups.
    """
    ids = next((known for known in _QUESTION_IDS if known in frame.columns), None)
    if ids is None:
        raise InputError(name, value=", ".join(frame.columns), expected="a column 'question_id'")
    if column not in frame.columns:
        others = ", ".join(other for other in frame.columns if other != ids)
        raise InputError(name, problem=f"no column {column!r}", expected=f"one of {others or 'its columns'}")
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
        place = f"question {question!r}"
        raise InputError(name, place=place, column=column, value=" and ".join(values), expected="one group")
    order = {group: place for place, group in enumerate(_sorted(pairs["group"].unique().to_list()))}
    position = pl.col("group").replace_strict(order, return_dtype=pl.Int64)
    return pairs.with_columns(position=position)


def read_groups(path: PathOrUrl, column: str) -> pl.DataFrame:
    """The group of each question, from a file; see `groups_of_column`.

    Args:
        path: a TSV or CSV file with a header, or a Parquet file.
        column: the column with the groups.

    Raises:
        InputError: the file cannot be read, or see `groups_of_column`.
    """
    suffix = PurePosixPath(str(path)).suffix
    if suffix not in SUFFIXES:
        raise InputError(path, problem="unknown format", expected=f"a name ending in {', '.join(SUFFIXES)}")
    with readable(path):
        content = io.BytesIO(location(path).read_bytes())
    try:
        if suffix == ".parquet":
            schema = pl.read_parquet_schema(content)
            wanted = [name for name in schema if name in (*_QUESTION_IDS, column)]
            frame = (
                pl.read_parquet(content, columns=wanted) if column in schema else pl.DataFrame(schema=schema)
            )
        else:
            # Quotes in a TSV file are characters of the text.
            quotes = {".csv": '"', ".tsv": None}[suffix]
            frame = pl.read_csv(content, separator=_SEPARATORS[suffix], quote_char=quotes, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(path, problem=first_line(error), expected=f"a table ({suffix})") from error
    return groups_of_column(str(path), frame, column)


def groups_of_files(paths: Iterable[PathOrUrl], column: str) -> pl.DataFrame:
    """The group of each question of several files, in one order of groups; see `read_groups`."""
    parts = [read_groups(path, column).select("question_id", "group") for path in paths]
    return groups_of_column("pools", pl.concat(parts), "group")


def groups_of_mapping(name: str, groups: Mapping[str, object]) -> pl.DataFrame:
    """The group of each question, from ``{question id: group}``; see `groups_of_column`.

    Raises:
        InputError: a question id is not text.
    """
    for question in groups:
        if not isinstance(question, str):
            raise InputError(name, value=question, expected="question ids (str)")
    values = [None if value is None else str(value) for value in groups.values()]
    frame = pl.DataFrame(
        {"question_id": list(groups), "group": values}, schema={"question_id": pl.String, "group": pl.String}
    )
    return groups_of_column(name, frame, "group")


def _sorted(groups: list[str]) -> list[str]:
    """The names in order: of numbers by value, of others as texts."""
    try:
        return sorted(groups, key=lambda group: (float(group), group))
    except ValueError:
        return sorted(groups)
