"""Pools of candidate answers in Parquet: one row is one question with its pool.

A row group is what one unit of work reads. It is read into columns and stays in columns: nothing here
loops over rows or candidates in Python.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aptool.errors import InputError
from aptool.formats import storage
from aptool.formats.columns import (
    check_columns,
    check_distinct,
    check_nulls,
    check_pattern,
    check_text,
    fault,
    first_repeated,
    parquet,
    readable,
    strings,
)
from aptool.formats.schemas import arrow_schema, load_schema

# A row group ends at whichever comes first: a few megabytes of text, or about a second's work of pairs.
ROW_GROUP_BYTES = 4 << 20
ROW_GROUP_CANDIDATES = 1 << 18


class Unit(NamedTuple):
    """One row group of a pools file: the unit of scoring, locally and on a cluster."""

    path: str
    row_group: int


class Answers(NamedTuple):
    """Answers shared by the pools of a collection (the columns of ``answers.parquet``)."""

    path: str
    answer_ids: pa.Array
    texts: pa.Array


class PoolRecord(NamedTuple):
    """One row of a pools file, as an importer produces it.

    ``texts`` is None where the answers stand in the collection's ``answers.parquet``.
    """

    question_id: str
    question: str
    answer_ids: Sequence[str]
    texts: Sequence[str] | None


@dataclass(frozen=True)
class Pools:
    """The pools of one row group, in columns, with every distinct answer text once.

    Pair ``i`` is question ``pair_question[i]`` with answer ``answer_ids[i]``, whose text is
    ``answers[pair_answer[i]]``; pairs of one pool are adjacent, in file order.
    """

    question_ids: pa.Array  # (n,)
    questions: pa.Array  # (n,) texts
    offsets: np.ndarray  # (n + 1,) int64: pool i is pairs offsets[i] to offsets[i + 1]
    answer_ids: pa.Array  # (pairs,)
    answers: pa.Array  # (distinct,) texts
    pair_answer: np.ndarray  # (pairs,) int64, into answers
    shared: Answers | None  # where texts that pools share were looked up
    shared_rows: np.ndarray  # (distinct,) int64, into shared; -1 where a text stood in the pools

    @cached_property
    def pair_question(self) -> np.ndarray:
        """(pairs,) int64: the pool that each pair stands in."""
        return np.repeat(np.arange(len(self.question_ids)), np.diff(self.offsets))


def list_units(paths: Iterable[str | Path]) -> list[Unit]:
    """Every row group with a row of the given pools files, after a look at each file's schema.

    Raises:
        InputError: a file is missing, is not Parquet or lacks a column of the right type, or none has a row.
    """
    units = []
    path: str | Path = ""
    for path in paths:
        with storage.open_binary(path) as file:
            reader = parquet(path, file)
            check_columns(path, reader.schema_arrow, "pools")
            groups = range(reader.num_row_groups)
            units += [Unit(str(path), group) for group in groups if reader.metadata.row_group(group).num_rows]
    if not units:
        raise InputError(path, problem="no row", expected="at least one pool")
    return units


def read_answers(path: str | Path) -> Answers:
    """Reads an ``answers.parquet``.

    Raises:
        InputError: the file is not what its schema says, or an answer id stands in it twice.
    """
    with storage.open_binary(path) as file:
        reader = parquet(path, file)
        check_columns(path, reader.schema_arrow, "answers")
        table = readable(path, "file", lambda: reader.read(columns=["answer_id", "text"]))
    ids = strings(table["answer_id"])
    texts = strings(table["text"])
    check_nulls(path, ids, "answer_id")
    check_nulls(path, texts, "text")
    check_text(path, ids, "answer_id")
    check_text(path, texts, "text")
    check_pattern(path, ids, "answer_id", load_schema("answers")["properties"]["answer_id"]["pattern"], "row")
    repeated = first_repeated(ids)
    if repeated is not None:
        raise InputError(
            path,
            place=f"row {repeated}",
            column="answer_id",
            value=ids[repeated].as_py(),
            expected="each id once",
        )
    return Answers(str(path), ids, texts)


def read_pools(unit: Unit, answers: Answers | None = None) -> Pools:
    """Reads one row group and checks everything that scoring relies on.

    Args:
        unit: which row group of which file.
        answers: where the texts of candidates without a text of their own are looked up.

    Raises:
        InputError: naming file, row group, row (from 0 in the row group), column, value and expectation,
            for a null or malformed id, a null question, an empty pool, an answer twice in one pool, or a
            candidate whose text is found nowhere.
    """
    path = unit.path
    where = f"row group {unit.row_group}"
    with storage.open_binary(path) as file:
        reader = parquet(path, file)
        check_columns(path, reader.schema_arrow, "pools")
        columns = ["question_id", "question", "candidates"]
        table = readable(path, where, lambda: reader.read_row_group(unit.row_group, columns=columns))
    schema = load_schema("pools")["properties"]
    question_ids = strings(table["question_id"])
    questions = strings(table["question"])
    candidates = table["candidates"].combine_chunks()
    row = f"{where}: row"
    check_nulls(path, question_ids, "question_id", row)
    check_nulls(path, questions, "question", row)
    check_text(path, question_ids, "question_id", row)
    check_text(path, questions, "question", row)
    check_pattern(path, question_ids, "question_id", schema["question_id"]["pattern"], row)
    check_nulls(path, candidates, "candidates", row)

    sizes = pc.list_value_length(candidates).to_numpy(zero_copy_only=False)
    if len(sizes) and sizes.min() < schema["candidates"]["minItems"]:
        bad = int(np.argmin(sizes))
        raise InputError(
            path,
            place=f"{row} {bad}",
            column="candidates",
            value=[],
            expected="a pool of at least one candidate",
        )
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = candidates.flatten()
    answer_ids = strings(flat.field("answer_id"))
    texts = strings(flat.field("text"))
    pools = np.repeat(np.arange(len(sizes)), sizes)
    check_nulls(path, answer_ids, "candidates.answer_id", row, pools)
    check_text(path, answer_ids, "candidates.answer_id", row, pools)
    check_text(path, texts, "candidates.text", row, pools)
    pattern = schema["candidates"]["items"]["properties"]["answer_id"]["pattern"]
    check_pattern(path, answer_ids, "candidates.answer_id", pattern, row, pools)
    check_distinct(path, answer_ids, pools, question_ids, row)
    distinct, rows, pair_answer = _resolve_texts(path, answer_ids, texts, answers, row, pools)
    return Pools(question_ids, questions, offsets, answer_ids, distinct, pair_answer, answers, rows)


def pool_sizes(path: str, row_groups: Iterable[int]) -> Iterator[dict[str, int]]:
    """How many candidates each question of some row groups has, read without their texts.

    Raises:
        InputError: a row group cannot be read.
    """
    with storage.open_binary(path) as file:
        reader = parquet(path, file)
        for group in row_groups:
            yield readable(path, f"row group {group}", partial(_pool_sizes, reader, group))


def _pool_sizes(reader: pq.ParquetFile, group: int) -> dict[str, int]:
    table = reader.read_row_group(group, columns=["question_id", "candidates.list.element.answer_id"])
    sizes = pc.list_value_length(table["candidates"].combine_chunks())
    return dict(zip(table["question_id"].to_pylist(), sizes.to_pylist(), strict=True))


class PoolsWriter:
    """Writes pools row by row into row groups of a bounded size. Used as a context manager.

    Memory holds one row group. The file is whole only after the block ends; write under a temporary name.
    """

    def __init__(self, path: str | Path) -> None:
        self._schema = arrow_schema("pools")
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, object]] = []
        self._bytes = self._candidates = 0

    def __enter__(self) -> "PoolsWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self._flush()
        self._writer.close()

    def write(self, pool: PoolRecord) -> None:
        """Adds one pool."""
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
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []
        self._bytes = self._candidates = 0


def write_answers(path: str | Path, answers: Iterable[tuple[str, str]]) -> None:
    """Writes ``(answer id, text)`` pairs as an answers file (not atomically: see ``formats.atomic``)."""
    schema = arrow_schema("answers")
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for ids, texts in _batched(answers, ROW_GROUP_CANDIDATES):
            writer.write_table(pa.table({"answer_id": ids, "text": texts}, schema=schema))


def _batched(pairs: Iterable[tuple[str, str]], size: int) -> Iterator[tuple[list[str], list[str]]]:
    ids: list[str] = []
    texts: list[str] = []
    for answer_id, text in pairs:
        ids.append(answer_id)
        texts.append(text)
        if len(ids) == size:
            yield ids, texts
            ids, texts = [], []
    yield ids, texts


def _resolve_texts(
    path: str | Path,
    answer_ids: pa.Array,
    texts: pa.Array,
    answers: Answers | None,
    row: str,
    pools: np.ndarray,
) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The distinct texts, the rows of the shared ones, and for each candidate which text is its own."""
    shared = texts.is_null().to_numpy(zero_copy_only=False)
    pair_answer = np.zeros(len(texts), dtype=np.int64)
    own = texts.filter(pa.array(~shared)).dictionary_encode()
    pair_answer[~shared] = own.indices.to_numpy()
    nowhere = np.full(len(own.dictionary), -1, dtype=np.int64)
    if not shared.any():
        return own.dictionary, nowhere, pair_answer
    if answers is None:
        index = int(np.argmax(shared))
        expected = f"a text, or an answers file with {answer_ids[index].as_py()!r}"
        raise fault(path, texts, index, "candidates.text", row, pools, expected)
    wanted = answer_ids.filter(pa.array(shared))
    rows = pc.index_in(wanted, value_set=answers.answer_ids)
    if rows.null_count:
        index = int(np.flatnonzero(shared)[np.argmax(rows.is_null().to_numpy(zero_copy_only=False))])
        expected = f"an answer of {answers.path}"
        raise fault(path, answer_ids, index, "candidates.answer_id", row, pools, expected)
    distinct_rows, codes = np.unique(rows.to_numpy(), return_inverse=True)
    pair_answer[shared] = codes + len(own.dictionary)
    distinct = pa.concat_arrays([own.dictionary, answers.texts.take(pa.array(distinct_rows))])
    return distinct, np.concatenate([nowhere, distinct_rows]), pair_answer
