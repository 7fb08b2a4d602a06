"""Importer of retrieval collections: queries, a corpus, judgements and a first-stage run become pools.

The pools are the top candidates of the run, whose texts become the shared answers of the collection. The
corpus is streamed, so that memory grows with the candidates. Queries without a judgement are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import polars as pl

from aptool.data.collection import Collection
from aptool.data.frames import check_id, id_of, read_frame, text_of
from aptool.data.runs import read_run
from aptool.data.table_files import read_json_lines, read_rows, table_files
from aptool.data.trec import QRELS_SCHEMA, rank_candidates, read_qrels
from aptool.data.writing import LabelledPool, SplitPools, collection_name, write_collection
from aptool.environment import require
from aptool.errors import AptoolError, InputError, UsageError, first_line
from aptool.files import packed_or_not, unpacked_name
from aptool.paths import PathOrUrl, location

_KEYS = ["question_id", "answer_id"]
_RUN = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}


class Entry(NamedTuple):
    """A document or a query, with the file and the position that messages name."""

    file: str
    position: str
    id: str
    text: str


class Topics(NamedTuple):
    """The queries of a split with their judgements and first-stage run."""

    path: str  # source of the split, for messages
    queries: Mapping[str, str]  # query id -> text
    qrels: pl.DataFrame  # question_id, answer_id, relevance; at least one row
    run: pl.DataFrame  # question_id, answer_id, score
    run_path: str  # source of the run, for messages


class RetrievalCollection(NamedTuple):
    """A retrieval collection; its corpus is not read yet."""

    source: str
    documents: Iterator[Entry]
    splits: Mapping[str, Topics]
    exclude_same_id: bool = False  # a query is not its own candidate, as in BEIR's evaluation


def read_files(
    corpus: str, queries: str, qrels: Mapping[str, str], runs: Mapping[str, str]
) -> RetrievalCollection:
    """Read the queries, and the qrels and the run of each split, in TREC's format or in BEIR's.

    Corpus and queries are JSON Lines of BEIR (``_id``, ``title``, ``text``), or TSV files of id and text; a
    corpus may be several files. The text of a document is its title, a space and its body, as in BEIR's code.
    """
    for split in {**qrels, **runs}:
        if split not in qrels or split not in runs:
            raise UsageError(f"split {split!r}: expected it in --qrels and in --run")
    texts = _read_queries(queries)
    splits: dict[str, Topics] = {}
    for split, path in qrels.items():
        splits[split] = Topics(path, texts, read_qrels(path), read_run(runs[split]).frame, runs[split])
    return RetrievalCollection(corpus, _entries(corpus), splits)


def read_beir(folder: PathOrUrl, runs: Mapping[str, str]) -> RetrievalCollection:
    """Read a folder in the layout of BEIR (Thakur et al., 2021), for the splits that have a run.

    It has ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``.
    """
    root = location(folder)
    corpus, queries = (
        packed_or_not(root, name) or str(root / name) for name in ("corpus.jsonl", "queries.jsonl")
    )
    qrels = {split: str(root / "qrels" / f"{split}.tsv") for split in runs}
    return read_files(corpus, queries, qrels, runs)._replace(exclude_same_id=True)


def read_ir_datasets(names: Mapping[str, str], runs: Mapping[str, str]) -> RetrievalCollection:
    """Read data sets of ir_datasets (MacAvaney et al., 2021), one per split, over the corpus of the first.

    For a split without a run, the data set's scored documents are the run.
    """
    unknown = [split for split in runs if split not in names]
    if unknown:
        raise UsageError(f"--run: split {unknown[0]!r}: expected one of {', '.join(names)}")
    splits: dict[str, Topics] = {}
    datasets = {split: _load_ir_dataset(name) for split, name in names.items()}
    for split, dataset in datasets.items():
        path = names[split]
        with _one_line_errors(path):
            queries = {query.query_id: query.default_text() for query in dataset.queries_iter()}
            judged = [(row.query_id, row.doc_id, int(row.relevance)) for row in dataset.qrels_iter()]
            scored: list[tuple[str, str, float]] = []
            if split not in runs and dataset.has_scoreddocs():
                scored = [(row.query_id, row.doc_id, float(row.score)) for row in dataset.scoreddocs_iter()]
        rows = pl.DataFrame(judged, schema=QRELS_SCHEMA, orient="row").unique(maintain_order=True)
        qrels = read_frame(path, rows, tuple(QRELS_SCHEMA))
        if scored:
            rows, run_path = pl.DataFrame(scored, schema=_RUN, orient="row"), f"{path}: scored documents"
            run = read_frame(run_path, rows, tuple(_RUN))
        elif split in runs:
            run, run_path = read_run(runs[split]).frame, runs[split]
        else:
            raise UsageError(f"split {split!r}: no first-stage run; expected --run {split}=FILE")
        splits[split] = Topics(path, queries, qrels, run, run_path)
    first = next(iter(names))
    is_beir = any(name.startswith("beir/") for name in names.values())
    documents = _catalogue_documents(names[first], datasets[first])
    return RetrievalCollection(f"ir_datasets {', '.join(names.values())}", documents, splits, is_beir)


def _catalogue_documents(path: str, dataset: Any) -> Iterator[Entry]:
    with _one_line_errors(path):
        for number, document in enumerate(dataset.docs_iter()):
            yield Entry(path, f"document {number}", document.doc_id, document.default_text())


def _load_ir_dataset(name: str) -> Any:
    ir_datasets = require("ir_datasets", purpose=f"the data set {name}", extra="ir-datasets")
    try:
        dataset = ir_datasets.load(name)
    except KeyError as error:
        expected = "a data set of ir-datasets.com, such as 'beir/scifact/test'"
        raise UsageError(f"{name!r}: expected {expected}") from error
    for part in ("docs", "queries", "qrels"):
        if not getattr(dataset, f"has_{part}")():
            raise AptoolError(f"{name}: no {part}; expected documents, queries and qrels")
    return dataset


def import_retrieval(
    out: PathOrUrl,
    collection: RetrievalCollection,
    *,
    depth: int = 100,
    add_relevant: Sequence[str] = (),
    questions: str = "all",
    overwrite: bool = False,
) -> Collection:
    """Write a collection with one pool per judged query and shared answers.

    A pool has the top ``depth`` candidates of the run. The pools of the splits ``add_relevant``, for
    training, also have the relevant documents that the run missed. The manifest's ``details.first_stage``
    counts them per split.
    """
    for split in add_relevant:
        if split not in collection.splits:
            expected = f"one of the splits {', '.join(collection.splits)}"
            raise UsageError(f"--add-relevant {split}: expected {expected}")
    splits: dict[str, SplitPools] = {}
    first_stage: dict[str, dict[str, int]] = {}
    answer_ids: set[str] = set()
    for split, topics in collection.splits.items():
        _check(topics)
        run, qrels = topics.run, topics.qrels
        counts: dict[str, int] = {}
        if collection.exclude_same_id:
            others = pl.col("question_id") != pl.col("answer_id")
            excluded = run.height - run.filter(others).height
            if excluded:
                counts["candidates_with_the_id_of_their_question_excluded"] = excluded
            run, qrels = run.filter(others), qrels.filter(others)
        candidates, first_stage[split] = cut_pools(run, qrels, depth, add_relevant=split in add_relevant)
        answer_ids.update(candidates["answer_id"])
        splits[split] = SplitPools(_pools(topics, candidates), topics.path, counts)
    details = {
        "depth": depth,
        "add_relevant": list(add_relevant),
        "exclude_same_id": collection.exclude_same_id,
    }
    write_collection(
        out,
        splits,
        name=collection_name(out),
        source=collection.source,
        questions=questions,
        details={"pools": details, "first_stage": first_stage},
        answers=_texts(collection, answer_ids),
        overwrite=overwrite,
    )
    return Collection(out)


def cut_pools(
    run: pl.DataFrame, qrels: pl.DataFrame, depth: int, *, add_relevant: bool = False
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Select the candidates of each question from a run.

    Returns:
        question_id and answer_id in the order of the run; and the numbers of relevant documents:
        ``relevant`` (all), ``relevant_missed`` (not in the run down to the depth) and ``relevant_added``.
    """
    top = rank_candidates(run).filter(pl.col("rank") <= depth).select(*_KEYS, "rank")
    relevant = qrels.filter(pl.col("relevance") > 0).select(_KEYS)
    missed = relevant.join(top, on=_KEYS, how="anti")
    counts = {"relevant": relevant.height, "relevant_missed": missed.height, "relevant_added": 0}
    if add_relevant:
        counts["relevant_added"] = missed.height
        last = missed.with_columns(rank=pl.lit(depth + 1, dtype=top.schema["rank"]))
        top = pl.concat([top, last])
    return top.sort("question_id", "rank", "answer_id").select(_KEYS), counts


