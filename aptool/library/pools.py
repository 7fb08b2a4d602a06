"""The public class `Pools`: questions with candidate answers, as a polars frame or as Parquet files."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import polars as pl
from typing_extensions import override

from aptool.arguments import PathLike, check_path, check_paths, is_path
from aptool.data.collection import answers_of_all
from aptool.data.frames import TABLE, Table, is_table, nested_items, read_frame
from aptool.data.pools import Answers, PoolRecord, PoolsWriter, Unit, list_units, read_answers, read_pools
from aptool.errors import InputError, UsageError, counted, shortened
from aptool.files import expand
from aptool.outputs import check_apart, check_output, output_file
from aptool.version import Tabular

_COLUMNS = ("question_id", "question", "answer_id", "answer")
_NESTED = "a dict {question id: (question, {answer id: answer})}"
_TABLE = f"{TABLE}, or {_NESTED}; Pools.load reads files"


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
        self._frame: pl.DataFrame | None = read_frame("pools", candidates, _COLUMNS, _TABLE, _rows)

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
            assert self._files is not None
            shared = read_answers(self._files.answers) if self._files.answers is not None else None
            frames = []
            for unit in self._files.units:
                batch = read_pools(unit, shared)
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
        frame = self.frame
        with output_file(file) as temporary, PoolsWriter(temporary) as writer:
            for (question_id, question), rows in frame.group_by(
                "question_id", "question", maintain_order=True
            ):
                writer.write(
                    PoolRecord(
                        str(question_id), str(question), rows["answer_id"].to_list(), rows["answer"].to_list()
                    )
                )

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

    @contextmanager
    def files(self) -> Iterator[tuple[list[str], Answers | None]]:
        """The paths of the files of ``on_disk``, and the shared answers."""
        with self.on_disk() as files:
            yield files.paths, read_answers(files.answers) if files.answers is not None else None

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


def _rows(pools: Mapping[Any, Any]) -> Iterator[tuple[object, object, object, object]]:
    """The rows of a nested dict: question_id, question, answer_id, answer."""
    for question_id, pool in nested_items("pools", pools, None, _NESTED):
        position = f"question {shortened(question_id)}"
        if not isinstance(pool, tuple | list) or len(pool) != 2:
            raise InputError("pools", position=position, value=pool, expected=_NESTED)
        for answer_id, answer in nested_items("pools", pool[1], position, "a dict {answer id: answer}"):
            yield question_id, pool[0], answer_id, answer
