"""Parts: the lines of a run file that one unit scored, and their merge into the run file.

A part holds the final lines of its pools and an index of where the lines of each question end. The merge
copies bytes in the order of the questions and parses no line, so memory grows with the number of questions,
not of pairs. A checksum detects a damaged part. Parts are created and never overwritten: whichever worker
scores a unit, its lines are the same.

    lines | index: Arrow IPC stream | truncated (8 bytes) | size of the index (8) | CRC-32 of all before (4)
"""

import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

import polars as pl
import pyarrow as pa

from aptool.errors import AptoolError, InputError
from aptool.formats import storage
from aptool.formats.atomic import remove_matching
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.parquet import candidate_counts, read_footer, row_groups
from aptool.formats.pools import Unit, answers_beside
from aptool.formats.storage import Input
from aptool.formats.stores import store_of
from aptool.formats.trec import open_text, run_lines
from aptool.formats.urls import is_remote
from aptool.scoring.systems import System

_COUNTS = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_END = _COUNTS.size + _CHECKSUM.size

# Names of aptool's files in the folder of parts: a killed driver leaves temporary files and attempt records.
ATTEMPTS = re.compile(r"[0-9a-f]{24}\.part\.try-.+|\.[0-9a-f]{24}\.part(\.try-.+)?\.[a-z0-9_]{8}\.part")
_OWN = re.compile(rf"[0-9a-f]{{24}}\.part|{ATTEMPTS.pattern}")

# Memory for the blocks that are read ahead; bounds of a block; concurrent requests.
_MEMORY_BYTES = 256 << 20
_LEAST_BLOCK, _MOST_BLOCK = 1 << 18, 8 << 20
_REQUESTS = 16

# Bytes of the first request at the end of a part; most indices are shorter.
_TAIL_BYTES = 1 << 16


class Part(NamedTuple):
    """A unit of work and the file for its scores."""

    unit: Unit
    path: Location
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


def parts_folder(output: PathOrUrl) -> Location:
    """The folder of the parts of a run file, until the run file is complete."""
    return location(f"{output}.parts")


def write_part(part: Part, frame: pl.DataFrame, truncated: int) -> None:
    """Write a part, unless a complete one exists.

    The frame has question_id, answer_id and score of every pair of the unit; ``truncated`` counts answers.
    """
    lines, ends = run_lines(str(part.path), frame, part.tag)
    packed = io.BytesIO()
    ends.write_ipc_stream(packed)
    index = packed.getvalue()
    counts = _COUNTS.pack(truncated, len(index))
    checksum = zlib.crc32(counts, zlib.crc32(index, zlib.crc32(lines)))
    data = b"".join((lines, index, counts, _CHECKSUM.pack(checksum)))
    store, key = store_of(part.path)
    while not store.create(key, data):
        existing, version = store.read_versioned(key)
        if _is_whole(part, existing) or store.swap(key, data, version):
            return


def missing_parts(parts: Sequence[Part]) -> list[Part]:
    """The parts that do not exist, or are damaged or incomplete; the latter are removed."""
    if not parts:
        return []
    store, folder = store_of(parts[0].path.parent)
    names = set(store.names(folder))
    existing = [part for part in parts if part.path.name in names]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        damaged = {
            part.path
            for part, is_whole in zip(existing, pool.map(_is_undamaged, existing), strict=True)
            if not is_whole
        }
    store.delete([store_of(path)[1] for path in damaged])
    return [part for part in parts if part.path.name not in names or part.path in damaged]


def _is_undamaged(part: Part) -> bool:
    try:
        return _is_whole(part, part.path.read_bytes())
    except FileNotFoundError:
        return False


def _is_whole(part: Part, data: bytes) -> bool:
    """Whether the bytes are a part with every pair of its unit."""
    if len(data) < _END or zlib.crc32(memoryview(data)[:-4]) != _CHECKSUM.unpack(data[-4:])[0]:
        return False
    _, size = _COUNTS.unpack(data[-_END : -_CHECKSUM.size])
    return int(pl.read_ipc_stream(data[-_END - size : -_END])["pairs"].sum()) == part.pairs


def read_index(part: Part) -> Index:
    """The index of an undamaged part."""
    store, key = store_of(part.path)
    size = store.stat(key).size
    data = store.read(key, max(0, size - _TAIL_BYTES), size)
    truncated, length = _COUNTS.unpack(data[-_END : -_CHECKSUM.size])
    if length + _END > len(data):
        data = store.read(key, size - _END - length, size)
    return Index(pl.read_ipc_stream(data[-_END - length : -_END]), truncated)


def read_indices(parts: Sequence[Part]) -> list[Index]:
    """The indices of several parts."""
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(read_index, parts))


def merge(parts: Sequence[Part], output: PathOrUrl, before_publishing: Callable[[], None]) -> int:
    """Merge all parts into the run file, and remove them; return the number of truncated answers.

    ``before_publishing`` is called before the run gets its name; it may raise.
    """
    indices = read_indices(parts)
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
    check_questions([part.unit for part in parts], blocks)
    _merge_lines(parts, indices, blocks, output, before_publishing)
    remove_matching(parts_folder(output), _OWN)
    return sum(index.truncated for index in indices)


