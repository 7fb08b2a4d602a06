"""Deduplication of texts: a text of several pools is stored once, in ``answers.parquet``.

A shared text has the id of its first candidate. The other candidates keep their ids and refer to the text by
``text_id``, so run files and qrels do not depend on the storage of texts.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from aptool.data.parquet import open_parquet
from aptool.data.pools import ROW_GROUP_BYTES, ROW_GROUP_CANDIDATES, PoolsWriter, write_answers
from aptool.data.schemas import arrow_schema

_COLUMNS = ["question_id", "question", "candidates"]


class SharedTexts:
    """Finds and moves the texts of several pools; holds a hash per distinct text in memory."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._shared: set[bytes] = set()
        self._ids: dict[bytes, str] = {}  # of the texts in the answers file
        self._used_ids: set[str] = set()

    def count(self, texts: Iterable[str]) -> None:
        """Count the texts of a pool."""
        hashes = {text_hash(text) for text in texts}
        self._shared |= hashes & self._seen
        self._seen |= hashes

    def move(self, pools: Iterable[Path], answers: Path) -> None:
        """Move shared texts to ``answers``, and rewrite the pools files that have any."""
        if self._shared:
            write_answers(answers, (pair for path in pools for pair in self._move(path)))

    def _move(self, path: Path) -> Iterator[tuple[str, str]]:
        """Rewrite a pools file; yield the ids and texts to add to the answers file."""
        rewritten = path.with_name(f"{path.name}.shared")
        any_moved = False
        with open_parquet(path) as reader, _TableWriter(rewritten) as writer:
            for group in range(reader.metadata.num_row_groups):
                table = reader.read_row_group(group, _COLUMNS)
                candidates, moved, new = self._candidates(table["candidates"].combine_chunks())
                any_moved = any_moved or moved
                yield from new
                writer.write_table(table.set_column(2, writer.schema.field("candidates"), candidates))
        rewritten.replace(path) if any_moved else rewritten.unlink()

    def _candidates(self, pools: pa.ListArray) -> tuple[pa.ListArray, bool, list[tuple[str, str]]]:
        """Replace shared texts by references; return the pools, whether any changed, and the new answers."""
        flat = pools.flatten()
        answer_ids, texts = flat.field("answer_id"), flat.field("text").dictionary_encode()
        codes = texts.indices.to_numpy()
        distinct = texts.dictionary.to_pylist()
        first = np.unique(codes, return_index=True)[1]
        ids: list[str | None] = []
        new = []
        for row, text in zip(first.tolist(), distinct, strict=True):
            key = text_hash(text)
            if key in self._shared and key not in self._ids:
                self._ids[key] = self._unique_id(answer_ids[row].as_py())
                new.append((self._ids[key], text))
            ids.append(self._ids.get(key))
        text_ids = pa.array(ids, pa.string()).take(texts.indices)
        moved = text_ids.is_valid()
        same = pc.equal(text_ids, answer_ids)
        values = [
            answer_ids,
            pc.if_else(moved, pa.scalar(None, pa.string()), flat.field("text")),
            pc.if_else(same, pa.scalar(None, pa.string()), text_ids),
        ]
        kind = arrow_schema("pools", optional=True).field("candidates").type
        struct = pa.StructArray.from_arrays(values, fields=list(kind.value_type))
        offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(pools).to_numpy())])
        shared = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), struct, type=kind)
        return shared, pc.any(moved).as_py(), new

    def _unique_id(self, answer_id: str) -> str:
        """Add a number to an id of another text, since ids may be local to a question."""
        text_id, number = answer_id, 2
        while text_id in self._used_ids:
            text_id, number = f"{answer_id}-{number}", number + 1
        self._used_ids.add(text_id)
        return text_id


def text_hash(text: str) -> bytes:
    """128-bit BLAKE2b hash of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class _TableWriter(PoolsWriter):
    """Writes tables of pools, and joins small ones to row groups of the usual size."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, optional=True)

    def write_table(self, table: pa.Table) -> None:
        """Add a table of at most one row group."""
        flat = table["candidates"].chunk(0).flatten()
        size = 16 * len(flat) + (pc.sum(pc.binary_length(flat.field("text"))).as_py() or 0)
        if self._bytes + size > ROW_GROUP_BYTES or self._candidates + len(flat) > ROW_GROUP_CANDIDATES:
            self._flush()
        self._rows.append(table)
        self._bytes, self._candidates = self._bytes + size, self._candidates + len(flat)

    @override
    def _row_group(self) -> pa.Table:
        return pa.concat_tables(self._rows)
