"""Pools of candidate answers: Parquet files with one row per question, and the public class `Pools`.

The data of a unit of work stay in Arrow columns, without a Python loop over candidates.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from html import escape
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from aptool.arguments import PathLike, check_path, check_paths, is_path
from aptool.data.frames import (
    LEGAL_ANSWER_ID,
    LEGAL_QUESTION_ID,
    Table,
    check,
    is_table,
    read_frame,
)
from aptool.data.parquet import (
    ParquetReader,
    arrow_schema,
    check_columns,
    check_distinct,
    is_type,
    open_parquet,
    text_column,
    to_arrow,
    to_numpy,
    write_tables,
)
from aptool.environment import Tabular
from aptool.errors import InputError, UsageError, counted
from aptool.files import expand, open_input, stat, version_of
from aptool.outputs import check_apart, check_output, output_file
from aptool.paths import Location, PathOrUrl, location

ANSWERS = "answers.parquet"

# ``PoolBatch.shared_rows`` of a text of the pools file.
UNSHARED = -1

# Maximum size of a row group: some megabytes of text, or about a second of scoring.
ROW_GROUP_BYTES = 4 << 20
ROW_GROUP_CANDIDATES = 1 << 18


# Candidates of a unit: smaller row groups are joined, those of more than one and a half times are divided.
UNIT_PAIRS = 1 << 18

# Candidates that are decoded at a time: Arrow cannot divide a nested column of more than 2 GiB itself.
_BATCH_PAIRS = 1 << 15

_FILES = 32  # files whose footers are read at the same time

_COLUMNS = ("question_id", "question", "answer_id", "answer")


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

    def pairs(self) -> pl.DataFrame:
        """(pairs,) question_id and answer_id (both str)."""
        question_ids = pl.Series(self.question_ids).gather(self.pair_question)
        return pl.DataFrame({"question_id": question_ids, "answer_id": pl.Series(self.answer_ids)})

    def records(self) -> Iterator[PoolRecord]:
        """The pools, each with the texts of its candidates."""
        texts, answer_ids, rows = self.answers.to_pylist(), self.answer_ids.to_pylist(), self.pair_answer
        pools = zip(self.question_ids.to_pylist(), self.questions.to_pylist(), strict=True)
        for (question_id, question), (start, end) in zip(pools, pairwise(self.offsets.tolist()), strict=True):
            candidates = [texts[row] for row in rows[start:end].tolist()]
            yield PoolRecord(question_id, question, answer_ids[start:end], candidates)

    def head(self, count: int) -> "PoolBatch":
        """The first pools, with only the texts of their pairs."""
        pairs = int(self.offsets[count])
        present, pair_answer = np.unique(self.pair_answer[:pairs], return_inverse=True)
        return PoolBatch(
            self.question_ids[:count],
            self.questions[:count],
            self.offsets[: count + 1],
            self.answer_ids[:pairs],
            self.answers.take(to_arrow(present)),
            pair_answer,
            self.shared,
            self.shared_rows[present],
        )


def list_units(paths: Iterable[PathOrUrl]) -> list[Unit]:
    """List the units of pools files, in the order of the files, after a check of each schema.

    A unit is consecutive row groups of at most ``UNIT_PAIRS`` candidates together; a row group of more than
    one and a half times that is divided into parts of equally many rows. Units depend on the files alone, so
    that runs do.
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
    for group, (pairs, rows) in enumerate(zip(counts, sizes, strict=True)):
        if joined and total + pairs > UNIT_PAIRS:
            units.append(Unit(str(path), tuple(joined), total, version=version))
            joined, total = [], 0
        if rows:
            joined.append(group)
            total += pairs
    if joined:
        units.append(Unit(str(path), tuple(joined), total, version=version))
    return [part for unit in units for part in _divided(unit, sizes[unit.row_groups[0]])]


