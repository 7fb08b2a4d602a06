"""Lines of qrels and runs in the TREC format; `data.runs` has the files of runs.

A run line is ``qid Q0 docid rank score tag``, a qrels line ``qid 0 docid relevance``. Fields are separated by
blanks and tabs; blank lines and lines that begin with ``#`` are skipped. The rank and the second field are
ignored, as in trec_eval; ranks that contradict the scores are logged. Qrels may also be a table of BEIR,
which has a header and lacks the second field.

trec_eval reads the score ``abc`` and the relevance ``0.9`` as 0, and orders NaN arbitrarily. aptool raises an
InputError with the line, also for an illegal id (`data.frames`).
"""

import gzip
import io
import logging
import math
import re
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import polars as pl

from aptool.data.frames import ANSWER_ID, QUESTION_ID, check_id, read_frame
from aptool.errors import InputError
from aptool.files import check_is_text, open_unpacked
from aptool.paths import PathOrUrl

logger = logging.getLogger(__name__)

_BLANKS = b"\t\v\f\r"
_AS_SPACES = bytes.maketrans(_BLANKS, b" " * len(_BLANKS))
_LEGAL = bytes(range(ord(" "), 0x7F)) + b"\n"  # in ids and between fields
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BEIR_HEADER = re.compile(rb"\s*\S+[ \t]+\S+[ \t]+(?:score|relevance|label)\s*", re.IGNORECASE)
# Level 1 is five times as fast as the default 6, and files are a seventh larger.
_GZIP_LEVEL = 1
_DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
# In the words after the first of a tag: signs of a further line, glued to this one without a line break.
_FURTHER_LINE = rf"(^| )([qQ]0|{_DECIMAL} {_DECIMAL})( |$)"


class _LineFormat(NamedTuple):
    """The fields of a line."""

    columns: tuple[str, ...]  # the second one is ignored
    number: str  # the numeric column
    kind: type[pl.Float64] | type[pl.Int64]  # its type
    most: int  # maximum number of fields


_RUN = _LineFormat(
    columns=("question_id", "Q0", "answer_id", "rank", "score", "tag"),
    number="score",
    kind=pl.Float64,
    most=11,  # some tools write a tag of several words
)
_QRELS = _LineFormat(
    columns=("question_id", "0", "answer_id", "relevance"),
    number="relevance",
    kind=pl.Int64,
    most=4,
)


QRELS_SCHEMA = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


def read_qrels(path: PathOrUrl) -> pl.DataFrame:
    """Read relevance judgements: question_id (str), answer_id (str), relevance (i64), in file order.

    A file whose name ends in ``.parquet`` is a table with these columns.
    """
    if str(path).endswith(".parquet"):
        return read_table(path, "qrels", "relevance")[0]
    return _read(path, _QRELS)


def read_run_lines(path: PathOrUrl) -> pl.DataFrame:
    """Read a run file: question_id, answer_id, tag (all str), rank (i64), score (f64), in file order.

    A rank that is no whole number is null.
    """
    return _read(path, _RUN)


