"""Lines of qrels and runs in the TREC format; `data.runs` has the files of runs.

A run line is ``qid Q0 docid rank score tag``, a qrels line ``qid 0 docid relevance``. Fields are separated by
blanks and tabs; blank lines and lines that begin with ``#`` are skipped. The rank and the second field are
ignored, as in trec_eval; ranks that contradict the scores are logged. Qrels may have the columns of BEIR.

trec_eval reads the score ``abc`` and the relevance ``0.9`` as 0, and orders NaN arbitrarily. aptool raises an
InputError with the line, also for an illegal id (``data.ids``). Polars parses valid files in one call;
other files are parsed line by line to locate the error.
"""

import gzip
import io
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from aptool.data import ids
from aptool.data.schemas import Table
from aptool.errors import InputError, shortened
from aptool.inputs import check_is_text, open_unpacked
from aptool.outputs import output_file
from aptool.paths import PathOrUrl, file_errors

logger = logging.getLogger(__name__)

_BLANKS = b"\t\v\f\r"
_AS_SPACES = bytes.maketrans(_BLANKS, b" " * len(_BLANKS))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BEIR_HEADER = re.compile(rb"\s*\S+[ \t]+\S+[ \t]+(?:score|relevance|label)\s*", re.IGNORECASE)
# Level 1 is five times as fast as the default 6, and files are a seventh larger.
_GZIP_LEVEL = 1
_BLOCK = 1 << 20  # bytes per check
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# Leading zeros are separate: Python refuses to convert thousands of digits.
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})", re.ASCII)
# In the words after the first of a tag: signs of a further line, glued to this one without a line break.
_FURTHER_LINE = rf"(^| )([qQ]0|{_DECIMAL.pattern} {_DECIMAL.pattern})( |$)"


# Of the candidates of a question.
_IS_TIED = (pl.len() > 1) & (pl.col("score").min() == pl.col("score").max())


class _LineFormat(NamedTuple):
    """The fields of a line."""

    columns: tuple[str, ...]
    output: tuple[str, ...]  # the columns of the result
    number: str  # the numeric column
    kind: type[pl.Float64] | type[pl.Int64]  # its type
    most: int  # maximum number of fields


_RUN = _LineFormat(
    columns=("question_id", "Q0", "answer_id", "rank", "score", "tag"),
    output=("question_id", "answer_id", "rank", "score", "tag"),
    number="score",
    kind=pl.Float64,
    most=11,  # some tools write a tag of several words
)
_QRELS = _LineFormat(
    columns=("question_id", "0", "answer_id", "relevance"),
    output=("question_id", "answer_id", "relevance"),
    number="relevance",
    kind=pl.Int64,
    most=4,
)


QRELS_SCHEMA = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


def read_qrels(path: PathOrUrl) -> pl.DataFrame:
    """Read relevance judgements: question_id (str), answer_id (str), relevance (i64), in file order.

    A file whose name ends in ``.parquet`` is a table with these columns.
    """
    return (
        read_table(path, "qrels", "relevance")[0] if str(path).endswith(".parquet") else _read(path, _QRELS)
    )


def read_run_lines(path: PathOrUrl) -> pl.DataFrame:
    """Read a run file: question_id, answer_id, rank, tag (all str), score (f64), in file order."""
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
    tied = frame.group_by("question_id").agg(is_tied=_IS_TIED)["is_tied"]
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


def write_qrels(path: PathOrUrl, frame: pl.DataFrame) -> None:
    """Write judgements (question_id, answer_id, relevance: an integer), sorted by both ids as bytes."""
    if not frame.schema["relevance"].is_integer():
        raise TypeError(f"relevance is {frame.schema['relevance']}, not an integer")
    check_rows(path, frame, "relevance")
    lines = frame.sort("question_id", "answer_id").select(
        "question_id", pl.lit("0").alias("iteration"), "answer_id", "relevance"
    )
    text = io.BytesIO()
    lines.write_csv(text, include_header=False, separator=" ", quote_style="never")
    with output_file(path) as file:
        file.write_bytes(packed(text.getvalue()) if str(path).endswith(".gz") else text.getbuffer())


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


def run_lines(path: PathOrUrl, frame: pl.DataFrame, tag: str) -> bytes:
    """The lines of a run, ranked and printed by ``printable``."""
    if not ids.is_answer_id(tag):
        raise InputError(path, column="tag", value=tag, expected="one word without white space")
    line = pl.concat_str(
        "question_id", pl.lit(" Q0 "), "answer_id", pl.lit(" "), "rank", pl.lit(" "), "score",
        pl.lit(f" {tag}\n"),
    )  # fmt: skip
    lines: str = printable(frame).select(line.str.join("")).item()
    return lines.encode()


def packed(data: bytes | memoryview) -> bytes:
    """Data as a gzip file; equal data give equal bytes, whatever the name and the time."""
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)


def _read(path: PathOrUrl, line_format: _LineFormat) -> pl.DataFrame:
    with open_unpacked(path) as file, file_errors(path):
        data = _text(path, file.read())
    if line_format is _QRELS:
        data = trec_lines(data)
    frame = _parse_at_once(data, line_format)
    return _parse_line_by_line(path, data, line_format) if frame is None else frame