def _pools(topics: Topics, candidates: pl.DataFrame) -> Iterator[LabelledPool]:
    ids = dict(candidates.group_by("question_id").agg("answer_id").iter_rows())
    judged = topics.qrels.group_by("question_id").agg("answer_id", "relevance")
    relevance = {
        name: dict(zip(answers, labels, strict=True)) for name, answers, labels in judged.iter_rows()
    }
    for question, text in topics.queries.items():
        if question in relevance:
            yield LabelledPool(question, text, ids.get(question, []), None, relevance[question])


def _texts(collection: RetrievalCollection, answer_ids: set[str]) -> Iterator[tuple[str, str]]:
    """Read the ids and texts of the candidates, in the order of the corpus."""
    missing = set(answer_ids)
    for entry in collection.documents:
        if entry.id in missing:
            missing.remove(entry.id)
            yield entry.id, entry.text
        elif entry.id in answer_ids:
            raise InputError(
                entry.file, position=entry.position, column="id", value=entry.id, expected="each id once"
            )
    if missing:
        problem = f"{len(missing):,} of {len(answer_ids):,} candidates not found, such as {min(missing)!r}"
        raise InputError(collection.source, problem=problem, expected="a text for every candidate of the run")


def _check(topics: Topics) -> None:
    """Check that judged queries have texts, and that the run ranks one of them."""
    judged = topics.qrels["question_id"].unique(maintain_order=True)
    unknown = [question for question in judged if question not in topics.queries]
    if unknown:
        noun = "query" if len(unknown) == 1 else "queries"
        problem = f"{len(unknown):,} judged {noun} without a text, such as {unknown[0]!r}"
        raise InputError(topics.path, problem=problem, expected="a text for every judged query")
    ranked = topics.run["question_id"]
    if not ranked.is_in(judged.implode()).any():
        problem = f"no query of {topics.path}: the first id is {ranked[0]!r}, but {judged[0]!r} in that file"
        raise InputError(topics.run_path, problem=problem, expected="a run over these queries")


