"""Parts of a run, one per unit of work, until `scoring.merge` makes the run of them.

A part holds the final lines of its pools in chunks of whole questions, in the order of question ids. The
index of a chunk has the end of the lines of each question and the question ids, so a merge parses no line.
The directory at the end lists the chunks. A checksum detects a damaged part. Parts are never overwritten: a
unit has the same lines, whichever worker scores it.

    chunks | directory: JSON | size of the directory (8 bytes) | CRC-32 of all before (4)
    chunk: lines | ends: 8 bytes per question | question ids, separated by line breaks
"""

import contextlib
import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

import polars as pl
import pyarrow as pa

from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import remove_matching
from aptool.formats.inputs import Input, open_native, stat
from aptool.formats.location import Location, PathOrUrl, is_remote, location, output_location, store_of
from aptool.formats.parquet import open_parquet
from aptool.formats.pools import Unit, answers_beside
from aptool.formats.store import Store
from aptool.formats.trec import run_lines
from aptool.scoring.systems import Scorer
from aptool.version import __version__

_SIZE, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_END_BYTES = _SIZE.size + _CHECKSUM.size

# Names of files in the folder of parts; a killed driver leaves temporary files and attempt records.
ATTEMPTS = re.compile(
    r"[0-9a-f]{24}\.part\.(try|merged)-.+|\.[0-9a-f]{24}\.part(\.(try|merged)-.+)?\.[a-z0-9_]{8}\.part"
)
_NAME = re.compile(r"[0-9a-f]{24}\.part")

# Bounds of the bytes of lines per chunk. A small part has small chunks, so that thousands can be open.
LEAST_CHUNK, MOST_CHUNK = 1 << 14, 1 << 18

CONCURRENT_REQUESTS = 16

# Size of the first request at the end of a part; most directories are shorter.
_TAIL_BYTES = 1 << 13


class Part(NamedTuple):
    """A unit of work and the file for its scores."""

    unit: Unit
    path: Location
    pairs: int  # number of pairs of the unit, from the footer of the input
    tag: str  # the tag of the run


class Chunk(NamedTuple):
    """Consecutive lines of a part, and their index."""

    begin: int  # first byte in the file
    lines: int  # bytes of the lines
    size: int  # bytes of lines and index
    questions: int
    first: str  # first and last question id
    last: str


class Contents(NamedTuple):
    """The directory of a part."""

    pairs: int
    questions: int
    tied: int  # questions whose candidates, two or more, all have one score
    truncated: int  # answers truncated at the model's limit
    chunks: list[Chunk]


class Questions(NamedTuple):
    """The lines of consecutive questions: numbers ``start`` to ``stop`` of a block of lines."""

    block: bytes
    ids: Sequence[str]  # of all questions of the block
    ends: Sequence[int]  # byte of the block after the last line of each question
    start: int
    stop: int

    @property
    def lines(self) -> memoryview:
        """The lines of the questions."""
        begin = self.ends[self.start - 1] if self.start else 0
        return memoryview(self.block)[begin : self.ends[self.stop - 1]]


