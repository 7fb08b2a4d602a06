"""Pools from a first-stage run and a corpus: a retrieval collection becomes a collection for re-ranking.

The texts of the candidates become the shared answers of the collection. The corpus is streamed for them, so
that memory grows with the candidates; BM25, where it retrieves, has an index of the corpus in memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from aptool.datasets.corpus import Corpus
from aptool.datasets.importing import SAME_ID_EXCLUDED, SplitPools, collection_name, write_collection
from aptool.datasets.pairs import Conflicts
from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import check_output_folder
from aptool.formats.collection import CollectionFiles, LabelledPool, check_splits_kept
from aptool.formats.location import PathOrUrl
from aptool.formats.outputs import Kind
from aptool.formats.trec import rank_candidates
from aptool.text.bm25 import BM25

RUN_SCHEMA = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}


class Topics(NamedTuple):
    """The queries of a split with their judgements and first-stage run."""

    path: str  # source of the split, for messages
    queries: Mapping[str, str]  # query id -> text
    qrels: pl.DataFrame  # question_id, answer_id, relevance; at least one row
    run: pl.DataFrame | None = None  # question_id, answer_id, score; None to retrieve with BM25
    run_path: str = "run"  # source of the run, for messages
    conflicts: Conflicts | None = None  # contradictory judgements that were resolved
    keeps_unjudged: bool = False  # whether a query that the run ranks needs no judgement


class RetrievalCollection(NamedTuple):
    """A retrieval collection as its importer reads it; the corpus is not read yet."""

    name: str | None  # None: name of the output folder
    source: str
    corpus: Corpus
    splits: Mapping[str, Topics]
    exclude_same_id: bool = False  # see `PoolOptions`


class PoolOptions(NamedTuple):
    """How pools are cut from a run; ``negatives`` and ``add_relevant`` are for training."""

    depth: int = 100  # candidates per question, from the top of the run
    negatives: int | None = None  # of these, non-relevant candidates to keep, drawn at random; None keeps all
    add_relevant: bool = False  # add the relevant documents that the first stage missed
    seed: int = 0  # random seed of the draws
    exclude_same_id: bool = False  # leave out a candidate with the id of its question, as BEIR does


def write_retrieval_collection(
    out: PathOrUrl,
    collection: RetrievalCollection,
    options: PoolOptions | None = None,
    *,
    name: str | None = None,
    questions: str = "all",
) -> CollectionFiles:
    """Write a collection with one pool per query and shared answers.

    The manifest's ``details.first_stage`` counts per split the relevant documents that are in no pool.
    """
    check_output_folder(out, Kind.COLLECTION)
    check_splits_kept(out, collection.splits)
    options = options or PoolOptions()
    if collection.exclude_same_id:
        options = options._replace(exclude_same_id=True)
    corpus = collection.corpus
    splits = {split: _checked(topics) for split, topics in collection.splits.items()}
    retrieved = _retrieve(corpus, splits, options.depth + options.exclude_same_id)
    candidates: dict[str, pl.DataFrame] = {}
    first_stage: dict[str, dict[str, Any]] = {}
    excluded: dict[str, dict[str, int]] = {}
    for split, topics in splits.items():
        run = topics.run if topics.run is not None else retrieved[split]
        if options.exclude_same_id:
            kept = run.filter(pl.col("question_id") != pl.col("answer_id"))
            excluded[split] = {SAME_ID_EXCLUDED: run.height - kept.height}
            run = kept
        candidates[split], counts = cut_pools(run, topics.qrels, options)
        first_stage[split] = {"system": "BM25" if topics.run is None else "run", **counts}
    answer_ids = pl.concat([frame.select("answer_id") for frame in candidates.values()]).unique()
    return write_collection(
        out,
        name=name or collection.name or collection_name(out),
        source=collection.source,
        splits={
            split: SplitPools(
                topics.path, _pools(topics, candidates[split]), topics.conflicts, excluded.get(split)
            )
            for split, topics in splits.items()
        },
        questions=questions,
        details={"pools": options._asdict(), "first_stage": first_stage},
        answers=_texts(corpus, set(answer_ids["answer_id"])),
    )


def cut_pools(
    run: pl.DataFrame, qrels: pl.DataFrame, options: PoolOptions
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Select the candidates of each question from a run.

    Returns:
        question_id and answer_id in the order of the run; and the numbers of relevant documents:
        ``relevant`` (all), ``relevant_missed`` (not in the run down to the depth) and ``relevant_added``.
    """
    keys = ["question_id", "answer_id"]
    top = rank_candidates(run).filter(pl.col("rank") <= options.depth).select(*keys, "rank")
    relevant = qrels.filter(pl.col("relevance") > 0).select(keys)
    missed = relevant.join(top, on=keys, how="anti")
    counts = {"relevant": relevant.height, "relevant_missed": missed.height, "relevant_added": 0}
    if options.negatives is not None:
        positives = top.join(relevant, on=keys, how="semi")
        negatives = top.join(relevant, on=keys, how="anti")
        draws = pl.Series(np.random.default_rng(options.seed).random(negatives.height))
        order = pl.col("draw").rank("ordinal").over("question_id")
        sampled = negatives.with_columns(draw=draws).filter(order <= options.negatives).select(top.columns)
        top = pl.concat([positives, sampled])
    if options.add_relevant:
        if options.exclude_same_id:
            missed = missed.filter(pl.col("question_id") != pl.col("answer_id"))
        last = missed.with_columns(rank=pl.lit(options.depth + 1, dtype=top.schema["rank"]))
        counts["relevant_added"] = missed.height
        top = pl.concat([top, last])
    return top.sort("question_id", "rank", "answer_id").select(keys), counts


