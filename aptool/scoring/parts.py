"""Parts: the lines of a run file that one unit of work scored, and their merge into the run file.

A part holds the final lines of its pools, followed by an index of where the lines of each question end. The
merge copies bytes in the order of the questions and parses no line, so memory grows with the number of
questions, not of pairs. A checksum detects a damaged part.

    lines | index: Arrow IPC stream | truncated (8 bytes) | size of the index (8) | CRC-32 of all before (4)
"""

import io
import re
import struct
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import polars as pl

from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import atomic_file, remove_matching
from aptool.formats.pools import Unit
from aptool.formats.trec import open_text, run_lines

_COUNTS = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_END = _COUNTS.size + _CHECKSUM.size

# Names of the files in the folder of parts; other files there are the user's. A killed driver leaves
# temporary files of parts, and a cluster's records of attempts.
ATTEMPTS = re.compile(r"[0-9a-f]{24}\.part\.try-.+|\.[0-9a-f]{24}\.part\.[a-z0-9_]{8}\.part")
_OWN = re.compile(rf"[0-9a-f]{{24}}\.part|{ATTEMPTS.pattern}|driver|\.driver\.[0-9a-f]{{16}}")

# Files open at one time during the merge.
_OPEN_FILES = 256
_COPY_BYTES = 1 << 20


class Part(NamedTuple):
    """A unit of work and the file for its scores."""

    unit: Unit
    path: Path
    pairs: int  # number of pairs of the unit, from the footer of the input
    tag: str  # the tag of the run


class Index(NamedTuple):
    """The index at the end of a part."""

    questions: pl.DataFrame  # question_id (str), pairs (i64), end (i64): the byte offset after its last line
    truncated: int  # answers truncated at the model's limit

    @property
    def pairs(self) -> int:
        """Number of lines of the part."""
        return int(self.questions["pairs"].sum())


def parts_folder(output: str | Path) -> Path:
    """The folder of the parts of a run file, until the run file is complete."""
    return Path(f"{output}.parts")


def write_part(part: Part, frame: pl.DataFrame, truncated: int) -> None:
    """Writes a part.

    Args:
        part: the part.
        frame: question_id, answer_id and score of every pair of its unit.
        truncated: number of answers that were truncated.

    Raises:
        InputError: an id or a score is not valid in a run file, or the part cannot be written.
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
    """Whether a part exists and is complete: undamaged, with every pair of its unit; removes it if not."""
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
    """The index of an undamaged part."""
    with part.path.open("rb") as file:
        file.seek(-_END, io.SEEK_END)
        truncated, size = _COUNTS.unpack(file.read(_COUNTS.size))
        file.seek(-_END - size, io.SEEK_END)
        return Index(pl.read_ipc_stream(file.read(size)), truncated)


class Merged(NamedTuple):
    """What the merge wrote."""

    pairs: int
    truncated: int  # answers truncated at the model's limit, counted per unit


def merge(parts: Sequence[Part], output: str | Path) -> Merged:
    """Merges all parts into the run file and removes them.

    Raises:
        InputError: a question has two pools, or the run file cannot be written.
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
    remove_matching(parts_folder(output), _OWN)
    return Merged(sum(index.pairs for index in indices), sum(index.truncated for index in indices))


def _stretches(blocks: pl.DataFrame) -> pl.DataFrame:
    """part, begin, end: consecutive blocks that are also consecutive in their part, joined."""
    follows = (pl.col("part") == pl.col("part").shift(1)) & (pl.col("begin") == pl.col("end").shift(1))
    return (
        blocks.with_columns(stretch=(~follows.fill_null(False)).cum_sum())
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("part").first(), pl.col("begin").first(), pl.col("end").last())
        .drop("stretch")
    )


class _Files:
    """The files of parts, opened on demand; the least recently used is closed when too many are open."""

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
    for start in range(begin, end, _COPY_BYTES):
        into.write(source.read(min(_COPY_BYTES, end - start)))


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
            expected=f"one pool per question, but it is also in {first.path}, row group {first.row_group}",
        )
