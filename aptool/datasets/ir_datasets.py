"""Data sets of the ``ir_datasets`` catalogue (MacAvaney et al., 2021) with documents, queries and qrels.

Its scored documents are the first stage where it has them; else a run is given, or BM25 retrieves.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from aptool.datasets.corpus import Entry, Judgement, judgement_frame
from aptool.datasets.policies import Conflicts, Resolution
from aptool.datasets.retrieval import PoolOptions, Topics, write_retrieval_collection
from aptool.errors import AptoolError, InputError, UsageError, first_line
from aptool.formats.collection import CollectionFiles
from aptool.formats.trec import read_run
from aptool.version import install_command

RUN = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}


def load(name: str) -> Any:
    """A data set of the catalogue.

    Raises:
        AptoolError: the library is not installed.
        UsageError: it has no data set of that name.
    """
    try:
        import ir_datasets
    except ImportError as error:
        raise AptoolError(
            f"ir-datasets {name} needs the package ir_datasets: {install_command('ir-datasets')}"
        ) from error
    try:
        return ir_datasets.load(name)
    except KeyError as error:
        raise UsageError(
            f"{name!r}: expected a data set of ir-datasets.com, such as 'beir/scifact/test'"
        ) from error


def build(
    out: str | Path,
    datasets: Mapping[str, Any],
    *,
    name: str,
    runs: Mapping[str, str] | None = None,
    options: PoolOptions | None = None,
    questions: str = "all",
    conflicts: Resolution = "error",
) -> CollectionFiles:
    """Imports data sets, one for each split, over one corpus.

    Args:
        out: the collection's folder.
        datasets: split -> data set (anything with ir_datasets' iterators); the documents are the first one's.
        name: of the collection.
        runs: split -> a first-stage run file.
        options: how pools are cut.
        questions: which questions are kept; see `CollectionWriter`.
        conflicts: what becomes of a pair with different labels; see `Conflicts`.

    Raises:
        AptoolError: a data set lacks documents, queries or judgements, or cannot be read.
    """
    topics: dict[str, Topics] = {}
    for split, dataset in datasets.items():
        for part in ("docs", "queries", "qrels"):
            if not getattr(dataset, f"has_{part}")():
                raise AptoolError(
                    f"{name}: split {split!r}: no {part}; expected documents, queries and qrels"
                )
        with _readable(name, split):
            queries = {query.query_id: query.default_text() for query in dataset.queries_iter()}
            judged = (
                Judgement(f"judgement {number}", one.query_id, one.doc_id, int(one.relevance))
                for number, one in enumerate(dataset.qrels_iter(), 1)
            )
            resolved = Conflicts(conflicts)
            qrels = judgement_frame(f"{name}: {split}", judged, resolved)
        asked = set(qrels["question_id"])
        run = (runs or {}).get(split)
        frame = read_run(run).frame if run is not None else None
        if frame is None and dataset.has_scoreddocs():
            with _readable(name, split):
                scored = [(one.query_id, one.doc_id, float(one.score)) for one in dataset.scoreddocs_iter()]
            frame = pl.DataFrame(scored, schema=RUN, orient="row")
        kept = {query: text for query, text in queries.items() if query in asked}
        topics[split] = Topics(
            f"{name}: {split}", kept, qrels, frame, run or f"{name}: scored documents", resolved
        )
    first = next(iter(datasets.values()))
    return write_retrieval_collection(
        out,
        name=name,
        source=f"ir_datasets: {name}",
        corpus=Documents(name, first),
        splits=topics,
        options=options or PoolOptions(),
        questions=questions,
    )


class Documents:
    """The documents of a data set, streamed anew each time that they are asked for."""

    def __init__(self, name: str, dataset: Any) -> None:
        self._name = name
        self._dataset = dataset

    def __str__(self) -> str:
        return f"{self._name}: documents"

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """See ``Corpus.entries``."""
        with _readable(self._name, "documents"):
            for number, document in enumerate(self._dataset.docs_iter()):
                yield str(self), Entry(f"document {number}", document.doc_id, document.default_text())


@contextmanager
def _readable(name: str, place: str) -> Iterator[None]:
    """What can go wrong with a download or a file of the catalogue, in one line."""
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:  # each of its data sets has ways of its own to fail
        raise InputError(
            f"{name}: {place}", problem=first_line(error), expected="a readable data set"
        ) from error
