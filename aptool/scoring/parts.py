"""Parts of a run file, one per unit of work, and their merge into the run file.

A part holds the final lines of its pools, and an index with the end of the lines of each question. The merge
copies bytes in the order of the questions and parses no line, so memory grows with the number of questions,
not with the number of pairs. A checksum detects a damaged part. Parts are never overwritten: a unit has the
same lines, whichever worker scores it.

    lines | index: Arrow IPC stream | bad rows: JSON | truncated answers (8 bytes) | size of the index (8)
    | size of the bad rows (8) | CRC-32 of all before (4)
"""

import contextlib
import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple

import polars as pl
import pyarrow as pa

from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import remove_matching
from aptool.formats.inputs import Input, open_native, stat
from aptool.formats.location import Location, PathOrUrl, is_remote, location, output_location, store_of
from aptool.formats.outputs import Kind
from aptool.formats.parquet import open_parquet
from aptool.formats.pools import Unit, answers_beside
from aptool.formats.trec import log_ties, open_text, run_lines
from aptool.scoring.bad_rows import Reasons, pack, unpack, write_bad_rows
from aptool.scoring.systems import Scorer
from aptool.version import __version__

_COUNTS = struct.Struct("<QQQ")
_CHECKSUM = struct.Struct("<I")
_END = _COUNTS.size + _CHECKSUM.size

# Names of files in the folder of parts; a killed driver leaves temporary files and attempt records.
ATTEMPTS = re.compile(r"[0-9a-f]{24}\.part\.try-.+|\.[0-9a-f]{24}\.part(\.try-.+)?\.[a-z0-9_]{8}\.part")
_NAME = re.compile(r"[0-9a-f]{24}\.part")

# Memory for prefetched blocks, bounds of the block size, and number of concurrent requests.
_MEMORY_BYTES = 64 << 20
_LEAST_BLOCK, _MOST_BLOCK = 1 << 18, 8 << 20
_CONCURRENT_REQUESTS = 16

_NO_BAD_ROWS: Reasons = MappingProxyType({})

# Size of the first request at the end of a part; most indices are shorter.
_TAIL_BYTES = 1 << 16


class Part(NamedTuple):
    """A unit of work and the file for its scores."""

    unit: Unit
    path: Location
    pairs: int  # number of pairs of the unit, from the footer of the input
    tag: str  # the tag of the run


def parts_folder(output: PathOrUrl) -> Location:
    """Return the folder of the parts of a run file, until the run file is complete."""
    return location(f"{output_location(output)}.parts")


def write_part(part: Part, frame: pl.DataFrame, truncated: int, bad_rows: Reasons = _NO_BAD_ROWS) -> None:
    """Write a part, unless it exists undamaged; ``frame`` is the result of ``score``."""
    lines, ends = run_lines(str(part.path), frame, part.tag)
    packed = io.BytesIO()
    ends.write_ipc_stream(packed)
    index = packed.getvalue()
    bad = pack(bad_rows)
    data = b"".join((lines, index, bad, _COUNTS.pack(truncated, len(index), len(bad))))
    data += _CHECKSUM.pack(zlib.crc32(data))
    store, key = store_of(part.path)
    while not store.create(key, data):
        try:
            existing, version = store.read_versioned(key)
        except FileNotFoundError:  # removed in the meantime
            continue
        if _is_complete(part, existing) or store.swap(key, data, version):
            return


def file_names(parts: Sequence[Part]) -> set[str]:
    """Return the names of all files in the folder of parts."""
    if not parts:
        return set()
    store, folder = store_of(parts[0].path.parent)
    return set(store.names(folder))


def missing_parts(parts: Sequence[Part]) -> list[Part]:
    """Return the parts to write: those that do not exist, and damaged ones, which are removed."""
    names = file_names(parts)

    def is_missing(part: Part) -> bool:
        if part.path.name not in names:
            return True
        with contextlib.suppress(FileNotFoundError):
            if _is_complete(part, part.path.read_bytes()):
                return False
        part.path.unlink(missing_ok=True)
        return True

    with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
        are_missing = pool.map(is_missing, parts)
        return [part for part, missing in zip(parts, are_missing, strict=True) if missing]


def _is_complete(part: Part, data: bytes) -> bool:
    """Whether the bytes are an undamaged part with all pairs of its unit."""
    return _is_undamaged(data) and _read_index(data).is_complete(part)