def read_table(path: PathOrUrl, name: Table, number: str) -> tuple[pl.DataFrame, dict[bytes, bytes]]:
    """Read a Parquet table: both ids (str), the column ``number``, the rank if it is there; and metadata."""
    from aptool.data.parquet import Column, check_columns, open_parquet, strings

    with open_parquet(path) as reader:
        check_columns(path, reader.schema, name)
        table = reader.read(["question_id", "answer_id", number, *({"rank"} & set(reader.schema.names))])
        metadata = reader.metadata.metadata or {}
    columns = [Column(path, column, strings(table[column])) for column in ("question_id", "answer_id")]
    for column in columns:
        column.check()
    frame = pl.DataFrame({column.name: pl.Series(column.values) for column in columns})
    kind = pl.Int64 if name == "qrels" else pl.Float64
    frame = frame.with_columns(pl.Series(number, table[number]).cast(kind, strict=False))
    check_rows(path, frame, number)
    if "rank" in table.column_names:
        frame = frame.with_columns(rank=pl.Series(table["rank"]))
    return frame, metadata


def _text(path: PathOrUrl, data: bytes) -> bytes:
    """The lines of a text file; raises on binary data."""
    check_is_text(path, data)
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise InputError(
            path, position=f"line {line}", problem="a NUL byte", expected="text, not a binary file"
        )
    return data.removeprefix(_BYTE_ORDER_MARK)


def tag_of_name(path: PathOrUrl) -> str:
    """The tag of a run whose file has none: the first word of its name."""
    return re.split(r"[\s.]", Path(str(path)).name)[0] or "run"


def _parse_at_once(data: bytes, line_format: _LineFormat) -> pl.DataFrame | None:
    """Parse a valid file; return None for any other file."""
    data = _single_spaced(data)
    # With a header, polars does not infer the number of columns from the first line.
    extra = [f"extra{number}" for number in range(len(line_format.columns), line_format.most + 1)]
    read = extra if line_format is _RUN else [extra[-1]]
    header = " ".join([*line_format.columns, *extra]).encode() + b"\n"
    try:
        frame = pl.read_csv(
            header + data,
            separator=" ",
            quote_char=None,
            comment_prefix="#",
            infer_schema=False,
            schema_overrides={line_format.number: line_format.kind},
            columns=[*line_format.output, *read],
            truncate_ragged_lines=True,
        )
    except pl.exceptions.PolarsError:
        return None
    frame = frame.filter(pl.col("question_id").is_not_null())
    if frame[extra[-1]].null_count() < frame.height:
        return None
    if line_format is _RUN:
        longer = frame.filter(pl.col(extra[0]).is_not_null())
        is_number = pl.col("tag").str.contains(f"^({_DECIMAL.pattern})$")
        rest = pl.concat_str(extra, separator=" ", ignore_nulls=True)
        if longer.select((is_number | rest.str.contains(_FURTHER_LINE)).any()).item():
            return None
    frame = frame.select(line_format.output)
    is_complete = frame.height > 0 and not any(column.null_count() for column in frame)
    is_valid = is_complete and frame[line_format.number].is_finite().all() and not _repeats(frame)
    return frame if is_valid and (_has_plain_characters(data) or _has_legal_ids(frame)) else None


def _has_plain_characters(data: bytes) -> bool:
    """Whether single-spaced lines are ASCII without control characters, so that all ids are legal."""
    if not data.isascii() or b"\x7f" in data:
        return False
    values = np.frombuffer(data, dtype=np.uint8)
    blocks = (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))
    return sum(int(np.count_nonzero(block < ord(" "))) for block in blocks) == data.count(b"\n")


def _has_legal_ids(frame: pl.DataFrame) -> bool:
    legal = frame.select(
        pl.col("question_id").str.contains(ids.QUESTION_ID).all(),
        pl.col("answer_id").str.contains(ids.ANSWER_ID).all(),
    )
    return all(legal.row(0))


def _single_spaced(data: bytes) -> bytes:
    """Separate the fields by one space, and strip the lines."""
    if any(data.find(blank) >= 0 for blank in _BLANKS):
        data = data.translate(_AS_SPACES)
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")


def _repeats(frame: pl.DataFrame) -> bool:
    pairs = frame.select(pl.struct("question_id", "answer_id").n_unique()).item()
    return bool(pairs < frame.height)