def rank_candidates(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort the candidates of each question as trec_eval does; add the column ``rank`` (i64), from 1.

    Questions stay in the order of their first rows. The order within one is score descending, answer id
    descending, compared as bytes.
    """
    first = pl.col("question").min().over("question_id")  # row numbers
    ordered = (
        frame.with_row_index("question")
        .with_columns(first)
        .sort("question", "score", "answer_id", descending=[False, True, True])
    )
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("question")
    return ordered.with_columns(rank=rank).drop("question")


def count_ties(frame: pl.DataFrame) -> tuple[int, int]:
    """The number of questions whose candidates, two or more, all have one score, and of all questions."""
    is_tied = (pl.len() > 1) & (pl.col("score").min() == pl.col("score").max())
    tied = frame.group_by("question_id").agg(is_tied=is_tied)["is_tied"]
    return int(tied.sum()), len(tied)


def log_ties(name: str, tied: int, questions: int) -> None:
    """Warn if a run has questions whose candidates it does not rank."""
    if tied:
        logger.warning(
            f"{name}: warning: {tied:,} of {questions:,} questions have one score for all candidates, "
            "so their order is that of the answer ids"
        )


def to_dicts(frame: pl.DataFrame, column: str) -> dict[str, dict[str, Any]]:
    """Convert a column to {question id: {answer id: value}}, in the order of the frame.

    The Python loop is over questions, not over candidates, if the rows of each question are together.
    """
    answers, values = frame["answer_id"].to_list(), frame[column].to_list()
    result: dict[str, dict[str, Any]] = {}
    start = 0
    for length, question in frame.select(pl.col("question_id").rle().struct.unnest()).iter_rows():
        end = start + length
        result.setdefault(question, {}).update(zip(answers[start:end], values[start:end], strict=True))
        start = end
    return result


def printable(frame: pl.DataFrame) -> pl.DataFrame:
    """Rank a run (question_id, answer_id, score), with the scores that its files print.

    If all scores are float32 values, in any column type, they are printed as the shortest decimals that
    identify the float32 (at most nine digits), else as those that identify the float64. Reading restores the
    same values, so printing neither creates nor breaks ties. Minus zero is written as zero.

    The frame has legal ids, each pair once, and finite scores.

    Returns:
        question_id, answer_id, rank (i64), score (f32 or f64), in the order of ``rank_candidates``.
    """
    scores = frame["score"].cast(pl.Float64)
    scores = scores.set(scores == 0, 0.0)  # replaces -0.0
    narrow = scores.cast(pl.Float32)
    # Polars prints the shortest decimals of a type.
    scores = narrow if (narrow.cast(pl.Float64) == scores).all() else scores
    return rank_candidates(frame.select("question_id", "answer_id", score=scores)).select(
        "question_id", "answer_id", "rank", "score"
    )


def run_lines(frame: pl.DataFrame, tag: str) -> bytes:
    """The lines of a run, ranked and printed by ``printable``."""
    lines = printable(frame).select(
        "question_id", pl.lit("Q0").alias("Q0"), "answer_id", "rank", "score", pl.lit(tag).alias("tag")
    )
    stream = io.BytesIO()
    lines.write_csv(stream, include_header=False, separator=" ", quote_style="never")
    return stream.getvalue()


def packed(data: bytes | memoryview) -> bytes:
    """Data as a gzip file; equal data give equal bytes, whatever the name and the time."""
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)


def _read(path: PathOrUrl, line_format: _LineFormat) -> pl.DataFrame:
    with open_unpacked(path) as file:
        data = _text(path, file.read())
    if line_format is _QRELS:
        data = _with_iterations(data)
    data = _single_spaced(data)
    names, number = line_format.columns, line_format.number
    columns = [name for name in names if name != names[1]]
    extra = [f"extra{field}" for field in range(len(names), line_format.most + 1)]
    frame = pl.read_csv(
        # With a header, polars does not infer the number of columns from the first line.
        " ".join([*names, *extra]).encode() + b"\n" + data,
        separator=" ",
        quote_char=None,
        comment_prefix="#",
        infer_schema=False,
        schema_overrides={number: line_format.kind, "rank": pl.Int64},
        columns=[*columns, *extra],
        truncate_ragged_lines=True,
        ignore_errors=True,  # a number that cannot be parsed is null
    )
    frame = frame.filter(pl.col("question_id").is_not_null())  # else a blank line
    if frame.is_empty():
        raise InputError(path, problem="no line", expected=f"lines of {' '.join(names)}")
    is_bad = pl.any_horizontal(
        pl.col(names[-1]).is_null(),
        pl.col(number).is_null(),
        pl.col(number).is_finite().not_(),
        pl.col(extra[-1]).is_not_null(),
    )
    if frame[extra[0]].null_count() < frame.height and len(extra) > 1:  # tags of several words
        rest = pl.concat_str(extra, separator=" ", ignore_nulls=True)
        is_blank_in_id = pl.col(extra[0]).is_not_null() & pl.col("tag").str.contains(f"^({_DECIMAL})$")
        is_bad |= is_blank_in_id | rest.str.contains(_FURTHER_LINE)
    if data.translate(None, _LEGAL):  # else all ids are legal
        is_bad |= pl.col("question_id").str.contains(QUESTION_ID).not_()
        is_bad |= pl.col("answer_id").str.contains(ANSWER_ID).not_()
    pair = ["question_id", "answer_id"]
    if frame.select(is_bad.any()).item() or frame.n_unique(pair) < frame.height:
        is_bad |= pl.struct(pair).is_first_distinct().not_()
        row = int(frame.select(is_bad.fill_null(False).arg_max()).item())
        _refuse(path, data, line_format, frame, row)
    return frame.select(columns)


def _refuse(
    path: PathOrUrl, data: bytes, line_format: _LineFormat, frame: pl.DataFrame, row: int
) -> NoReturn:
    """Raise for a row of a frame, whose line is invalid."""
    lines = data.split(b"\n")
    numbers = [number for number, line in enumerate(lines, 1) if line and not line.startswith(b"#")]
    position = f"line {numbers[row]}"
    error = partial(InputError, path, position=position)
    line = lines[numbers[row] - 1].decode()
    fields, names, number = line.split(" "), line_format.columns, line_format.number
    found = f"{len(names)} fields ({' '.join(names)}), found {len(fields)}"
    is_glued = line_format is _RUN and re.search(_FURTHER_LINE, " ".join(fields[len(names) :])) is not None
    if not len(names) <= len(fields) <= line_format.most:
        hint = _hint(fields, is_run=line_format is _RUN)
        raise error(value=line, expected=found + (": two lines in one" if is_glued else hint))
    if len(fields) > len(names) and re.fullmatch(_DECIMAL, fields[len(names) - 1]):
        # The rank would be read as the score, and the score as the tag.
        expected = (
            f"{len(names)} fields, found {len(fields)}: no blank in an id, no number before words in a tag"
        )
        raise error(value=line, expected=expected)
    if is_glued:
        raise error(value=line, expected=f"{found}: two lines in one")
    values = frame.row(row, named=True)
    if values[number] is None or not math.isfinite(values[number]):
        expected = "a finite number" if line_format is _RUN else "a whole number of 64 bits"
        raise error(column=number, value=fields[names.index(number)], expected=expected)
    question_id, answer_id = values["question_id"], values["answer_id"]
    check_id(path, position, "question_id", question_id, of_question=True)
    check_id(path, position, "answer_id", answer_id)
    is_same = (frame["question_id"] == question_id) & (frame["answer_id"] == answer_id)
    first = numbers[is_same.arg_max() or 0]
    expected = f"each candidate of a question once; line {first} has this one already"
    raise error(column="answer_id", value=f"{question_id} {answer_id}", expected=expected)


def _hint(fields: list[str], *, is_run: bool) -> str:
    """Name the known format of a line that has another one than expected; empty if the format is unknown."""
    if is_run and len(fields) == 4 and fields[3].lstrip("+-").isdecimal():
        return "; this looks like qrels, for --qrels"
    if not is_run and len(fields) == 6 and fields[1].upper() == "Q0":
        return "; this looks like a run"
    return ""


def is_beir_header(line: str) -> bool:
    """Whether a line is the header of qrels of BEIR."""
    return _BEIR_HEADER.fullmatch(line.encode()) is not None


def _with_iterations(data: bytes) -> bytes:
    """The lines of qrels; those of BEIR, with a header and without the second field, get that field."""
    first, newline, rest = data.partition(b"\n")
    if not _BEIR_HEADER.fullmatch(first):
        return data
    fields = (line.split() for line in rest.split(b"\n"))
    # The header becomes a blank line, so that the numbers of the lines stay.
    return newline + b"\n".join(b" ".join([*row[:1], b"0", *row[1:]]) if row else b"" for row in fields)


def read_table(path: PathOrUrl, name: str, number: str) -> tuple[pl.DataFrame, dict[bytes, bytes]]:
    """Read a Parquet table: both ids (str), the column ``number``, the rank if it is there; and metadata."""
    from aptool.data.parquet import check_columns, open_parquet, text_column

    with open_parquet(path) as reader:
        check_columns(path, reader.schema, name)
        table = reader.read(["question_id", "answer_id", number, *({"rank"} & set(reader.schema.names))])
        metadata = reader.metadata.metadata or {}
    columns = {column: pl.Series(table[column]) for column in table.column_names}
    for column in ("question_id", "answer_id"):
        columns[column] = pl.Series(text_column(path, column, table[column]))
    frame = read_frame(str(path), pl.DataFrame(columns), ("question_id", "answer_id", number))
    if "rank" in columns:
        frame = frame.with_columns(columns["rank"].alias("rank"))
    return frame, metadata


def _text(path: PathOrUrl, data: bytes) -> bytes:
    """The lines of a text file; raises on binary data and on text that is not UTF-8."""
    check_is_text(path, data)
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        expected = "text, not a binary file"
        raise InputError(path, position=f"line {line}", problem="a NUL byte", expected=expected)
    try:
        if not data.isascii():
            data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, value = data.count(b"\n", 0, error.start) + 1, data[error.start : error.end]
        raise InputError(path, position=f"line {line}", value=value, expected="text in UTF-8") from error
    return data.removeprefix(_BYTE_ORDER_MARK)


def _single_spaced(data: bytes) -> bytes:
    """Separate the fields by one space, and strip the lines."""
    if any(data.find(blank) >= 0 for blank in _BLANKS):
        data = data.translate(_AS_SPACES)
    is_separator = np.frombuffer(data, dtype=np.uint8) <= ord(" ")
    if (is_separator[1:] & is_separator[:-1]).any():  # faster than the searches below
        while b"  " in data:
            data = data.replace(b"  ", b" ")
        data = data.replace(b" \n", b"\n").replace(b"\n ", b"\n")
    return data.strip(b" ")
