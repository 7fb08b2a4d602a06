"""Collections: pools and qrels of several splits in a folder."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import polars as pl

from aptool.datasets.column_names import ColumnNames
from aptool.datasets.importing import check_split, collection_name
from aptool.datasets.policies import Empty, ImportPolicies, Resolution
from aptool.datasets.rows import import_rows
from aptool.errors import InputError
from aptool.formats import collection as formats
from aptool.formats.location import Location, ObjectPath
from aptool.library.arguments import PathLike, check_list, check_path, check_text
from aptool.library.pools import Pools
from aptool.library.qrels import Qrels

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = "PathLike | pl.DataFrame | pd.DataFrame | Iterable[Mapping[str, Any]]"

_FORM = "a path, a data frame or a list of dicts, or a dict of these by split"


class Collection:
    """A collection on disk, as ``aptool data import`` writes it."""

    def __init__(self, path: PathLike) -> None:
        """Opens the collection in the folder ``path``.

        Raises:
            AptoolError: there is none, or its manifest is not one.
        """
        self.opened = formats.CollectionFiles(
            check_path("path", path, "the folder of a collection (str or os.PathLike)")
        )

    @classmethod
    def from_rows(
        cls,
        rows: "Rows | Mapping[str, Rows]",
        output: PathLike | None = None,
        *,
        name: str | None = None,
        question: str = "question",
        answer: str | None = None,
        label: str = "label",
        question_id: str | None = None,
        answer_id: str | None = None,
        candidates: str = "candidates",
        positions: str = "relevant",
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        quotes: Literal["literal", "csv"] | None = None,
        field: str | None = None,
        relevant: str | Sequence[str] | None = None,
        empty: Empty = "drop",
        conflicts: Resolution = "error",
        questions: str = "all",
        unlabelled: str | Sequence[str] = (),
    ) -> "Collection":
        """Imports rows as ``aptool data import`` does.

        A row is a pair of a question and an answer with a label, or a question with a list of candidates.
        An error names an option as the command has it: ``--relevant`` is the argument ``relevant``.

        Args:
            rows: a polars or pandas frame, an iterable of dicts, or a file (.csv, .tsv, .jsonl, .json,
                .parquet), which become the split ``train``; or a dict of these by split.
            output: folder of the collection; None: a temporary folder, deleted when Python exits.
            name: of the collection, one word; None: that of its folder, or ``rows``.
            question: column of the question's text.
            answer: column of the candidate's text; None: ``answer``, and in a list of candidates ``text``.
            label: column of the relevance: 0, or 1 and more.
            question_id: column of the question's id; None: a question is identified by its text.
            answer_id: column of the candidate's id; None: an answer is identified by its text.
            candidates: column of the list of candidates.
            positions: column of the positions, from 0, of the relevant candidates, where these are texts.
            columns: names of the columns of a table without a header line.
            delimiter: column separator of a table.
            quotes: whether quotation marks in a table are text (``literal``) or enclose fields (``csv``).
            field: keys, joined by dots, that lead to the list of objects in a JSON document.
            relevant: labels that count as relevant, all others do not; None: labels are whole numbers.
            empty: candidates without text: ``drop`` them, ``keep`` or ``refuse``.
            conflicts: a pair with different labels: ``error``, or keep the ``max`` or the ``min``.
            questions: ``all``, ``answerable`` or ``both-labels``.
            unlabelled: splits without labels, which get pools and no qrels.

        Raises:
            AptoolError: naming the row and the column at fault.

        Example:
            >>> import aptool
            >>> rows = [
            ...     {"question": "What is a deductible?", "answer": "Your own share.", "label": "Good"},
            ...     {"question": "What is a deductible?", "answer": "On the first.", "label": "Bad"},
            ... ]
            >>> data = aptool.Collection.from_rows({"dev": rows}, relevant=["Good"])
            >>> data.qrels("dev").to_dict()
            {'dev-Q0': {'dev-Q0-0': 1, 'dev-Q0-1': 0}}
        """
        by_split = rows if isinstance(rows, Mapping) else {"train": rows}
        if not by_split:
            raise InputError("rows", value=rows, expected=_FORM)
        splits = {check_split(split): _content(split, content) for split, content in by_split.items()}
        names = ColumnNames(
            question=check_text("question", question),
            answer=answer,
            label=check_text("label", label),
            question_id=question_id,
            answer_id=answer_id,
            candidates=check_text("candidates", candidates),
            positions=check_text("positions", positions),
            field=field,
            header=tuple(columns) if columns is not None else None,
            delimiter=delimiter,
            quotes=quotes,
        )
        policies = ImportPolicies(
            questions=questions,
            conflicts=conflicts,
            empty=empty,
            relevant=None if relevant is None else _texts(relevant),
            unlabelled=_texts(unlabelled),
        )
        if output is None:
            output, name = tempfile.mkdtemp(prefix="aptool-"), name or "rows"
            # Not earlier: pools taken from the collection read its files when they are needed.
            atexit.register(shutil.rmtree, output, ignore_errors=True)
        path = check_path("output", output)
        import_rows(path, splits, names, policies, name=name or collection_name(path))
        return cls(path)

    @property
    def path(self) -> Location:
        """Its folder."""
        return self.opened.path

    @property
    def name(self) -> str:
        """Its name, one word."""
        return self.opened.name

    @property
    def splits(self) -> list[str]:
        """The names of its splits, such as train, dev and test."""
        return self.opened.splits

    def pools(self, split: str) -> Pools:
        """The pools of a split; their texts are read when they are needed.

        Raises:
            AptoolError: the collection has no such split, or its file is not one of pools.
        """
        path = self.opened.pools(check_text("split", split, expected="the name of a split (str)"))
        return Pools.load(path, answers=self.opened.answers)

    def qrels(self, split: str) -> Qrels:
        """The judgements of a split.

        Raises:
            AptoolError: the collection has no such split, the split has no labels, or its file is not one of
                qrels.
        """
        return Qrels.load(self.opened.qrels(check_text("split", split, expected="the name of a split (str)")))

    def __repr__(self) -> str:
        return f"Collection({str(self.path)!r}: {', '.join(self.splits)})"


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _content(split: str, content: object) -> str | Iterable[Mapping[str, Any]]:
    """One split's rows: the path of a file, or dicts."""
    if isinstance(content, str | os.PathLike | ObjectPath):
        return check_path(f"rows of {split!r}", content)
    if isinstance(content, pl.LazyFrame):
        content = content.collect()
    if isinstance(content, pl.DataFrame):
        return content.iter_rows(named=True)
    if type(content).__module__.partition(".")[0] == "pandas" and hasattr(content, "to_dict"):
        records: list[Mapping[str, Any]] = content.to_dict("records")
        return records
    rows = check_list(f"rows of {split!r}", content, _FORM)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"rows of {split!r}", place=f"row {number}", value=row, expected="a dict")
    return rows