def _divided(unit: Unit, rows: int) -> Iterator[Unit]:
    """Divide a unit of a single row group with so many rows, if it is too large."""
    divisions = min(rows, round(unit.pairs / UNIT_PAIRS))
    if divisions <= 1:
        yield unit
        return
    bounds = [rows * number // divisions for number in range(divisions + 1)]
    for begin, end in pairwise(bounds):
        pairs = unit.pairs * end // rows - unit.pairs * begin // rows
        yield unit._replace(pairs=pairs, rows=(begin, end))


def read_answers(path: PathOrUrl, version: str | None = None) -> Answers:
    """Read an answers file, such as ``answers.parquet``; a ``version`` of None is any version."""
    with open_parquet(path, version) as reader:
        check_columns(path, reader.schema, "answers")
        table = reader.read(["answer_id", "text"])
    answers = Answers(str(path), *(text_column(path, name, table[name]) for name in ("answer_id", "text")))
    answer_ids = pl.Series("answer_id", answers.answer_ids)
    check(path, answer_ids.to_frame(), [LEGAL_ANSWER_ID], "row {}".format)
    check_distinct(path, answer_ids, "each id once")
    return answers


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
    question_ids, questions = (
        text_column(path, name, table[name], place) for name in ("question_id", "question")
    )
    names = pl.Series("question_id", question_ids)
    check(path, names.to_frame(), [LEGAL_QUESTION_ID], place)
    check_distinct(path, names, "each question once", place)
    candidates = table["candidates"]
    # ``pc.fill_null`` would import pandas.
    sizes = pl.Series(pc.list_value_length(candidates)).fill_null(0).to_numpy()
    if not sizes.all():
        row = int(np.argmin(sizes))
        value, expected = candidates[row].as_py(), "a pool of at least one candidate"
        raise InputError(path, position=place(row), column="candidates", value=value, expected=expected)
    pools = np.repeat(np.arange(len(sizes)), sizes)

    def place_of(pair: int) -> str:
        return place(pools[pair])

    pairs = _pair_columns(path, pa.Table.from_struct_array(pc.list_flatten(candidates)), place_of)
    _check_answer_ids(path, pools, pairs["answer_id"], place_of)
    if answers is None and pairs["text"].null_count and (beside := answers_beside(path)) is not None:
        answers = _cached_answers(str(beside), stat(beside).version)
    distinct, shared_rows, pair_answer = _resolve_texts(path, pairs, place_of, answers)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return PoolBatch(
        *(question_ids, questions, offsets),
        *(pairs["answer_id"], distinct, pair_answer, answers, shared_rows),
    )


def _check_answer_ids(
    path: PathOrUrl, pools: np.ndarray, answer_ids: pa.Array, place: Callable[[int], str]
) -> None:
    """Raise for an illegal answer id, and for one that is repeated in its pool; ``pools`` are (P,) pools."""
    encoded, names = answer_ids.dictionary_encode(), {"answer_id": "candidates.answer_id"}
    codes = to_numpy(encoded.indices)
    distinct = pl.DataFrame({"answer_id": pl.Series(encoded.dictionary)})  # in the order of their first pairs
    check(path, distinct, [LEGAL_ANSWER_ID], lambda row: place(int(np.argmax(codes == row))), names)
    pairs = pl.DataFrame({"pair": pools * len(distinct) + codes, "answer_id": pl.Series(answer_ids)})
    repeated = pl.col("pair").is_first_distinct().not_()
    check(path, pairs, [("answer_id", repeated, "each answer once in a pool")], place, names)


def _places(unit: Unit, sizes: list[int]) -> Callable[[int], str]:
    """The position of each row of a unit; ``sizes`` are the numbers of rows of its row groups."""
    starts = np.cumsum([0, *sizes])

    def place(row: int) -> str:
        row += unit.rows[0] if unit.rows is not None else 0
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return f"row group {unit.row_groups[number]}: row {row - starts[number]}"

    return place


def _pair_columns(path: PathOrUrl, pairs: pa.Table, place: Callable[[int], str]) -> dict[str, pa.Array]:
    """The texts answer_id, text (null for a shared text) and, if some have one, text_id of candidates."""
    names = ["answer_id", "text"]
    if pairs.schema.get_field_index("text_id") >= 0 and pairs["text_id"].null_count < len(pairs):
        kind = pairs["text_id"].type
        if not is_type(kind, pa.string(), is_id=True):
            raise InputError(path, column="candidates.text_id", value=str(kind), expected="type string")
        names.append("text_id")
    return {
        name: text_column(path, f"candidates.{name}", pairs[name], place, nullable=name != "answer_id")
        for name in names
    }


def answers_beside(pools: PathOrUrl) -> Location | None:
    """The answers file in the folder of a pools file, if it exists."""
    path = location(pools).parent / ANSWERS
    return path if path.is_file() else None


@lru_cache(maxsize=4)
def _cached_answers(path: str, version: str) -> Answers:
    """Read an answers file; the last files are kept in memory."""
    return read_answers(path, version)


def pool_tables(pools: Iterable[PoolRecord]) -> Iterator[pa.Table]:
    """Convert pools to tables, each for one row group."""
    schema = arrow_schema("pools")
    rows: list[dict[str, Any]] = []
    size = number = 0
    for pool in pools:
        texts = pool.texts if pool.texts is not None else [None] * len(pool.answer_ids)
        candidates = [
            {"answer_id": answer_id, "text": text}
            for answer_id, text in zip(pool.answer_ids, texts, strict=True)
        ]
        rows.append({"question_id": pool.question_id, "question": pool.question, "candidates": candidates})
        size += sum(len(text or "") + 16 for text in texts)
        number += len(candidates)
        if size >= ROW_GROUP_BYTES or number >= ROW_GROUP_CANDIDATES:
            yield pa.Table.from_pylist(rows, schema=schema)
            rows, size, number = [], 0, 0
    if rows:
        yield pa.Table.from_pylist(rows, schema=schema)


def write_answers(path: PathOrUrl, answers: Iterable[tuple[str, str]]) -> None:
    """Write ``(answer id, text)`` pairs to an answers file, not atomically."""
    schema = arrow_schema("answers")

    def tables() -> Iterator[pa.Table]:
        remaining = iter(answers)
        while batch := list(islice(remaining, ROW_GROUP_CANDIDATES)):
            columns = {"answer_id": [name for name, _ in batch], "text": [text for _, text in batch]}
            yield pa.table(columns, schema=schema)

    write_tables(path, schema, tables())


def _resolve_texts(
    path: PathOrUrl, pairs: Mapping[str, pa.Array], place: Callable[[int], str], answers: Answers | None
) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The distinct texts, their rows in the shared answers, and the index of each candidate's text.

    Texts are in the order of their first candidate; if all are shared, in the order of the answers file.
    """
    answer_ids, text_ids = pairs["answer_id"], pairs.get("text_id")
    references = answer_ids if text_ids is None else pc.coalesce(text_ids, answer_ids)
    is_shared = to_numpy(pairs["text"].is_null())
    pair_answer = np.zeros(len(is_shared), dtype=np.int64)
    unshared = pairs["text"].filter(to_arrow(~is_shared)).dictionary_encode()
    pair_answer[~is_shared] = to_numpy(unshared.indices)
    no_rows = np.full(len(unshared.dictionary), UNSHARED, dtype=np.int64)
    if not is_shared.any():
        return unshared.dictionary, no_rows, pair_answer
    if answers is None:
        pair = int(np.argmax(is_shared))
        expected = f"a text, or an answers file with {references[pair].as_py()!r}"
        raise InputError(path, position=place(pair), column="candidates.text", value=None, expected=expected)
    rows = pc.index_in(references.filter(to_arrow(is_shared)), value_set=answers.answer_ids)
    if rows.null_count:
        pair = int(np.flatnonzero(is_shared)[to_numpy(rows.is_null())][0])
        has_text_id = text_ids is not None and text_ids[pair].is_valid
        raise InputError(
            path,
            position=place(pair),
            column="candidates.text_id" if has_text_id else "candidates.answer_id",
            value=references[pair].as_py(),
            expected=f"an answer of {location(answers.path).name}",
        )
    distinct_rows, codes = np.unique(to_numpy(rows), return_inverse=True)
    texts = answers.texts.take(to_arrow(distinct_rows))
    if not len(no_rows):
        return texts, distinct_rows, codes
    pair_answer[is_shared] = codes + len(unshared.dictionary)
    distinct = pa.concat_arrays([unshared.dictionary, texts])
    all_rows = np.concatenate([no_rows, distinct_rows])
    _, first = np.unique(pair_answer, return_index=True)
    order = np.argsort(first)
    return distinct.take(to_arrow(order)), all_rows[order], np.argsort(order)[pair_answer]


def answers_of_all(pools: Sequence[PathOrUrl]) -> Location | None:
    """The answers that pools files of one folder share; None for several folders, each with its own."""
    folders = {location(path).parent for path in pools}
    return answers_beside(pools[0]) if len(folders) == 1 else None


class PoolFiles(NamedTuple):
    """Pools on disk."""

    units: list[Unit]
    answers: str | None  # file of the answers that the pools share

    @property
    def paths(self) -> list[str]:
        """The distinct paths of the pools files."""
        return list(dict.fromkeys(unit.path for unit in self.units))


class Pools(Tabular):
    """Questions, each with the candidate answers to rank.

    Pools of files stay on disk until ``frame`` is used, and are scored unit by unit.

    Args:
        candidates: ``{question id: (question, {answer id: answer})}``, or a table with one row per candidate
            and the columns question_id, question (or query), answer_id and answer (or text), as for `Run`.

    Raises:
        AptoolError: a value is invalid; the message names the row and the column.

    Example:
        >>> aptool.Pools({"q1": ("who wrote it?", {"a": "Nobody knows.", "b": "She did."})})
        Pools(1 question, 2 candidates)
        >>> rows = [{"qid": "q1", "query": "who wrote it?", "docno": "b", "text": "She did."}]
        >>> aptool.Pools(rows).to_dict()
        {'q1': ('who wrote it?', {'b': 'She did.'})}
    """

    def __init__(self, candidates: Table) -> None:
        self._files: PoolFiles | None = None
        self._frame: pl.DataFrame | None = read_frame("pools", candidates, _COLUMNS)

    @classmethod
    def load(cls, path: PathLike | Iterable[PathLike], *, answers: PathLike | None = None) -> "Pools":
        """Open pools files (``schemas/pools.schema.json``); texts are read when needed.

        Args:
            path: a file, folder, glob or URL, or several of them.
            answers: file of the answers that the pools share. Default: ``answers.parquet`` next to the pools,
                if it exists.

        Example:
            >>> pools = aptool.Pools.load("data/wikiqa/dev.pools.parquet")
            >>> len(pools.to_dict())
            20
        """
        files = expand(check_paths("path", path), ".pools.parquet")
        shared = answers_of_all(files) if answers is None else check_path("answers", answers)
        pools = cls.__new__(cls)
        pools._files = PoolFiles(list_units(files), None if shared is None else str(shared))
        pools._frame = None
        return pools

    @property
    def frame(self) -> pl.DataFrame:
        """The pools as a polars frame, read from the files at the first use.

        One row per candidate, in the order of the pools: question_id, question, answer_id, answer (all str).
        """
        if self._frame is None:
            frames = []
            for batch in self.batches():
                questions = pl.Series(batch.questions).gather(batch.pair_question)
                answers = pl.Series(batch.answers).gather(batch.pair_answer)
                frames.append(batch.pairs().with_columns(question=questions, answer=answers))
            self._frame = pl.concat(frames).select(_COLUMNS)
        return self._frame

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return ``frame``: question_id, question, answer_id, answer (all str), one row per candidate.

        Example:
            >>> pools = aptool.Pools({"q1": ("who wrote it?", {"b": "She did."})})
            >>> pools.to_polars().rows()
            [('q1', 'who wrote it?', 'b', 'She did.')]
        """
        return self.frame

    def to_dict(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Convert to ``{question id: (question, {answer id: answer})}``, in the order of the pools.

        Example:
            >>> aptool.Pools({"q1": ["who wrote it?", {"b": "She did."}]}).to_dict()
            {'q1': ('who wrote it?', {'b': 'She did.'})}
        """
        result: dict[str, tuple[str, dict[str, str]]] = {}
        for question_id, question, answer_id, answer in self.frame.iter_rows():
            result.setdefault(question_id, (question, {}))[1][answer_id] = answer
        return result

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write one pools file with all texts, atomically.

        Args:
            path: a file name that ends in ``.pools.parquet``.
            overwrite: replace an existing file.

        Example:
            >>> pools = aptool.Pools({"q1": ("who wrote it?", {"b": "She did."})})
            >>> pools.save("mine.pools.parquet")
            >>> aptool.Pools.load("mine.pools.parquet").to_dict() == pools.to_dict()
            True
        """
        file = check_path("path", path)
        if self._files is not None:
            check_apart(file, self._files.paths)
        check_output(file, overwrite=overwrite)
        pools = self.frame.group_by("question_id", "question", maintain_order=True).agg("answer_id", "answer")
        records = map(PoolRecord._make, pools.iter_rows())
        with output_file(file) as temporary:
            write_tables(temporary, arrow_schema("pools"), pool_tables(records))

    @contextmanager
    def on_disk(self) -> Iterator[PoolFiles]:
        """The files of the pools; pools in memory are written to a temporary file."""
        if self._files is not None:
            yield self._files
            return
        with tempfile.TemporaryDirectory(prefix="aptool-") as folder:
            path = Path(folder) / "pools.parquet"
            self.save(path)
            yield PoolFiles(list_units([path]), None)

    def batches(self) -> Iterator[PoolBatch]:
        """Read the pools, one unit of work at a time."""
        with self.on_disk() as files:
            shared = read_answers(files.answers) if files.answers is not None else None
            for unit in files.units:
                yield read_pools(unit, shared)

    def __repr__(self) -> str:
        if self._frame is None:
            assert self._files is not None
            return f"Pools({', '.join(self._files.paths)})"
        questions = self._frame["question_id"].n_unique()
        return f"Pools({counted(questions, 'question')}, {counted(self._frame.height, 'candidate')})"

    @override
    def _repr_html_(self) -> str:
        # The rows of files stay on disk.
        return escape(repr(self)) if self._frame is None else super()._repr_html_()


AnyPools: TypeAlias = Pools | PathLike | Iterable[PathLike] | Table


def as_pools(pools: Any, answers: PathLike | None = None) -> Pools:
    """Convert an argument to pools: ``Pools``, files or a table; ``answers`` is that of `Pools.load`."""
    if not isinstance(pools, Pools):
        if isinstance(pools, Iterable) and not (
            is_path(pools) or is_table(pools) or isinstance(pools, Mapping)
        ):
            pools = list(pools)
        if is_path(pools) or (isinstance(pools, list) and (not pools or is_path(pools[0]))):
            return Pools.load(pools, answers=answers)
        pools = Pools(pools)
    if answers is not None:
        raise UsageError("answers: expected None with Pools; pass the file to Pools.load")
    return pools
