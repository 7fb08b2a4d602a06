"""Pools of candidate answers in Parquet files, with one row per question.

The data of a unit of work stay in Arrow columns, without a Python loop over candidates.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aptool.data import ids
from aptool.data.parquet import (
    Column,
    ParquetReader,
    check_columns,
    is_type,
    open_parquet,
    parquet_writer,
    strings,
    to_arrow,
    to_numpy,
)
from aptool.data.schemas import arrow_schema, load_schema
from aptool.errors import InputError
from aptool.files import open_input, stat, version_of
from aptool.paths import Location, PathOrUrl, location

if TYPE_CHECKING:
    import polars as pl

ANSWERS = "answers.parquet"

# ``PoolBatch.shared_rows`` of a text of the pools file.
UNSHARED = -1

# Maximum size of a row group: some megabytes of text, or about a second of scoring.
ROW_GROUP_BYTES = 4 << 20
ROW_GROUP_CANDIDATES = 1 << 18


# Candidates of a unit: smaller row groups are joined, larger ones divided.
UNIT_PAIRS = 1 << 18

# Candidates that are decoded at a time: Arrow cannot divide a nested column of more than 2 GiB itself.
_BATCH_PAIRS = 1 << 15

_FILES = 32  # files whose footers are read at the same time


class Unit(NamedTuple):
    """What a worker scores at a time: consecutive row groups of a file, or some rows of a large one."""

    path: str
    row_groups: tuple[int, ...]  # from 0; empty ones are left out
    pairs: int  # number of candidates, from the footer; an estimate for a divided row group
    rows: tuple[int, int] | None = None  # begin and end (exclusive) within the only row group; None is all
    version: str | None = None  # expected version of the file; None for any

    @property
    def position(self) -> str:
        """The position in the file, for errors."""
        first, last = self.row_groups[0], self.row_groups[-1]
        if self.rows is not None:
            return f"row group {first}: rows {self.rows[0]} to {self.rows[1] - 1}"
        return f"row group {first}" if first == last else f"row groups {first} to {last}"


class Answers(NamedTuple):
    """The shared answers of a collection: the columns of ``answers.parquet``."""

    path: str
    answer_ids: pa.Array
    texts: pa.Array


class PoolRecord(NamedTuple):
    """A row of a pools file."""

    question_id: str
    question: str
    answer_ids: list[str]
    texts: list[str] | None  # None to write a row whose texts are in ``answers.parquet``


@dataclass(frozen=True)
class PoolBatch:
    """The pools of a unit, in columns; each distinct answer text is stored once.

    Pair ``i`` is question ``pair_question[i]`` with answer ``answer_ids[i]``, whose text is
    ``answers[pair_answer[i]]``. The pairs of a pool are adjacent, in file order.
    """

    question_ids: pa.Array  # (n,)
    questions: pa.Array  # (n,) texts
    offsets: np.ndarray  # (n + 1,) int64: pool i is pairs offsets[i] to offsets[i + 1]
    answer_ids: pa.Array  # (pairs,)
    answers: pa.Array  # (distinct,) texts
    pair_answer: np.ndarray  # (pairs,) int64, into answers
    shared: Answers | None  # the shared answers, if they were read
    shared_rows: np.ndarray  # (distinct,) int64, row in shared, or UNSHARED

    @cached_property
    def pair_question(self) -> np.ndarray:
        """(pairs,) int64: the pool of each pair."""
        return np.repeat(np.arange(len(self.question_ids)), np.diff(self.offsets))

    def pairs(self) -> "pl.DataFrame":
        """(pairs,) question_id and answer_id (both str)."""
        import polars as pl  # scoring needs no frame

        question_ids = pl.Series(self.question_ids).gather(self.pair_question)
        return pl.DataFrame({"question_id": question_ids, "answer_id": pl.Series(self.answer_ids)})

    def records(self) -> Iterator[PoolRecord]:
        """The pools, each with the texts of its candidates."""
        texts, answer_ids, rows = self.answers.to_pylist(), self.answer_ids.to_pylist(), self.pair_answer
        pools = zip(self.question_ids.to_pylist(), self.questions.to_pylist(), strict=True)
        for (question_id, question), (start, end) in zip(pools, pairwise(self.offsets.tolist()), strict=True):
            candidates = [texts[row] for row in rows[start:end].tolist()]
            yield PoolRecord(question_id, question, answer_ids[start:end], candidates)

    def select(self, rows: np.ndarray) -> "PoolBatch":
        """Select pools by their row numbers (ascending), with only the texts of their pairs."""
        chosen = np.flatnonzero(np.isin(self.pair_question, rows))
        present, pair_answer = np.unique(self.pair_answer[chosen], return_inverse=True)
        return PoolBatch(
            self.question_ids.take(to_arrow(rows)),
            self.questions.take(to_arrow(rows)),
            np.concatenate([[0], np.cumsum(np.diff(self.offsets)[rows])]),
            self.answer_ids.take(to_arrow(chosen)),
            self.answers.take(to_arrow(present)),
            pair_answer,
            self.shared,
            self.shared_rows[present],
        )


def list_units(paths: Iterable[PathOrUrl]) -> list[Unit]:
    """List the units of pools files, in the order of the files, after a check of each schema.

    A unit is consecutive row groups of at most ``UNIT_PAIRS`` candidates together; a row group with more is
    divided into parts of equally many rows. Units depend on the files alone, so that runs do.
    """
    paths = list(paths)
    with ThreadPoolExecutor(_FILES) as threads:
        units = [unit for units in threads.map(_units_of, paths) for unit in units]
    if not units:
        raise InputError(paths[-1] if paths else "", problem="no row", expected="at least one pool")
    return units


def _units_of(path: PathOrUrl) -> list[Unit]:
    with open_input(path) as file:
        version = version_of(file, path)
        reader = ParquetReader(path, file, version)
        check_columns(path, reader.schema, "pools")
        counts = reader.candidate_counts()
        sizes = [reader.rows_of(group) for group in range(len(counts))]
    units: list[Unit] = []
    joined: list[int] = []  # row groups of the next unit
    total = 0  # their candidates

    def flush() -> None:
        nonlocal total
        if joined:
            units.append(Unit(str(path), tuple(joined), total, version=version))
        joined.clear()
        total = 0

    for group, (pairs, rows) in enumerate(zip(counts, sizes, strict=True)):
        if total + pairs > UNIT_PAIRS:
            flush()
        if pairs > UNIT_PAIRS and rows > 1:
            divisions = min(rows, -(-pairs // UNIT_PAIRS))
            bounds = [rows * number // divisions for number in range(divisions + 1)]
            shares = [pairs * bound // rows for bound in bounds]
            for (begin, end), (low, high) in zip(pairwise(bounds), pairwise(shares), strict=True):
                units.append(Unit(str(path), (group,), high - low, (begin, end), version))
        elif rows:
            joined.append(group)
            total += pairs
    flush()
    return units


def read_answers(path: PathOrUrl, version: str | None = None) -> Answers:
    """Read an answers file, such as ``answers.parquet``; a ``version`` of None is any version."""
    with open_parquet(path, version) as reader:
        check_columns(path, reader.schema, "answers")
        table = reader.read(["answer_id", "text"])
    answer_ids = Column(path, "answer_id", strings(table["answer_id"]))
    texts = Column(path, "text", strings(table["text"]))
    answer_ids.check()
    texts.check()
    answer_ids.check_ids(ids.ANSWER_ID, ids.EXPECTED_ANSWER_ID)
    answer_ids.check_distinct("each id once")
    return Answers(str(path), answer_ids.values, texts.values)


def read_pools(unit: Unit, answers: Answers | None = None) -> PoolBatch:
    """Read and validate a unit; errors name row group, row (from 0), column and value.

    ``answers`` has the texts of candidates whose text is null; None for ``answers.parquet`` next to the file.
    """
    path = unit.path
    with open_parquet(path, unit.version) as reader:
        check_columns(path, reader.schema, "pools")
        sizes_of_groups = [reader.rows_of(group) for group in unit.row_groups]
        rows = unit.rows[1] - unit.rows[0] if unit.rows is not None else sum(sizes_of_groups)
        batch = max(1, rows * _BATCH_PAIRS // max(1, unit.pairs))
        columns = ["question_id", "question", "candidates"]
        table = reader.read_row_groups(unit.row_groups, columns, batch, unit.rows)
    place = _places(unit, sizes_of_groups)
    question_ids = Column(path, "question_id", strings(table["question_id"]), place)
    questions = Column(path, "question", strings(table["question"]), place)
    candidates = Column(path, "candidates", table["candidates"], place)
    question_ids.check()
    questions.check()
    question_ids.check_ids(ids.QUESTION_ID, ids.EXPECTED_QUESTION_ID)
    question_ids.check_distinct("each question once")
    candidates.check_nulls()
    sizes = to_numpy(pc.list_value_length(candidates.values))
    is_short = sizes < load_schema("pools")["properties"]["candidates"]["minItems"]
    if is_short.any():
        raise candidates.error(is_short, "a pool of at least one candidate")
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    pools = np.repeat(np.arange(len(sizes)), sizes)
    flat = [chunk.flatten() for chunk in candidates.values.chunks]
    answer_ids = Column(path, "candidates.answer_id", _field(flat, "answer_id"), place, pools)
    texts = Column(path, "candidates.text", _field(flat, "text"), place, pools)
    answer_ids.check()
    texts.check_text()
    text_ids = _text_ids(path, flat)
    if text_ids is not None:
        Column(path, "candidates.text_id", text_ids, place, pools).check_text()
    answer_ids.check_ids(ids.ANSWER_ID, ids.EXPECTED_ANSWER_ID)
    answer_ids.check_distinct("each answer once in a pool", in_row=True)
    if answers is None and texts.values.null_count and (beside := answers_beside(path)) is not None:
        answers = _cached_answers(str(beside), stat(beside).version)
    distinct, shared_rows, pair_answer = _resolve_texts(answer_ids, texts, text_ids, answers)
    return PoolBatch(
        *(question_ids.values, questions.values, offsets),
        *(answer_ids.values, distinct, pair_answer, answers, shared_rows),
    )


def _places(unit: Unit, sizes: list[int]) -> Callable[[int], str]:
    """The position of each row of a unit; ``sizes`` are the numbers of rows of its row groups."""
    starts = np.cumsum([0, *sizes])

    def place(row: int) -> str:
        row += unit.rows[0] if unit.rows is not None else 0
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return f"row group {unit.row_groups[number]}: row {row - starts[number]}"

    return place


def _field(candidates: list[pa.StructArray], name: str) -> pa.Array:
    return strings(pa.chunked_array([chunk.field(name) for chunk in candidates]))


def answers_beside(pools: PathOrUrl) -> Location | None:
    """The answers file in the folder of a pools file, if it exists."""
    path = location(pools).parent / ANSWERS
    return path if path.is_file() else None


@lru_cache(maxsize=4)
def _cached_answers(path: str, version: str) -> Answers:
    """Read an answers file; the last files are kept in memory."""
    return read_answers(path, version)


class PoolsWriter:
    """Context manager that writes pools one by one, not atomically, and buffers one row group."""

    def __init__(self, path: PathOrUrl, *, optional: bool = False) -> None:
        """Open a file to write, with the optional columns of pools if ``optional``."""
        self.schema = arrow_schema("pools", optional=optional)
        self._writer = parquet_writer(path, self.schema)
        self._rows: list[Any] = []
        self._bytes = self._candidates = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self._flush()
        self._writer.close()

    def write(self, pool: PoolRecord) -> None:
        """Add one pool."""
        texts = pool.texts if pool.texts is not None else [None] * len(pool.answer_ids)
        candidates = [
            {"answer_id": answer_id, "text": text}
            for answer_id, text in zip(pool.answer_ids, texts, strict=True)
        ]
        self._rows.append(
            {"question_id": pool.question_id, "question": pool.question, "candidates": candidates}
        )
        self._bytes += sum(len(text or "") + 16 for text in texts)
        self._candidates += len(candidates)
        if self._bytes >= ROW_GROUP_BYTES or self._candidates >= ROW_GROUP_CANDIDATES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._row_group())
        self._rows = []
        self._bytes = self._candidates = 0

    def _row_group(self) -> pa.Table:
        return pa.Table.from_pylist(self._rows, schema=self.schema)


def write_answers(path: PathOrUrl, answers: Iterable[tuple[str, str]]) -> None:
    """Write ``(answer id, text)`` pairs to an answers file, not atomically."""
    schema = arrow_schema("answers")
    with parquet_writer(path, schema) as writer:
        remaining = iter(answers)
        is_last = False
        while not is_last:
            batch = list(islice(remaining, ROW_GROUP_CANDIDATES))
            is_last = len(batch) < ROW_GROUP_CANDIDATES
            columns = {"answer_id": [name for name, _ in batch], "text": [text for _, text in batch]}
            writer.write_table(pa.table(columns, schema=schema))


def _text_ids(path: PathOrUrl, candidates: list[pa.StructArray]) -> pa.Array | None:
    """The optional column ``text_id``; None if it is missing or all null."""
    index = candidates[0].type.get_field_index("text_id")
    if index < 0 or all(chunk.field(index).null_count == len(chunk) for chunk in candidates):
        return None
    kind = candidates[0].type.field(index).type
    if not is_type(kind, pa.string(), is_id=True):
        raise InputError(path, column="candidates.text_id", value=str(kind), expected="type string")
    return _field(candidates, "text_id")


def _resolve_texts(
    answer_ids: Column, texts: Column, text_ids: pa.Array | None, answers: Answers | None
) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The distinct texts, their rows in the shared answers, and the index of each candidate's text.

    Texts are in the order of their first candidate; if all are shared, in the order of the answers file.
    """
    references = answer_ids.values if text_ids is None else pc.coalesce(text_ids, answer_ids.values)
    is_shared = to_numpy(texts.values.is_null())
    pair_answer = np.zeros(len(is_shared), dtype=np.int64)
    unshared = texts.values.filter(to_arrow(~is_shared)).dictionary_encode()
    pair_answer[~is_shared] = to_numpy(unshared.indices)
    no_rows = np.full(len(unshared.dictionary), UNSHARED, dtype=np.int64)
    if not is_shared.any():
        return unshared.dictionary, no_rows, pair_answer
    if answers is None:
        answer = references[int(np.argmax(is_shared))].as_py()
        raise texts.error(is_shared, f"a text, or an answers file with {answer!r}")
    rows = pc.index_in(references.filter(to_arrow(is_shared)), value_set=answers.answer_ids)
    if rows.null_count:
        is_missing = np.zeros(len(is_shared), dtype=bool)
        is_missing[is_shared] = to_numpy(rows.is_null())
        has_text_id = text_ids is not None and text_ids[int(np.argmax(is_missing))].is_valid
        name = "candidates.text_id" if has_text_id else "candidates.answer_id"
        expected = f"an answer of {location(answers.path).name}"
        raise answer_ids._replace(name=name, values=references).error(is_missing, expected)
    distinct_rows, codes = np.unique(to_numpy(rows), return_inverse=True)
    pair_answer[is_shared] = codes + len(unshared.dictionary)
    distinct = pa.concat_arrays([unshared.dictionary, answers.texts.take(to_arrow(distinct_rows))])
    all_rows = np.concatenate([no_rows, distinct_rows])
    if not len(no_rows):
        return distinct, all_rows, pair_answer
    _, first = np.unique(pair_answer, return_index=True)
    order = np.argsort(first)
    return distinct.take(to_arrow(order)), all_rows[order], np.argsort(order)[pair_answer]
