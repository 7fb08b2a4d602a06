"""The public class `Collection`: pools and qrels of several splits in a folder."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from aptool.arguments import PathLike, check_path
from aptool.data.frames import Table
from aptool.data.pools import ANSWERS, PoolBatch, Pools, list_units, read_answers, read_pools
from aptool.data.runs import Qrels
from aptool.data.writing import MANIFEST, POOLS_SUFFIX, QRELS_SUFFIX, read_manifest
from aptool.errors import InputError
from aptool.files import sha256_of, stat
from aptool.paths import Location, location


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

    def __init__(self, path: PathLike | Location) -> None:
        self.path = location(
            check_path("path", path, "the folder of a collection; Collection.from_rows imports tables")
        )
        self.manifest: dict[str, Any] = read_manifest(self.path)

    @classmethod
    def from_rows(
        cls,
        rows: "PathLike | Table | Mapping[str, PathLike | Table]",
        output: PathLike,
        *,
        columns: Mapping[str, str] | None = None,
        questions: str = "all",
        unlabelled: str = "refuse",
        add_candidates: str | None = None,
        split_ratio: str | None = None,
        separator: str | None = None,
        encoding: str | None = None,
        overwrite: bool = False,
    ) -> "Collection":
        """Import rows into a new collection, as ``aptool data import table`` does.

        A row is a question, an answer and a label. Errors name arguments as options of the command, such as
        ``--question-id`` for the column ``question_id``.

        Args:
            rows: a table as for `Run`, or a file, a folder or a glob of files (.csv, .tsv, .jsonl, .parquet,
                .xlsx), for the split ``train``; or a dict of these by split.
            output: folder of the collection.
            columns: the names of your columns, such as ``{"question": "query", "answer_id": "docno"}``:

                - ``question``, ``answer``: the texts
                - ``label``: the relevance, a whole number, relevant from 1 on, or a boolean
                - ``question_id``. Default: distinct questions are numbered; all rows with a question's text
                  belong to one question
                - ``answer_id``. Default: distinct answers of a question are numbered
            questions: keep ``all`` questions, those with a relevant answer (``answerable``), or those with a
                relevant and a non-relevant answer (``both-labels``).
            unlabelled: ``refuse`` rows without a label, or ``drop`` and count them.
            add_candidates: ``"all"``: all answers of the split become candidates of each question. Without a
                label column, each row is a question with a relevant answer.
            split_ratio: divide ``rows`` by question into train, dev and test, such as ``"80:10:10"``.
            separator: column separator of tables in text. Default: a tab in .tsv files, a comma in .csv.
            encoding: encoding of text, such as ``cp1252``. Default: UTF-8.
            overwrite: replace an existing collection.

        Example:
            >>> rows = [
            ...     {"question": "What is a deductible?", "answer": "Your own share.", "label": True},
            ...     {"question": "What is a deductible?", "answer": "On the first.", "label": False},
            ... ]
            >>> data = aptool.Collection.from_rows({"dev": rows}, "mine")
            >>> data.qrels("dev").to_dict()
            {'dev-Q0': {'dev-Q0-0': 1, 'dev-Q0-1': 0}}
        """
        # Scoring, training and evaluation open collections without importing any.
        from aptool.data.table import import_table

        import_table(
            rows,
            output,
            columns,
            questions=questions,
            unlabelled=unlabelled,
            add_candidates=add_candidates,
            split_ratio=split_ratio,
            separator=separator,
            encoding=encoding,
            overwrite=overwrite,
        )
        return cls(output)

    @property
    def name(self) -> str:
        """The name of the collection, one word."""
        return str(self.manifest["name"])

    @property
    def splits(self) -> list[str]:
        """The names of the splits, such as train, dev and test."""
        return list(self.manifest["splits"])

    def pools(self, split: str) -> Pools:
        """Open the pools of a split; texts are read when needed.

        Args:
            split: name of the split.

        Example:
            >>> data = aptool.Collection("data/wikiqa")
            >>> data.pools("dev").frame["question_id"].n_unique()
            20
        """
        return Pools.load(self.pools_file(split), answers=self.answers)

    def qrels(self, split: str) -> Qrels:
        """Read the judgements of a split.

        Args:
            split: name of the split.

        Example:
            >>> aptool.Collection("data/wikiqa").qrels("dev")
            Qrels(20 questions, 20 judgements)
        """
        return Qrels.load(self.qrels_file(split))

    @property
    def fingerprint(self) -> str:
        """A hash of the contents of all files."""
        files = json.dumps(self.manifest["files"], sort_keys=True)
        return hashlib.sha256(files.encode()).hexdigest()[:16]

    def pools_file(self, split: str) -> Location:
        """The pools file of a split."""
        return self._file(split, POOLS_SUFFIX)

    def qrels_file(self, split: str) -> Location:
        """The qrels file of a split."""
        return self._file(split, QRELS_SUFFIX)

    @property
    def answers(self) -> Location | None:
        """The file of shared answers, if the collection has one."""
        return self._verified(ANSWERS) if (self.path / ANSWERS).is_file() else None

    def batches(self, split: str) -> Iterator[PoolBatch]:
        """Read the pools of a split, one row group at a time."""
        pools, shared = self.pools_file(split), self.answers
        answers = read_answers(shared) if shared is not None else None
        for unit in list_units([pools]):
            yield read_pools(unit, answers)

    def _file(self, split: str, suffix: str) -> Location:
        if split not in self.splits:
            raise InputError(
                self.path, problem=f"split {split!r}", expected=f"one of {', '.join(self.splits)}"
            )
        return self._verified(f"{split}{suffix}")

    def _verified(self, name: str) -> Location:
        if isinstance(self.path, Path):  # an object would be downloaded, and its pages have checksums
            self.verify(name)
        return self.path / name

    def verify(self, name: str) -> None:
        """Raise if a file is missing or its hash differs from the manifest."""
        file, digest = self.path / name, self.manifest["files"].get(name)
        if not file.is_file():
            raise InputError(file, problem="file not found", expected=f"the file that {MANIFEST} lists")
        path = file.absolute() if isinstance(file, Path) else file
        actual = _cached_sha256(path, stat(path).version)
        if digest is not None and actual != digest:
            expected = f"{digest[:12]}…, as {MANIFEST} has it"
            raise InputError(file, column="sha256", value=f"{actual[:12]}…", expected=expected)

    def __repr__(self) -> str:
        return f"Collection({str(self.path)!r}: {', '.join(self.splits)})"


@lru_cache(maxsize=256)
def _cached_sha256(file: Location, version: str) -> str:
    return sha256_of(file)
