"""The public class `Collection`: pools and qrels of several splits in a folder."""

import atexit
import logging
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from aptool.datasets.import_options import ColumnNames, ImportPolicies, Quotes
from aptool.datasets.importing import check_split, collection_name
from aptool.datasets.pairs import Empty, Resolution
from aptool.datasets.rows import import_rows
from aptool.errors import InputError
from aptool.formats import collection as formats
from aptool.formats.location import Location
from aptool.formats.outputs import Kind, adopt
from aptool.library.arguments import PathLike, check_list, check_path, check_text, is_path
from aptool.library.frames import TABLE, Table, is_columns, is_table, read_rows
from aptool.library.pools import Pools
from aptool.library.run import Qrels

Rows: TypeAlias = PathLike | Table

_EXPECTED = f"a path, {TABLE}, or a dict of these by split"


logger = logging.getLogger(__name__)


class Collection:
    """A collection: questions with candidate answers and judgements, in splits such as train, dev and test.

    A collection is a folder that ``aptool data import`` or `Collection.from_rows` writes.

    Args:
        path: folder of the collection.

    Example:
        >>> data = aptool.Collection("data/wikiqa")
        >>> data.splits
        ['train', 'dev', 'test']
        >>> data.pools("dev").frame.columns
        ['question_id', 'question', 'answer_id', 'answer']
    """

    def __init__(self, path: PathLike) -> None:
        self.opened = formats.CollectionFiles(
            check_path("path", path, "the folder of a collection; Collection.from_rows imports tables")
        )

    @classmethod
    def from_rows(
        cls,
        rows: "Rows | Mapping[str, Rows]",
        output: PathLike | None = None,
        *,
        overwrite: bool = False,
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
        quotes: Quotes | None = None,
        encoding: str | None = None,
        sheet: str | None = None,
        field: str | None = None,
        relevant: str | Sequence[str] | None = None,
        empty: Empty = "drop",
        conflicts: Resolution = "error",
        questions: str = "all",
        unlabelled: str | Sequence[str] = (),
        add_candidates: str | int | None = None,
        seed: int = 0,
        split_ratio: str | None = None,
        strip_html: bool = False,
    ) -> "Collection":
        """Import rows into a new collection, as ``aptool data import`` does.

        A row is a question, an answer and a label; or a question and a list of candidates. Errors name
        arguments as options of the command, such as ``--relevant`` for ``relevant``.

        Args:
            rows: a table as for `Run`, or a file (.csv, .tsv, .xlsx, .jsonl, .json, .parquet), for the split
                ``train``; or a dict of these by split.
            output: folder of the collection. Default: a temporary folder, deleted when Python exits.
            overwrite: replace an existing collection even if aptool did not write it, or it has changed.
            name: name of the collection, one word. Default: the name of the folder, or ``rows``.
            question: column of the question text.
            answer: column of the answer text. Default: ``answer``, or ``text`` in a list of candidates.
            label: column of the relevance: an integer, relevant from 1 on.
            question_id: column of the question id. Default: distinct questions are numbered; all rows with a
                question's text belong to one question.
            answer_id: column of the answer id. Default: distinct answers of a question are numbered.
            candidates: column of the list of candidates.
            positions: column of the positions, from 0, of the relevant candidates in a list of texts.
            columns: column names of a table. Default: its header.
            delimiter: column separator of a table in text. Default: recognised from the first lines.
            quotes: quotation marks in a table are text (``literal``) or enclose fields (``csv``). Default:
                recognised; ``literal`` if both are possible and the delimiter is a tab.
            encoding: encoding of a table, such as ``cp1252``. Default: recognised.
            sheet: sheet of an Excel workbook, which needs the extra ``excel``. Default: the first.
            field: keys, joined by dots, of the list of rows in a JSON document. Default: the document itself.
            relevant: labels that count as relevant, such as ``Good``. Default: labels are integers.
            empty: candidates without text: ``drop``, ``keep`` or ``refuse``.
            conflicts: pairs with several labels: ``error``, or keep the ``max`` or the ``min``.
            questions: keep ``all`` questions, those with a relevant answer (``answerable``), or those with a
                relevant and a non-relevant answer (``both-labels``).
            unlabelled: splits without labels, which get pools but no qrels.
            add_candidates: answers of other questions of the split that become candidates of each question:
                ``"all"``, a number drawn at random, or the best by BM25 (``"bm25:50"``). Without a label
                column, each row is a question with a relevant answer.
            seed: random seed of the draws.
            split_ratio: divide ``rows`` by question into train, dev and test, such as ``"80:10:10"``.
            strip_html: remove the tags of HTML from questions and answers.

        Example:
            >>> rows = [
            ...     {"question": "What is a deductible?", "answer": "Your own share.", "label": "Good"},
            ...     {"question": "What is a deductible?", "answer": "On the first.", "label": "Bad"},
            ... ]
            >>> data = aptool.Collection.from_rows({"dev": rows}, relevant=["Good"])
            >>> data.qrels("dev").to_dict()
            {'dev-Q0': {'dev-Q0-0': 1, 'dev-Q0-1': 0}}
        """
        by_split = rows if isinstance(rows, Mapping) and not is_columns(rows) else {"train": rows}
        if not by_split:
            raise InputError("rows", value=rows, expected=_EXPECTED)
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
            encoding=encoding,
            sheet=sheet,
        )
        policies = ImportPolicies(
            questions=questions,
            conflicts=conflicts,
            empty=empty,
            relevant=None if relevant is None else _texts(relevant),
            unlabelled=_texts(unlabelled),
            add_candidates=None if add_candidates is None else str(add_candidates),
            seed=seed,
            split_ratio=split_ratio,
            strip_html=strip_html,
        )
        if output is None:
            output, name = tempfile.mkdtemp(prefix="aptool-"), name or "rows"
            # Pools of the collection may read its files until the end of the process.
            atexit.register(shutil.rmtree, output, ignore_errors=True)
        path = check_path("output", output)
        if overwrite:
            adopt(path, Kind.COLLECTION)
        import_rows(path, splits, names, policies, name=name or collection_name(path))
        if question_id is None:
            logger.info("questions with the same text are one question (see question_id)")
        return cls(path)

    @property
    def path(self) -> Location:
        """The folder of the collection."""
        return self.opened.path

    @property
    def name(self) -> str:
        """The name of the collection, one word."""
        return self.opened.name

    @property
    def splits(self) -> list[str]:
        """The names of the splits, such as train, dev and test."""
        return self.opened.splits

    def pools(self, split: str) -> Pools:
        """Open the pools of a split; texts are read when needed.

        Args:
            split: name of the split.

        Example:
            >>> data = aptool.Collection("data/wikiqa")
            >>> data.pools("dev").frame["question_id"].n_unique()
            20
        """
        path = self.opened.pools(check_text("split", split, expected="the name of a split (str)"))
        return Pools.load(path, answers=self.opened.answers)

    def qrels(self, split: str) -> Qrels:
        """Read the judgements of a split.

        Args:
            split: name of the split.

        Raises:
            AptoolError: the split has no labels.

        Example:
            >>> aptool.Collection("data/wikiqa").qrels("dev")
            Qrels(20 questions, 20 judgements)
        """
        return Qrels.load(self.opened.qrels(check_text("split", split, expected="the name of a split (str)")))

    def __repr__(self) -> str:
        return f"Collection({str(self.path)!r}: {', '.join(self.splits)})"


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    """One text or several, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def _content(split: str, content: object) -> str | Iterable[Mapping[str, Any]]:
    """The rows of a split: the path of a file, or dicts."""
    name = f"rows of {split!r}"
    if is_path(content):
        return check_path(name, content)
    rows = read_rows(name, content, _EXPECTED)
    return rows if is_table(content) else check_list(name, list(rows), _EXPECTED)
