"""Merge the parts of a run in the order of their questions, in bounded memory.

Parts are opened in the order of their first questions, and a part whose questions precede those of all
other parts is copied chunk by chunk. Parts that overlap are merged question by question, with one chunk of
each in memory. If too many parts overlap, groups of them are merged into temporary files first. A run in
shards has one such merge per range of questions, so that several processes can write it.
"""

import contextlib
import hashlib
import json
import secrets
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from typing import NamedTuple

from aptool.errors import AptoolError
from aptool.formats.location import Location, PathOrUrl, is_remote, store_of
from aptool.formats.outputs import Kind
from aptool.formats.runs import (
    LineWriter,
    Shard,
    is_sharded,
    open_run,
    publish_shards,
    shard_location,
    shard_of,
)
from aptool.formats.trec import log_ties
from aptool.scoring.parts import (
    CONCURRENT_REQUESTS,
    Chunk,
    ChunkWriter,
    Part,
    Questions,
    parts_folder,
    read_chunk,
    read_contents,
    remove_parts,
    repeated_question,
)

# Memory for the chunks of all open parts, and the estimated memory per byte of their index.
MEMORY_BYTES = 96 << 20
_MEMORY_PER_INDEX_BYTE = 6

# Bytes of lines per write, and per shard.
_WRITE_BYTES = 1 << 20
SHARD_BYTES = 256 << 20


class RepeatedQuestionError(AptoolError):
    """A question is in two parts."""


class Source(NamedTuple):
    """A part, or a merge of parts."""

    path: Location
    chunks: Sequence[Chunk]  # in the order of questions

    def between(self, low: str | None, high: str | None) -> "Source":
        """Only the chunks that may have questions from ``low`` to before ``high``; None is no limit."""
        return self._replace(
            chunks=[
                chunk
                for chunk in self.chunks
                if (low is None or chunk.last >= low) and (high is None or chunk.first < high)
            ]
        )

    @property
    def memory(self) -> int:
        """Estimated memory while the source is open."""
        size = max(chunk.lines + _MEMORY_PER_INDEX_BYTE * (chunk.size - chunk.lines) for chunk in self.chunks)
        return size * (2 if is_remote(self.path) else 1)  # the next chunk of a remote file is prefetched


class Merged(NamedTuple):
    """The size of a run."""

    pairs: int
    truncated: int  # number of truncated answers


class ShardTask(NamedTuple):
    """The questions from ``low`` to before ``high``, and the file of their lines."""

    path: Location
    tag: str
    sources: tuple[Source, ...]
    low: str | None
    high: str | None


def merge(
    parts: Sequence[Part],
    output: PathOrUrl,
    before_publishing: Callable[[], None],
    write_shards: Callable[[Sequence[ShardTask]], Sequence[Shard]],
) -> Merged:
    """Merge all parts into the run, and remove them.

    ``before_publishing`` is called before the run gets its final name; it may raise. ``write_shards`` calls
    `write_shard` for each task, here or elsewhere.
    """
    contents = read_contents(parts)
    for part, content in zip(parts, contents, strict=True):
        if content.pairs != part.pairs:
            problem = f"{content.pairs} scores: expected {part.pairs}"
            raise AptoolError(f"{part.path}: {problem}; remove it and run again")
    merged = Merged(
        sum(content.pairs for content in contents),
        sum(content.truncated for content in contents),
    )
    tag = parts[0].tag
    sources = [Source(part.path, content.chunks) for part, content in zip(parts, contents, strict=True)]
    try:
        if is_sharded(output):
            shards = write_shards(plan_shards(sources, output, tag))
            _check_pairs(output, sum(shard.pairs for shard in shards), merged.pairs)
            before_publishing()
            publish_shards(output, tag, shards)
        else:
            with open_run(output, Kind.RUN, tag) as file:
                _check_pairs(output, _copy(sources, None, None, file)[0], merged.pairs)
                before_publishing()
    except RepeatedQuestionError as error:
        raise _located(str(error), parts, sources) from None
    remove_parts(parts, parts_folder(output))
    questions = sum(content.questions for content in contents)
    log_ties(str(output), sum(content.tied for content in contents), questions)
    return merged