def _merge_lines(
    parts: Sequence[Part],
    indices: Sequence[Index],
    blocks: pl.DataFrame,
    output: PathOrUrl,
    before_publishing: Callable[[], None],
) -> None:
    """Copy the lines of all parts in the order of the questions."""
    block = min(max(_MEMORY_BYTES // (2 * len(parts)), _LEAST_BLOCK), _MOST_BLOCK)
    with ThreadPoolExecutor(_REQUESTS) as pool:
        lines = [
            PartLines(part.path, index.questions.item(-1, "end"), block, pool)
            for part, index in zip(parts, indices, strict=True)
        ]
        with open_text(output) as file:
            for number, begin, end in _stretches(blocks.sort("question_id")).iter_rows():
                _copy(lines[number], begin, end, file)
            before_publishing()


def _stretches(blocks: pl.DataFrame) -> pl.DataFrame:
    """part, begin, end: adjacent blocks of a part that follow each other in the run, joined."""
    follows = (pl.col("part") == pl.col("part").shift(1)) & (pl.col("begin") == pl.col("end").shift(1))
    return (
        blocks.with_columns(stretch=(~follows.fill_null(False)).cum_sum())
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("part").first(), pl.col("begin").first(), pl.col("end").last())
        .drop("stretch")
    )


class PartLines:
    """The lines of a part, read sequentially, one block ahead."""

    def __init__(self, path: Location, size: int, block: int, pool: ThreadPoolExecutor) -> None:
        self._store, self._key = store_of(path)
        self._size, self._block, self._pool = size, block, pool
        self._begin, self._data = 0, b""
        self._next: Future[bytes] | None = None

    def read(self, begin: int, end: int) -> bytes:
        """Bytes from ``begin`` on, up to ``end`` at most; reads follow each other."""
        if not self._begin <= begin < self._begin + len(self._data):
            after = self._begin + len(self._data)
            ahead, self._next = self._next, None
            data = ahead.result() if ahead is not None else b""
            self._begin = begin
            self._data = data if begin == after and data else self._fetch(begin)
            if (following := begin + len(self._data)) < self._size:
                self._next = self._pool.submit(self._fetch, following)
        return self._data[begin - self._begin : end - self._begin]

    def _fetch(self, begin: int) -> bytes:
        return self._store.read(self._key, begin, min(begin + self._block, self._size))


def _copy(lines: PartLines, begin: int, end: int, into: IO[bytes]) -> None:
    while begin < end:
        data = lines.read(begin, end)
        if not data:
            raise AptoolError("a part ended before its last line; run again")
        into.write(data)
        begin += len(data)


def check_questions(units: Sequence[Unit], questions: pl.DataFrame) -> None:
    """Raise if a question is in two units; ``questions`` has question_id and part, the unit's number."""
    repeated = questions.filter(pl.col("question_id").is_duplicated())
    if len(repeated):
        question = repeated["question_id"][-1]
        numbers = repeated.filter(pl.col("question_id") == question)["part"]
        first, again = units[numbers[0]], units[numbers[-1]]
        raise InputError(
            again.path,
            place=f"row group {again.row_group}",
            column="question_id",
            value=question,
            expected=f"one pool per question, but it is also in {first.path}, row group {first.row_group}",
        )


def plan(
    units: Sequence[Unit], system: System, output: PathOrUrl, tag: str, answers: Input | None = None
) -> list[Part]:
    """Name the part of every unit by everything that its lines depend on.

    ``answers`` is the file of shared answers; None is ``answers.parquet`` beside each file of pools.
    """
    folder = parts_folder(output)
    parts = []
    footers: dict[str, tuple[str, str | None, list[int]]] = {}
    for unit in units:
        if unit.path not in footers:
            identity, footer = _identity(unit.path, unit.version)
            shared_file = answers if answers is not None else shared_input(unit.path)
            shared = _identity(*shared_file)[0] if shared_file is not None else None
            footers[unit.path] = identity, shared, _pairs(unit.path, footer)
        identity, shared, pairs = footers[unit.path]
        inputs = [identity, unit.row_group, system.fingerprint, shared, tag]
        digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:24]
        parts.append(Part(unit, folder / f"{digest}.part", pairs[unit.row_group], tag))
    return parts


def shared_input(pools: str) -> Input | None:
    """The answers file beside a file of pools, as an input."""
    beside = answers_beside(pools)
    return Input(str(beside), storage.stat(beside).version) if beside is not None else None


def unit_pairs(units: Sequence[Unit]) -> list[int]:
    """The number of pairs of each unit."""
    pairs: dict[str, list[int]] = {}
    for unit in units:
        if unit.path not in pairs:
            pairs[unit.path] = _pairs(unit.path, _identity(unit.path, unit.version)[1])
    return [pairs[unit.path][unit.row_group] for unit in units]


def digest_of(path: str) -> str:
    """Hash of a file's end, which holds the footer of a Parquet file."""
    with storage.open_native(path) as file:
        return hashlib.sha256(_tail(file)).hexdigest()


def _tail(file: pa.NativeFile) -> bytes:
    file.seek(max(0, file.size() - (1 << 16)))
    return bytes(file.read())


def _identity(path: str, version: str | None) -> tuple[str, bytes]:
    """What distinguishes a file from its replacement, and its footer."""
    with storage.open_native(path, version) as file:
        tail = _tail(file)
        footer = read_footer(file)
    digest = hashlib.sha256(tail).hexdigest()
    # A local folder may be moved; elsewhere only the whole URL identifies a file.
    name = path if is_remote(path) else Path(path).name
    return json.dumps([name, version, digest]), footer


def _pairs(path: str, footer: bytes) -> list[int]:
    """The number of pairs of each row group."""
    try:
        return candidate_counts(row_groups(footer))
    except ValueError as error:
        raise InputError(path, problem=str(error), expected="a readable Parquet file") from error