class ChunkWriter:
    """Writes questions, given in the order of their ids, as chunks of at least ``chunk_bytes`` of lines."""

    def __init__(self, file: IO[bytes], chunk_bytes: int = MOST_CHUNK) -> None:
        self.chunks: list[Chunk] = []
        self._file, self._begin, self._chunk_bytes = file, 0, chunk_bytes
        self._lines: list[memoryview] = []
        self._ids: list[str] = []
        self._ends: list[int] = []

    def add(self, questions: Questions) -> None:
        """Add questions to the last chunk, and write it if it is large enough."""
        _, ids, ends, start, stop = questions
        shift = (self._ends[-1] if self._ends else 0) - (ends[start - 1] if start else 0)
        self._lines.append(questions.lines)
        self._ids += ids[start:stop]
        self._ends += [end + shift for end in ends[start:stop]]
        if self._ends[-1] >= self._chunk_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the last chunk."""
        if not self._ids:
            return
        index = struct.pack(f"<{len(self._ends)}Q", *self._ends) + "\n".join(self._ids).encode()
        size = self._ends[-1] + len(index)
        self._file.write(b"".join([*self._lines, index]))
        self.chunks.append(
            Chunk(self._begin, self._ends[-1], size, len(self._ids), self._ids[0], self._ids[-1])
        )
        self._begin += size
        self._lines, self._ids, self._ends = [], [], []


def read_chunk(store: Store, key: str, chunk: Chunk) -> Questions:
    """Read the questions of a chunk of a part."""
    data = store.read(key, chunk.begin, chunk.begin + chunk.size)
    if len(data) < chunk.size:
        raise AptoolError("a part ended before its last line; run again")
    ends = struct.unpack_from(f"<{chunk.questions}Q", data, chunk.lines)
    ids = data[chunk.lines + 8 * chunk.questions :].decode().split("\n")
    return Questions(data, ids, ends, 0, chunk.questions)


def parts_folder(output: PathOrUrl) -> Location:
    """Return the folder of the parts of a run file, until the run file is complete."""
    return location(f"{output_location(output)}.parts")


def write_part(part: Part, frame: pl.DataFrame, truncated: int) -> None:
    """Write a part, unless it exists undamaged; ``frame`` is the result of ``score``."""
    lines, index = run_lines(str(part.path), frame, part.tag)
    ids, ends = index["question_id"].to_list(), index["end"].to_list()
    file = io.BytesIO()
    writer = ChunkWriter(file, min(max(len(lines) // 4, LEAST_CHUNK), MOST_CHUNK))
    for number in range(len(ids)):
        writer.add(Questions(lines, ids, ends, number, number + 1))
    writer.flush()
    counts = (frame.height, len(ids), int(index["is_tied"].sum()), truncated)
    directory = json.dumps([*counts, writer.chunks]).encode()
    checked = file.getvalue() + directory + _SIZE.pack(len(directory))
    data = checked + _CHECKSUM.pack(zlib.crc32(checked))
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

    with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
        are_missing = pool.map(is_missing, parts)
        return [part for part, missing in zip(parts, are_missing, strict=True) if missing]


def _is_complete(part: Part, data: bytes) -> bool:
    """Whether the bytes are an undamaged part with all pairs of its unit."""
    return _is_undamaged(data) and _contents(data).pairs == part.pairs


def _directory_bytes(data: bytes) -> int:
    """Size of the directory of a part, given its end."""
    return int(_SIZE.unpack_from(data, len(data) - _END_BYTES)[0])


def _contents(data: bytes) -> Contents:
    """Parse the directory of a part, given its end."""
    contents = Contents(*json.loads(data[-_END_BYTES - _directory_bytes(data) : -_END_BYTES]))
    return contents._replace(chunks=[Chunk(*chunk) for chunk in contents.chunks])


def _is_undamaged(data: bytes) -> bool:
    """Whether bytes end in the checksum of a part."""
    return len(data) >= _END_BYTES and zlib.crc32(memoryview(data)[:-4]) == _CHECKSUM.unpack(data[-4:])[0]


def read_contents(parts: Sequence[Part]) -> list[Contents]:
    """Read the contents of undamaged parts, without their chunks."""
    store, folder = store_of(parts[0].path.parent)

    def read(part: Part) -> Contents:
        key = f"{folder}/{part.path.name}"
        size = store.stat(key).size
        data = store.read(key, max(0, size - _TAIL_BYTES), size)
        if len(data) < min(size, _directory_bytes(data) + _END_BYTES):
            data = store.read(key, size - _directory_bytes(data) - _END_BYTES, size)
        return _contents(data)

    with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
        return list(pool.map(read, parts))


def remove_parts(parts: Sequence[Part], folder: Location) -> None:
    """Remove the parts of a run and of earlier inputs; a file of the user with such a name stays."""
    store, key = store_of(folder)
    own_names = {part.path.name for part in parts}

    def is_part(name: str) -> bool:
        return name in own_names or _is_undamaged((folder / name).read_bytes())

    names = [name for name in store.names(key) if _NAME.fullmatch(name) and is_part(name)]
    store.delete([f"{key}/{name}" for name in names])
    remove_matching(folder, ATTEMPTS)


def check_questions(units: Sequence[Unit], questions: pl.DataFrame) -> None:
    """Raise if a question is in two units; ``questions`` has question_id and part, the number of the unit."""
    repeated = questions.filter(pl.col("question_id").is_duplicated())
    if len(repeated):
        question = repeated["question_id"][-1]
        numbers = repeated.filter(pl.col("question_id") == question)["part"]
        raise repeated_question(question, units[numbers[0]], units[numbers[-1]])


def repeated_question(question: str, first: Unit, again: Unit) -> InputError:
    """The error for a question that is in two units."""
    return InputError(
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


def line_bytes(units: Sequence[Unit], tag: str) -> float:
    """Return the mean bytes per line of a run, from the ids of three units; unreadable units are left out."""
    sizes = []
    for unit in {units[0], units[len(units) // 2], units[-1]}:
        with contextlib.suppress(InputError), open_parquet(unit.path, unit.version) as reader:
            names = [reader.metadata.schema.column(i).path for i in range(len(reader.metadata.schema))]
            answer = next(name for name in names if name.split(".")[0::3] == ["candidates", "answer_id"])
            table = reader.read_row_group(unit.row_group, ["question_id", answer])
            frame = pl.DataFrame(table).select("question_id", pl.col("candidates")).explode("candidates")
            ids = frame.select(
                pl.col("question_id").str.len_bytes(), pl.col("candidates").struct[0].str.len_bytes()
            )
            sizes.append(sum(size or 0.0 for size in ids.mean().row(0)))
    # Blanks, "Q0", a rank of two digits and a score of nine.
    return (sum(sizes) / len(sizes) if sizes else 0.0) + len(tag.encode()) + 19


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