def _parse_line_by_line(path: PathOrUrl, data: bytes, line_format: _LineFormat) -> pl.DataFrame:
    """Parse a file, or raise for its first invalid line."""
    rows: list[tuple[object, ...]] = []
    first_lines: dict[tuple[str, str], int] = {}
    for number, fields in _fields_of_lines(path, data):
        position = f"line {number}"
        least = len(line_format.columns)
        if not least <= len(fields) <= line_format.most:
            expected = f"{least} fields ({' '.join(line_format.columns)}), found {len(fields)}"
            expected += _hint(fields, is_run=line_format is _RUN)
            raise InputError(path, position=position, value=" ".join(fields), expected=expected)
        if len(fields) > least and _DECIMAL.fullmatch(fields[least - 1]):
            # The rank would be read as the score, and the score as the tag.
            expected = (
                f"{least} fields, found {len(fields)}: no blank in an id, no number before words in a tag"
            )
            raise InputError(path, position=position, value=" ".join(fields), expected=expected)
        if re.search(_FURTHER_LINE, " ".join(fields[least:])):
            expected = (
                f"{least} fields ({' '.join(line_format.columns)}), found {len(fields)}: two lines in one"
            )
            raise InputError(path, position=position, value=" ".join(fields), expected=expected)
        row = dict(zip(line_format.columns, fields, strict=False))
        value = _number(row[line_format.number], line_format)
        if value is None:
            expected = "a finite number" if line_format.kind is pl.Float64 else "a whole number of 64 bits"
            raise InputError(
                path,
                position=position,
                column=line_format.number,
                value=row[line_format.number],
                expected=expected,
            )
        ids.check_question_id(path, position, row["question_id"], "question_id")
        ids.check_answer_id(path, position, row["answer_id"], "answer_id")
        pair = row["question_id"], row["answer_id"]
        first = first_lines.setdefault(pair, number)
        if first != number:
            expected = f"each candidate of a question once; line {first} has this one already"
            raise InputError(
                path, position=position, column="answer_id", value=" ".join(pair), expected=expected
            )
        rows.append(tuple(value if name == line_format.number else row[name] for name in line_format.output))
    if not rows:
        raise InputError(path, problem="no line", expected=f"lines of {' '.join(line_format.columns)}")
    schema = {
        name: line_format.kind if name == line_format.number else pl.String for name in line_format.output
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def trec_lines(data: bytes) -> bytes:
    """The lines of qrels; those of BEIR, with a header and without the second field, get that field."""
    first, newline, rest = data.partition(b"\n")
    if not _BEIR_HEADER.fullmatch(first):
        return data
    fields = (line.split() for line in rest.split(b"\n"))
    # The header becomes a blank line, so that the numbers of the lines stay.
    return newline + b"\n".join(b" ".join([*row[:1], b"0", *row[1:]]) if row else b"" for row in fields)


def _hint(fields: list[str], *, is_run: bool) -> str:
    """Name the known format of a line that has another one than expected; empty if the format is unknown."""
    if is_run and _BEIR_HEADER.fullmatch(" ".join(fields).encode()):
        return "; this looks like qrels of BEIR, for --qrels"
    if is_run and len(fields) == 4 and fields[3].lstrip("+-").isdecimal():
        return "; this looks like qrels, for --qrels"
    if is_run and len(fields) == 3 and fields[2].isdecimal():
        return "; this looks like a run of MS MARCO, without scores"
    if not is_run and len(fields) == 6 and fields[1].upper() == "Q0":
        return "; this looks like a run"
    return ""


def _fields_of_lines(path: PathOrUrl, data: bytes) -> Iterator[tuple[int, list[str]]]:
    """The number (from 1) and the fields of each line that is neither blank nor a comment."""
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            # bytes.split() splits at the characters of C's isspace, as trec_eval does.
            fields = [field.decode("utf-8") for field in line.split()]
        except UnicodeDecodeError as error:
            raise InputError(
                path, position=f"line {number}", value=error.object, expected="text in UTF-8"
            ) from error
        if fields and not fields[0].startswith("#"):
            yield number, fields


def _number(text: str, line_format: _LineFormat) -> float | int | None:
    if line_format.kind is pl.Int64:
        match = _INTEGER.fullmatch(text)
        integer = int(match[1] + match[2]) if match is not None else None
        return integer if integer is not None and -(2**63) <= integer < 2**63 else None
    score = float(text) if _DECIMAL.fullmatch(text) else math.nan
    return score if math.isfinite(score) else None


def check_rows(path: PathOrUrl, frame: pl.DataFrame, number: str) -> None:
    """Raise if the rows could not be read back."""
    if frame.is_empty():
        raise InputError(path, problem="no row", expected="at least one")
    question, answer = pl.col("question_id"), pl.col("answer_id")
    checks = (
        ("question_id", question.str.contains(ids.QUESTION_ID).not_(), ids.EXPECTED_QUESTION_ID),
        ("answer_id", answer.str.contains(ids.ANSWER_ID).not_(), ids.EXPECTED_ANSWER_ID),
        (number, pl.col(number).is_finite().not_(), "a finite number"),
    )
    for column, fault, expected in checks:
        faulty = frame.filter(fault | pl.col(column).is_null())
        if not faulty.is_empty():
            question_id, answer_id, value = faulty.select(
                pl.col("question_id"), pl.col("answer_id"), pl.col(column).alias("value")
            ).row(0)
            position = f"question {shortened(question_id)}, candidate {shortened(answer_id)}"
            raise InputError(path, position=position, column=column, value=value, expected=expected)
    if _repeats(frame):
        pair = frame.filter(pl.struct("question_id", "answer_id").is_duplicated()).row(0, named=True)
        value = f"{pair['question_id']} {pair['answer_id']}"
        raise InputError(path, value=value, expected="each candidate of a question once")