def plan_shards(sources: Sequence[Source], output: PathOrUrl, tag: str) -> list[ShardTask]:
    """Split the questions into ranges with about ``SHARD_BYTES`` of lines each."""
    sizes = sorted((chunk.first, chunk.lines) for source in sources for chunk in source.chunks)
    bounds = [sizes[0][0]]
    total = 0
    for first, size in sizes:
        if total >= SHARD_BYTES and first > bounds[-1]:
            bounds.append(first)
            total = 0
        total += size
    content = [[source.path.name for source in sources], tag, bounds]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    ranges = pairwise([None, *bounds[1:], None])
    return [
        ShardTask(
            shard_location(output, number, digest),
            tag,
            tuple(part for part in (source.between(low, high) for source in sources) if part.chunks),
            low,
            high,
        )
        for number, (low, high) in enumerate(ranges)
    ]


def write_shard(task: ShardTask) -> Shard:
    """Write a shard; raise `RepeatedQuestionError` if a question is in two parts."""
    with open_run(task.path, Kind.SHARDS, task.tag) as file:
        written = _copy(task.sources, task.low, task.high, file)
    return shard_of(task.path, *written)


def _check_pairs(output: PathOrUrl, written: int, pairs: int) -> None:
    if written != pairs:
        raise AptoolError(f"{output}: {written} scores in the parts: expected {pairs}; run again")


def _located(question: str, parts: Sequence[Part], sources: Sequence[Source]) -> AptoolError:
    """The error for a question that is in two parts, which are searched for it."""
    units = [
        part.unit
        for part, source in zip(parts, sources, strict=True)
        if any(
            question in read_chunk(*store_of(source.path), chunk).ids
            for chunk in source.chunks
            if chunk.first <= question <= chunk.last
        )
    ]
    return repeated_question(question, units[0], units[-1])


def _copy(
    sources: Sequence[Source], low: str | None, high: str | None, file: LineWriter
) -> tuple[int, str, str]:
    """Write the lines of a range of questions; return their number, the first and the last question."""
    writer = _LineCounter(file)
    with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool, contextlib.ExitStack() as temporary:
        while _peak_memory(sources) > MEMORY_BYTES and len(sources) > 2:
            sources = [
                group[0] if len(group) == 1 else _merged(group, low, high, pool, temporary)
                for group in _groups(sources)
            ]
        _merge_into(writer.add, sources, low, high, pool)
    return writer.flush()


class _LineCounter:
    """Joins small blocks of lines, and counts the lines."""

    def __init__(self, file: LineWriter) -> None:
        self._file = file
        self._blocks: list[memoryview] = []
        self._bytes = self._pairs = 0
        self._ends: tuple[str, str] | None = None

    def add(self, questions: Questions) -> None:
        """Write the lines of questions."""
        lines = questions.lines
        self._blocks.append(lines)
        self._bytes += len(lines)
        first = self._ends[0] if self._ends is not None else questions.ids[questions.start]
        self._ends = first, questions.ids[questions.stop - 1]
        if self._bytes >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> tuple[int, str, str]:
        """Write what is left; return the number of lines, the first and the last question."""
        lines = b"".join(self._blocks)
        self._file.write(lines)
        self._pairs += lines.count(b"\n")
        self._blocks, self._bytes = [], 0
        assert self._ends is not None, "each range has a question"
        return self._pairs, *self._ends


def _peak_memory(sources: Sequence[Source]) -> int:
    """The memory of the most sources that are open at the same time."""
    changes = [(source.chunks[0].first, source.memory) for source in sources]
    changes += [(source.chunks[-1].last, -source.memory) for source in sources]
    memory = peak = 0
    for _, change in sorted(changes, key=lambda change: (change[0], change[1] < 0)):
        memory += change
        peak = max(peak, memory)
    return peak


def _groups(sources: Sequence[Source]) -> list[list[Source]]:
    """Groups of sources that are merged together: as many as fit in memory, two at least."""
    groups: list[list[Source]] = []
    memory = 0
    for source in sorted(sources, key=lambda source: source.chunks[0].first):
        memory += source.memory
        if not groups or (memory > MEMORY_BYTES and len(groups[-1]) > 1):
            groups.append([])
            memory = source.memory
        groups[-1].append(source)
    return groups


