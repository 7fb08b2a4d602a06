"""Parts: the lines of a run file that one unit of work scored, and how they become one file.

A part holds the lines of its pools as the run file will have them, and behind them an index that says where
each question's lines end. Whoever merges parts copies bytes in the order of the questions and looks at no
line, so memory grows with the number of questions, not of pairs. A checksum tells a damaged part.

    lines | index: Arrow IPC stream | truncated (8 bytes) | size of the index (8) | CRC-32 of all before (4)
"""

import io
import shutil
import struct
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import polars as pl

from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import atomic_file
from aptool.formats.pools import Unit
from aptool.formats.trec import open_text, run_lines

_COUNTS = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_END = _COUNTS.size + _CHECKSUM.size

# Files open at one time while parts are merged.
_OPEN_FILES = 256
_COPIED_AT_ONCE = 1 << 20


class Part(NamedTuple):
    """A unit of work and the file that its scores go to."""

    unit: Unit
    path: Path
    pairs: int  # as the input's footer has them: what the part must hold
    tag: str  # the run's name


class Index(NamedTuple):
    """What a part says of itself."""

    questions: pl.DataFrame  # question_id (str), pairs (i64), end (i64): the byte behind its last line
    truncated: int  # answers that were cut at the model's limit

    @property
    def pairs(self) -> int:
        """How many lines the part has."""
        return int(self.questions["pairs"].sum())


def parts_folder(output: str | Path) -> Path:
    """Where the parts of a run file stand until it is whole."""
    return Path(f"{output}.parts")


def write_part(part: Part, frame: pl.DataFrame, truncated: int) -> None:
    """Writes a part: question_id, answer_id and score of every pair of its unit.

    Raises:
        InputError: an id or a score cannot be written to a run file, or the part cannot be.
    """
    lines, ends = run_lines(part.path, frame, part.tag)
    packed = io.BytesIO()
    ends.write_ipc_stream(packed)
    index = packed.getvalue()
    counts = _COUNTS.pack(truncated, len(index))
    checksum = zlib.crc32(counts, zlib.crc32(index, zlib.crc32(lines)))
    with atomic_file(part.path) as temporary, temporary.open("wb") as file:
        file.writelines((lines, index, counts, _CHECKSUM.pack(checksum)))


def is_done(part: Part) -> bool:
    """Whether the part is there, undamaged and has every pair of its unit; one that is not is removed."""
    try:
        data = part.path.read_bytes()
    except FileNotFoundError:
        return False
    whole = len(data) >= _END and zlib.crc32(memoryview(data)[:-4]) == _CHECKSUM.unpack(data[-4:])[0]
    if whole and read_index(part).pairs == part.pairs:
        return True
    part.path.unlink(missing_ok=True)
    return False


def read_index(part: Part) -> Index:
    """What an undamaged part says of itself."""
    with part.path.open("rb") as file:
        file.seek(-_END, io.SEEK_END)
        truncated, size = _COUNTS.unpack(file.read(_COUNTS.size))
        file.seek(-_END - size, io.SEEK_END)
        return Index(pl.read_ipc_stream(file.read(size)), truncated)


class Merged(NamedTuple):
    """What a run file came to have in it."""

    pairs: int
    truncated: int  # answers that were cut at the model's limit, counted in each unit


def merge(parts: Sequence[Part], output: str | Path) -> Merged:
    """Writes the run file out of all parts, and removes them.

    Raises:
        InputError: a question stands in two pools, or the run file cannot be written.
        AptoolError: a part does not hold every pair of its unit.
    """
    indices = [read_index(part) for part in parts]
    for part, index in zip(parts, indices, strict=True):
        if index.pairs != part.pairs:
            raise AptoolError(
                f"{part.path}: {index.pairs} scores: expected {part.pairs}; remove it and run again"
            )
    blocks = pl.concat(
        index.questions.select(
            "question_id",
            part=pl.lit(number),
            begin=pl.col("end").shift(1, fill_value=0),
            end="end",
        )
        for number, index in enumerate(indices)
    )
    _check_questions(parts, blocks)
    with open_text(output) as file:
        files = _Files(parts)
        for number, begin, end in _stretches(blocks.sort("question_id")).iter_rows():
            _copy(files[number], begin, end, file)
        files.close()
    shutil.rmtree(parts_folder(output))
    return Merged(sum(index.pairs for index in indices), sum(index.truncated for index in indices))


def _stretches(blocks: pl.DataFrame) -> pl.DataFrame:
    """part, begin, end: neighbouring blocks that are neighbours in their part as well, taken together."""
    follows = (pl.col("part") == pl.col("part").shift(1)) & (pl.col("begin") == pl.col("end").shift(1))
    return (
        blocks.with_columns(stretch=(~follows.fill_null(False)).cum_sum())
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("part").first(), pl.col("begin").first(), pl.col("end").last())
        .drop("stretch")
    )


class _Files:
    """The parts' files, opened as they are asked for, not too many at one time."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._open: OrderedDict[int, IO[bytes]] = OrderedDict()

    def __getitem__(self, number: int) -> IO[bytes]:
        if number not in self._open:
            if len(self._open) == _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            self._open[number] = self._parts[number].path.open("rb")
        self._open.move_to_end(number)
        return self._open[number]

    def close(self) -> None:
        for file in self._open.values():
            file.close()


def _copy(source: IO[bytes], begin: int, end: int, into: IO[bytes]) -> None:
    source.seek(begin)
    for start in range(begin, end, _COPIED_AT_ONCE):
        into.write(source.read(min(_COPIED_AT_ONCE, end - start)))


def _check_questions(parts: Sequence[Part], blocks: pl.DataFrame) -> None:
    repeated = blocks.filter(pl.col("question_id").is_duplicated())
    if len(repeated):
        question = repeated["question_id"][-1]
        units = [parts[number].unit for number in repeated.filter(pl.col("question_id") == question)["part"]]
        first, again = units[0], units[-1]
        raise InputError(
            again.path,
            place=f"row group {again.row_group}",
            column="question_id",
            value=question,
            expected=f"one pool a question: it also stands in {first.path}, row group {first.row_group}",
        )
