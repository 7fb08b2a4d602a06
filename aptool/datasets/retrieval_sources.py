"""Readers of retrieval data sets: BEIR, MS MARCO passage ranking, ir_datasets, and any run with its corpus.

Each reader returns a corpus, queries and judgements, and a first-stage run where there is one. BM25 retrieves
for the other splits. Queries without a judgement are left out, unless the format has one run and no splits.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from aptool.datasets.corpus import (
    Corpus,
    Entry,
    Judgement,
    file_corpus,
    judgement_frame,
    read_judgements,
    read_queries,
)
from aptool.datasets.importing import collection_name
from aptool.datasets.pairs import Conflicts, Resolution
from aptool.datasets.retrieval import RUN_SCHEMA, RetrievalCollection, Topics
from aptool.datasets.text_files import read_rows
from aptool.errors import AptoolError, InputError, UsageError, first_line
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.runs import read_run
from aptool.formats.trec import read_qrels
from aptool.version import require

# Rows held as Python objects at one time; a polars column takes a tenth of their memory.
_CHUNK = 500_000


def read_beir(
    folder: PathOrUrl, *, runs: Mapping[str, str] | None = None, conflicts: Resolution = "error"
) -> RetrievalCollection:
    """Read a data set in the layout of BEIR (Thakur et al., 2021).

    The folder has ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``, with lines of
    ``query-id<TAB>corpus-id<TAB>score`` below a header. BM25 retrieves for a split that ``runs`` lacks.
    As in BEIR's evaluation, a query that is a document of the corpus is not its own candidate.
    """
    root = location(folder)
    corpus, queries = _beir_file(root, "corpus.jsonl"), read_queries(str(_beir_file(root, "queries.jsonl")))
    qrels_folder = root / "qrels"
    files = (
        [file for file in qrels_folder.iterdir() if file.suffix == ".tsv"] if qrels_folder.is_dir() else []
    )
    if not files:
        raise InputError(qrels_folder, problem="no judgements", expected="SPLIT.tsv, such as test.tsv")
    _check_runs(runs, sorted(file.stem for file in files))
    splits: dict[str, Topics] = {}
    for file in sorted(files):
        resolved = Conflicts(conflicts)
        qrels = judgement_frame(str(file), read_judgements(str(file)), resolved)
        judged = qrels["question_id"].unique(maintain_order=True)
        texts = {query: queries[query] for query in judged if query in queries}
        run = (runs or {}).get(file.stem)
        frame = read_run(run).frame if run is not None else None
        splits[file.stem] = Topics(str(file), texts, qrels, frame, str(run), resolved)
    return RetrievalCollection(
        collection_name(folder),
        "BEIR, github.com/beir-cellar/beir",
        file_corpus(str(corpus)),
        splits,
        exclude_same_id=True,
    )


def _check_runs(runs: Mapping[str, str] | None, splits: Iterable[str]) -> None:
    """Check that each run is for one of the imported splits."""
    for split, run in (runs or {}).items():
        if split not in splits:
            raise InputError(
                run, problem=f"a run for split {split!r}", expected=f"one of {', '.join(splits)}"
            )


def _beir_file(root: Location, name: str) -> Location:
    for candidate in (root / name, root / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise InputError(root / name, problem="file not found", expected="a folder in the layout of BEIR")


def read_msmarco(
    collection: str | Path,
    *,
    queries: Mapping[str, str],
    qrels: Mapping[str, str],
    top: Mapping[str, str],
    conflicts: Resolution = "error",
) -> RetrievalCollection:
    """Read MS MARCO passage ranking (Bajaj et al., 2016).

    ``collection`` has lines of ``pid<TAB>passage``; each split has ``queries.SPLIT.tsv``, ``qrels.SPLIT.tsv``
    and in ``top`` a first stage in one of the formats of `read_top`, or BM25 retrieves.
    """
    for split in {**queries, **qrels, **top}:
        if split not in queries or split not in qrels:
            raise UsageError(f"split {split!r}: expected it in --queries and in --qrels")
    splits: dict[str, Topics] = {}
    for split, path in queries.items():
        resolved = Conflicts(conflicts)
        judgements = judgement_frame(qrels[split], read_judgements(qrels[split]), resolved)
        run = read_top(top[split]) if split in top else None
        splits[split] = Topics(path, read_queries(path), judgements, run, str(top.get(split)), resolved)
    source = "MS MARCO passage ranking, microsoft.github.io/msmarco"
    return RetrievalCollection("msmarco", source, file_corpus(collection), splits)


def read_pyserini(run: str, *, corpus: str, queries: str, qrels: str, split: str) -> RetrievalCollection:
    """Read a run in one of the formats of `read_top`, with its corpus, queries and TREC qrels."""
    texts, judgements, frame = read_queries(queries), read_qrels(qrels), read_top(run)
    topics = Topics(queries, texts, judgements, frame, run, keeps_unjudged=True)
    source = f"{Path(run).name} over {corpus}"
    return RetrievalCollection(None, source, file_corpus(corpus), {split: topics})


def read_top(path: str | Path) -> pl.DataFrame:
    """Read a first stage: question_id, answer_id, score, higher is better.

    The file is a run in TREC's format, MS MARCO's ``qid<TAB>pid<TAB>rank``, or its ``top1000``
    (``qid<TAB>pid<TAB>query<TAB>passage``). The candidates of ``top1000`` are unordered and all have score 0.
    """
    frames: list[pl.DataFrame] = []
    rows: list[tuple[str, str, float]] = []
    for number, line in read_rows(path):
        if len(rows) == _CHUNK:
            frames.append(pl.DataFrame(rows, schema=RUN_SCHEMA, orient="row"))
            rows.clear()
        fields = line.split("\t")
        if len(fields) == 4:
            rows.append((fields[0], fields[1], 0.0))
        elif len(fields) == 3 and fields[2].strip().isdecimal():
            rows.append((fields[0], fields[1], -float(fields[2])))
        elif len(line.split()) == 6 or line.lstrip().startswith("{"):
            return read_run(path).frame
        else:
            expected = "qid<TAB>pid<TAB>query<TAB>passage, qid<TAB>pid<TAB>rank, or a TREC run"
            raise InputError(
                path, position=f"line {number}", problem=f"{len(fields)} fields", expected=expected
            )
    frame = pl.concat([*frames, pl.DataFrame(rows, schema=RUN_SCHEMA, orient="row")])
    if frame.is_empty():
        raise InputError(path, problem="no line", expected="a first stage")
    return frame.unique(["question_id", "answer_id"], keep="first", maintain_order=True)


def load_ir_dataset(name: str) -> Any:
    """Load a data set of the ir_datasets catalogue (MacAvaney et al., 2021)."""
    ir_datasets = require("ir_datasets", purpose=f"ir-datasets {name}", extra="ir-datasets")
    try:
        return ir_datasets.load(name)
    except KeyError as error:
        expected = "a data set of ir-datasets.com, such as 'beir/scifact/test'"
        raise UsageError(f"{name!r}: expected {expected}") from error


def read_ir_datasets(
    datasets: Mapping[str, Any],
    *,
    name: str,
    runs: Mapping[str, str] | None = None,
    conflicts: Resolution = "error",
) -> RetrievalCollection:
    """Read data sets of ir_datasets, one per split, over one corpus, which is that of the first one.

    For a split without a file in ``runs``, the data set's scored documents are the run.
    """
    _check_runs(runs, datasets)
    topics: dict[str, Topics] = {}
    for split, dataset in datasets.items():
        for part in ("docs", "queries", "qrels"):
            if not getattr(dataset, f"has_{part}")():
                expected = "documents, queries and qrels"
                raise AptoolError(f"{name}: split {split!r}: no {part}; expected {expected}")
        path, resolved = f"{name}: {split}", Conflicts(conflicts)
        with _one_line_errors(path):
            queries = {query.query_id: query.default_text() for query in dataset.queries_iter()}
            judgements = (
                Judgement(f"judgement {number}", row.query_id, row.doc_id, int(row.relevance))
                for number, row in enumerate(dataset.qrels_iter(), 1)
            )
            qrels = judgement_frame(path, judgements, resolved)
        run = (runs or {}).get(split)
        frame = read_run(run).frame if run is not None else None
        if frame is None and dataset.has_scoreddocs():
            with _one_line_errors(path):
                scored = [(row.query_id, row.doc_id, float(row.score)) for row in dataset.scoreddocs_iter()]
            frame = pl.DataFrame(scored, schema=RUN_SCHEMA, orient="row")
        run_path = run or f"{name}: scored documents"
        topics[split] = Topics(path, queries, qrels, frame, run_path, resolved)
    path = f"{name}: documents"
    corpus = Corpus(path, partial(_documents, path, next(iter(datasets.values()))))
    return RetrievalCollection(name, f"ir_datasets: {name}", corpus, topics)


def _documents(path: str, dataset: Any) -> Iterator[Entry]:
    with _one_line_errors(path):
        for number, document in enumerate(dataset.docs_iter()):
            yield Entry(path, f"document {number}", document.doc_id, document.default_text())


@contextmanager
def _one_line_errors(path: str) -> Iterator[None]:
    """Raise any failure of a download or file of the catalogue as an `InputError`."""
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:  # each data set of ir_datasets raises its own exceptions
        raise InputError(path, problem=first_line(error), expected="a readable data set") from error