def _merged(
    sources: Sequence[Source],
    low: str | None,
    high: str | None,
    pool: ThreadPoolExecutor,
    temporary: contextlib.ExitStack,
) -> Source:
    """Merge sources into a temporary file, which is removed with ``temporary``."""
    first = sources[0].path
    path = first.with_name(f"{first.name.partition('.')[0]}.part.merged-{secrets.token_hex(8)}")
    temporary.callback(path.unlink, missing_ok=True)
    store, key = store_of(path)
    with store.writer(key) as file:
        writer = ChunkWriter(file)
        _merge_into(writer.add, sources, low, high, pool)
        writer.flush()
    return Source(path, writer.chunks)


def _merge_into(
    add: Callable[[Questions], None],
    sources: Sequence[Source],
    low: str | None,
    high: str | None,
    pool: ThreadPoolExecutor,
) -> None:
    """Call ``add`` with the questions of a range, in order; raise if a question is in two sources."""
    cursors: list[_Cursor | None] = [_Cursor(source, low, high, pool) for source in sources]
    # The next question of each source. A source whose next question is only known to be at least ``low``
    # precedes the others, so that it is read before they are compared with it.
    heap = [(cursor.head, cursor.is_exact, number) for number, cursor in enumerate(cursors) if cursor]
    heapify(heap)
    while heap:
        head, is_exact, number = heap[0]
        cursor = cursors[number]
        assert cursor is not None
        if is_exact:
            bound = min(heap[1:3])[0] if len(heap) > 1 else None
            if bound == head:
                raise RepeatedQuestionError(head)
            add(cursor.take(bound))
        else:
            cursor.open()
        if cursor.is_done:
            heappop(heap)
            cursors[number] = None
        else:
            heapreplace(heap, (cursor.head, True, number))


class _Cursor:
    """Reads the questions of a source in order, chunk by chunk; it prefetches remote chunks."""

    def __init__(self, source: Source, low: str | None, high: str | None, pool: ThreadPoolExecutor) -> None:
        self._store, self._key = store_of(source.path)
        self._low, self._high = low, high
        self._pool = pool if is_remote(source.path) else None
        self._chunks = deque(source.between(low, high).chunks)
        self._questions: Questions | None = None  # those of the open chunk
        self._start = self._stop = 0  # those that are left
        self._ahead: Future[Questions] | None = None
        first = self._chunks[0].first
        self.is_exact = low is None or first >= low
        self.head = first if low is None or first >= low else low  # the next question, or a lower bound

    @property
    def is_done(self) -> bool:
        """Whether no question is left."""
        return self._questions is None and not self._chunks

    def open(self) -> None:
        """Read the next chunk that has questions of the range."""
        while self._questions is None and self._chunks:
            chunk = self._chunks.popleft()
            ahead, self._ahead = self._ahead, None
            questions = ahead.result() if ahead is not None else read_chunk(self._store, self._key, chunk)
            if self._chunks and self._pool is not None:
                self._ahead = self._pool.submit(read_chunk, self._store, self._key, self._chunks[0])
            ids = questions.ids
            self._start = 0 if self._low is None else bisect_left(ids, self._low)
            self._stop = len(ids) if self._high is None else bisect_left(ids, self._high)
            if self._start < self._stop:
                self._questions, self.head = questions, ids[self._start]

    def take(self, bound: str | None) -> Questions:
        """Return the next questions before ``bound``, one at least, of one chunk."""
        if self._questions is None:
            self.open()
        assert self._questions is not None
        block, ids, ends, *_ = self._questions
        start, stop = self._start, self._stop
        if bound is not None and ids[stop - 1] >= bound:
            stop = start + 1 if ids[start + 1] >= bound else bisect_left(ids, bound, start + 1, stop)
        if stop < self._stop:
            self._start, self.head = stop, ids[stop]
        else:
            self._questions = None
            if self._chunks:
                self.head = self._chunks[0].first
        return Questions(block, ids, ends, start, stop)