def _read_queries(path: str) -> dict[str, str]:
    """Read query texts by id. An id may be repeated with the same text."""
    queries: dict[str, str] = {}
    for file, position, name, text in _entries(path):
        check_id(file, position, "id", name, of_question=True)
        if not text.strip():
            raise InputError(file, position=position, column="text", value=text, expected="a text")
        if queries.setdefault(name, text) != text:
            expected = f"the text that query {name!r} had before"
            raise InputError(file, position=position, value=text, expected=expected)
    return queries


def _entries(path: str) -> Iterator[Entry]:
    for file in table_files(path):
        if unpacked_name(file).lower().endswith(".tsv"):
            for number, line in read_rows(file):
                name, _, text = line.partition("\t")
                if line.count("\t") != 1:
                    raise InputError(file, position=f"line {number}", value=line, expected="id<TAB>text")
                yield Entry(file, f"line {number}", name, text)
            continue
        for position, row in read_json_lines(file):
            column = "_id"
            try:
                name, column = id_of(row.get("_id")), "title"
                title, column = text_of(row.get("title") or ""), "text"
                text = text_of(row.get("text"))
            except ValueError as error:
                raise InputError(
                    file, position=position, column=column, value=row.get(column), expected=str(error)
                ) from None
            yield Entry(file, position, name, f"{title} {text}".strip() if title else text)


@contextmanager
def _one_line_errors(path: str) -> Iterator[None]:
    """Raise any failure of a download or file of the catalogue as an `InputError`."""
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:  # each data set of ir_datasets raises its own exceptions
        raise InputError(path, problem=first_line(error), expected="a readable data set") from error