def _is_undamaged(data: bytes) -> bool:
    """Whether bytes end in the checksum of a part."""
    return len(data) >= _END and zlib.crc32(memoryview(data)[:-4]) == _CHECKSUM.unpack(data[-4:])[0]


class Index(NamedTuple):
    """The end of a part."""

    questions: pl.DataFrame  # the index of ``run_lines``
    truncated: int  # number of truncated answers
    bad_rows: Reasons

    @property
    def pairs(self) -> int:
        """Number of lines."""
        return int(self.questions["pairs"].sum())

    def is_complete(self, part: Part) -> bool:
        """Whether the part has all pairs of its unit, except those of bad rows."""
        if self.bad_rows:
            return part.unit.sets_aside and self.pairs < part.pairs
        return self.pairs == part.pairs


def _read_index(data: bytes) -> Index:
    """Read the index at the end of the bytes of an undamaged part."""
    truncated, size, bad_size = _COUNTS.unpack(data[-_END : -_CHECKSUM.size])
    end = len(data) - _END - bad_size
    return Index(pl.read_ipc_stream(data[end - size : end]), truncated, unpack(data[end : end + bad_size]))


def read_indices(parts: Sequence[Part]) -> list[Index]:
    """Read the indices of undamaged parts."""

    def read(part: Part) -> Index:
        store, key = store_of(part.path)
        size = store.stat(key).size
        data = store.read(key, max(0, size - _TAIL_BYTES), size)
        length = _END + sum(_COUNTS.unpack(data[-_END : -_CHECKSUM.size])[1:])
        if length > len(data):
            data = store.read(key, size - length, size)
        return _read_index(data)

    with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
        return list(pool.map(read, parts))


class Merged(NamedTuple):
    """The size of a run file."""

    pairs: int
    truncated: int  # number of truncated answers
    bad_rows: int