def _pools(topics: Topics, candidates: pl.DataFrame) -> Iterator[LabelledPool]:
    relevance = {
        question: dict(zip(frame["answer_id"], frame["relevance"], strict=True))
        for (question,), frame in topics.qrels.partition_by("question_id", as_dict=True).items()
    }
    pools = candidates.partition_by("question_id", as_dict=True, maintain_order=True)
    empty = candidates.clear()
    for question, text in topics.queries.items():
        ids = pools.get((question,), empty)["answer_id"].to_list()
        yield LabelledPool(question, text, ids, None, relevance.get(question, {}))


def _texts(corpus: Corpus, answer_ids: set[str]) -> Iterator[tuple[str, str]]:
    """Read the ids and texts of the candidates, in the order of the corpus."""
    missing = set(answer_ids)
    for entry in corpus.entries():
        if entry.id in missing:
            missing.remove(entry.id)
            yield entry.id, entry.text
        elif entry.id in answer_ids:
            expected = "each id once"
            raise InputError(
                entry.file, position=entry.position, column="id", value=entry.id, expected=expected
            )
    if missing:
        problem = f"{len(missing):,} of {len(answer_ids):,} candidates not found, such as {min(missing)!r}"
        raise InputError(corpus.name, problem=problem, expected="a text for every candidate of the run")


def _checked(topics: Topics) -> Topics:
    """Select the queries to import; check that judged queries have texts, and that the run ranks a query."""
    judged = topics.qrels["question_id"].unique(maintain_order=True)
    unknown = [question for question in judged if question not in topics.queries]
    if unknown:
        noun = "query" if len(unknown) == 1 else "queries"
        problem = f"{len(unknown):,} judged {noun} without a text, such as {unknown[0]!r}"
        raise InputError(topics.path, problem=problem, expected="a text for every judged query")
    ranked = topics.run["question_id"].unique(maintain_order=True) if topics.run is not None else judged
    imported = {*judged, *(ranked if topics.keeps_unjudged else ())}
    queries = {question: text for question, text in topics.queries.items() if question in imported}
    if not any(question in queries for question in ranked):
        problem = f"no query of {topics.path}: the first id is {ranked[0]!r}, but {judged[0]!r} in that file"
        raise InputError(topics.run_path, problem=problem, expected="a run over these queries")
    return topics._replace(queries=queries)


def _retrieve(corpus: Corpus, splits: Mapping[str, Topics], depth: int) -> dict[str, pl.DataFrame]:
    """Retrieve with BM25 for each split without a run: question_id, answer_id, score."""
    queries = {split: topics.queries for split, topics in splits.items() if topics.run is None}
    if not queries:
        return {}
    # Descending ids: documents with equal scores are in trec_eval's order.
    documents = sorted(((entry.id, entry.text) for entry in corpus.entries()), reverse=True)
    if not documents:
        raise AptoolError(f"{corpus.name}: no document; expected at least one")
    index = BM25(text for _, text in documents)
    runs = {}
    for split, by_id in queries.items():
        best, scores = index.top(list(by_id.values()), depth)
        rows = (
            (question, documents[row][0], score)
            for question, ranked, values in zip(by_id, best.tolist(), scores.tolist(), strict=True)
            for row, score in zip(ranked, values, strict=True)
            if score > 0
        )
        runs[split] = pl.DataFrame(rows, schema=RUN_SCHEMA, orient="row")
    return runs