def merge(
    parts: Sequence[Part],
    output: PathOrUrl,
    before_publishing: Callable[[], None],
    bad_rows: PathOrUrl | None = None,
) -> Merged:
    """Merge all parts into the run file and the file ``bad_rows``, and remove them.

    ``before_publishing`` is called before the run file gets its final name; it may raise.
    """
    read = read_indices(parts)
    for part, index in zip(parts, read, strict=True):
        if not index.is_complete(part):
            problem = f"{index.pairs} scores: expected {part.pairs}"
            raise AptoolError(f"{part.path}: {problem}; remove it and run again")
    if bad_rows is not None:
        before_publishing()
        write_bad_rows(
            bad_rows, ((part.unit, index.bad_rows) for part, index in zip(parts, read, strict=True))
        )
    merged = Merged(
        sum(index.pairs for index in read),
        sum(index.truncated for index in read),
        sum(len(index.bad_rows) for index in read),
    )
    if not merged.pairs:
        raise AptoolError(f"{output}: no pool can be scored; {bad_rows} has the reasons")
    indices = [index.questions for index in read]
    ranges = pl.concat(
        index.select(
            "question_id",
            part=pl.lit(number),
            begin=pl.col("end").shift(1, fill_value=0),
            end="end",
            is_tied="is_tied",
        )
        for number, index in enumerate(indices)
    )
    check_questions([part.unit for part in parts], ranges)
    block = min(max(_MEMORY_BYTES // (2 * len(parts)), _LEAST_BLOCK), _MOST_BLOCK)
    with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
        lines = [
            PartLines(part.path, index["end"][-1] if len(index) else 0, block, pool)
            for part, index in zip(parts, indices, strict=True)
        ]
        with open_text(output, Kind.RUN) as file:
            for number, begin, end in _joined(ranges.sort("question_id")).iter_rows():
                lines[number].copy(begin, end, file)
            before_publishing()
    _remove_parts(parts, parts_folder(output))
    log_ties(str(output), ranges)
    return merged


def _remove_parts(parts: Sequence[Part], folder: Location) -> None:
    """Remove the parts of a run and of earlier inputs; a file of the user with such a name stays."""
    store, key = store_of(folder)
    own_names = {part.path.name for part in parts}

    def is_part(name: str) -> bool:
        return name in own_names or _is_undamaged((folder / name).read_bytes())

    names = [name for name in store.names(key) if _NAME.fullmatch(name) and is_part(name)]
    store.delete([f"{key}/{name}" for name in names])
    remove_matching(folder, ATTEMPTS)


def _joined(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return part, begin and end; adjacent ranges of a part that follow each other in the run are joined."""
    follows = (pl.col("part") == pl.col("part").shift(1)) & (pl.col("begin") == pl.col("end").shift(1))
    return (
        ranges.with_columns(group=(~follows.fill_null(False)).cum_sum())
        .group_by("group", maintain_order=True)
        .agg(pl.col("part").first(), pl.col("begin").first(), pl.col("end").last())
        .drop("group")
    )


class PartLines:
    """The lines of a part, read sequentially; the next block is prefetched."""

    def __init__(self, path: Location, size: int, block: int, pool: ThreadPoolExecutor) -> None:
        self._store, self._key = store_of(path)
        self._size, self._block, self._pool = size, block, pool
        self._begin, self._data = 0, b""
        self._next: Future[bytes] | None = None

    def copy(self, begin: int, end: int, output: IO[bytes]) -> None:
        """Copy bytes ``begin`` to ``end`` to a file; calls are in ascending order."""
        while begin < end:
            data = self._read(begin, end)
            if not data:
                raise AptoolError("a part ended before its last line; run again")
            output.write(data)
            begin += len(data)

    def _read(self, begin: int, end: int) -> bytes:
        """Read bytes from ``begin`` to at most ``end``."""
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


def check_questions(units: Sequence[Unit], questions: pl.DataFrame) -> None:
    """Raise if a question is in two units; ``questions`` has question_id and part, the number of the unit."""
    repeated = questions.filter(pl.col("question_id").is_duplicated())
    if len(repeated):
        question = repeated["question_id"][-1]
        numbers = repeated.filter(pl.col("question_id") == question)["part"]
        first, again = units[numbers[0]], units[numbers[-1]]
        raise InputError(
            again.path,
            position=f"row group {again.row_group}",
            column="question_id",
            value=question,
            expected=f"one pool per question, but it is also in {first.path}, row group {first.row_group}",
        )


def plan(
    units: Sequence[Unit], scorer: Scorer, output: PathOrUrl, tag: str, answers: Input | None = None
) -> list[Part]:
    """Return the part of each unit; its name is a hash of everything that decides its lines."""
    folder = parts_folder(output)
    files: dict[str, tuple[str, str | None, list[int]]] = {}
    for path, version in dict.fromkeys((unit.path, unit.version) for unit in units):
        identity, pairs = _identity(path, version), _pairs(path, version)
        shared_file = answers if answers is not None else current_input(answers_beside(path))
        shared = _identity(*shared_file) if shared_file is not None else None
        files[path] = identity, shared, pairs
    parts = []
    for unit in units:
        identity, shared, pairs = files[unit.path]
        inputs = [identity, unit.row_group, scorer.fingerprint, __version__, shared, tag]
        digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:24]
        parts.append(Part(unit, folder / f"{digest}.part", pairs[unit.row_group], tag))
    return parts


def current_input(path: PathOrUrl | None) -> Input | None:
    """Return a file with its version, or None for None."""
    return Input(str(path), stat(path).version) if path is not None else None


def unit_pairs(units: Sequence[Unit]) -> list[int]:
    """Return the number of pairs of each unit."""
    files = dict.fromkeys((unit.path, unit.version) for unit in units)
    pairs = {path: _pairs(path, version) for path, version in files}
    return [pairs[unit.path][unit.row_group] for unit in units]


def digest_of(path: str) -> str:
    """Hash the end of a file, where a Parquet file has its footer."""
    with open_native(path) as file:
        return hashlib.sha256(_tail(file)).hexdigest()


def _tail(file: pa.NativeFile) -> bytes:
    file.seek(max(0, file.size() - (1 << 16)))
    return bytes(file.read())


def _identity(path: str, version: str | None) -> str:
    """Return a text that differs between a file and its replacement."""
    with open_native(path, version) as file:
        digest = hashlib.sha256(_tail(file)).hexdigest()
    # A local folder may be moved; a remote file is identified by its URL.
    name = path if is_remote(path) else Path(path).name
    return json.dumps([name, version, digest])


def _pairs(path: str, version: str | None) -> list[int]:
    """Return the number of pairs of each row group of a pools file."""
    with open_parquet(path, version) as reader:
        return reader.candidate_counts()
