"""Pools out of a first-stage run and a corpus: how a retrieval collection becomes one for reranking.

The corpus is streamed: once for the texts of the candidates, which become the shared answers of the
collection, and twice before that where BM25 retrieves. Memory grows with the candidates, not with the corpus.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from aptool.datasets.corpus import Corpus
from aptool.datasets.importing import SplitPools, check_output, write_collection
from aptool.datasets.policies import Conflicts
from aptool.errors import AptoolError, InputError
from aptool.formats.collection import CollectionFiles, LabelledPool
from aptool.formats.location import PathOrUrl
from aptool.formats.trec import rank_candidates
from aptool.text.first_stage import Ranking, retrieve


class Topics(NamedTuple):
    """The questions of a split, their judgements and what a first stage retrieved for them.

    Attributes:
        path: what messages call the split's source.
        queries: text by query id.
        qrels: question_id, answer_id, relevance; may be empty.
        run: question_id, answer_id, score; None to retrieve with BM25.
        run_path: what messages call the run.
        conflicts: contradictory judgements that were resolved.
    """

    path: str
    queries: Mapping[str, str]
    qrels: pl.DataFrame
    run: pl.DataFrame | None = None
    run_path: str = "run"
    conflicts: Conflicts | None = None


class PoolOptions(NamedTuple):
    """How pools are cut from a run.

    Attributes:
        depth: candidates of each question kept from the top of the run.
        negatives: of these, how many that are not judged relevant are kept, drawn at random; None keeps all.
            For training: a pool that was thinned out says nothing about a first stage.
        add_relevant: add the relevant documents that the first stage missed; for training alike.
        seed: of the draws.
    """

    depth: int = 100
    negatives: int | None = None
    add_relevant: bool = False
    seed: int = 0


def write_retrieval_collection(
    out: PathOrUrl,
    *,
    name: str,
    source: str,
    corpus: Corpus,
    splits: Mapping[str, Topics],
    options: PoolOptions,
    questions: str = "all",
) -> CollectionFiles:
    """Writes a collection with one pool for each query, the texts shared by all pools.

    The manifest's ``details.first_stage`` counts, for each split, the relevant documents that are in no pool.

    Args:
        out: the collection's folder.
        name: one word.
        source: where the data came from, in words.
        corpus: the documents.
        splits: the topics of each split.
        options: how pools are cut.
        questions: which questions are kept; see `CollectionWriter`.

    Raises:
        InputError: a file is not what it should be, a judged query has no text, the run and the queries share
            no id, or the corpus lacks a candidate.
        AptoolError: no question of a split is left.
    """
    check_output(out)
    cut: dict[str, pl.DataFrame] = {}
    missed: dict[str, dict[str, int]] = {}
    for topics in splits.values():
        _check_judged(topics)
    retrieved = _retrieved(corpus, splits, options.depth)
    for split, topics in splits.items():
        run = topics.run
        if run is None:
            run = retrieved[split]
        else:
            _check_same_queries(topics, run)
        cut[split], missed[split] = cut_pools(run, topics.qrels, options)
    wanted = pl.concat([frame.select("answer_id") for frame in cut.values()]).unique()
    details: dict[str, Any] = {
        "pools": options._asdict(),
        "first_stage": {
            split: {"system": "BM25" if splits[split].run is None else "run", **counts}
            for split, counts in missed.items()
        },
    }
    return write_collection(
        out,
        name=name,
        source=source,
        splits={
            split: SplitPools(topics.path, _pools(topics, cut[split]), topics.conflicts)
            for split, topics in splits.items()
        },
        questions=questions,
        details=details,
        answers=_texts(corpus, wanted["answer_id"]),
    )


def cut_pools(
    run: pl.DataFrame, qrels: pl.DataFrame, options: PoolOptions
) -> tuple[pl.DataFrame, dict[str, int]]:
    """The candidates of each question, and how many relevant documents the first stage missed.

    Args:
        run: question_id, answer_id, score.
        qrels: question_id, answer_id, relevance.
        options: see `PoolOptions`.

    Returns:
        question_id, answer_id, in the order of the run; counts ``relevant`` (judged relevant),
        ``relevant_missed`` (not in the run down to the depth) and ``relevant_added``.
    """
    keys = ["question_id", "answer_id"]
    top = rank_candidates(run).filter(pl.col("rank") <= options.depth).select(*keys, "rank")
    relevant = qrels.filter(pl.col("relevance") > 0).select(keys)
    missed = relevant.join(top, on=keys, how="anti")
    counts = {"relevant": relevant.height, "relevant_missed": missed.height, "relevant_added": 0}
    if options.negatives is not None:
        is_relevant = top.join(relevant, on=keys, how="semi")
        others = top.join(relevant, on=keys, how="anti")
        draws = np.random.default_rng(options.seed).random(others.height)
        place = pl.col("draw").rank("ordinal").over("question_id")
        sampled = (
            others.with_columns(draw=pl.Series(draws)).filter(place <= options.negatives).select(top.columns)
        )
        top = pl.concat([is_relevant, sampled])
    if options.add_relevant:
        counts["relevant_added"] = missed.height
        behind = missed.with_columns(rank=pl.lit(options.depth + 1, dtype=top.schema["rank"]))
        top = pl.concat([top, behind])
    return top.sort("question_id", "rank", "answer_id").select(keys), counts


def _pools(topics: Topics, candidates: pl.DataFrame) -> Iterator[LabelledPool]:
    relevance = {
        question: dict(zip(frame["answer_id"], frame["relevance"], strict=True))
        for (question,), frame in topics.qrels.partition_by("question_id", as_dict=True).items()
    }
    pools = candidates.partition_by("question_id", as_dict=True, maintain_order=True)
    nothing = candidates.clear()
    for question, text in topics.queries.items():
        ids = pools.get((question,), nothing)["answer_id"].to_list()
        yield LabelledPool(question, text, ids, None, relevance.get(question, {}))


def _texts(corpus: Corpus, wanted: pl.Series) -> Iterator[tuple[str, str]]:
    """The wanted documents, in the order of the corpus.

    Raises:
        InputError: the corpus lacks one, or has one twice.
    """
    left = set(wanted.to_list())
    total, found = len(left), Counter[str]()
    for file, entry in corpus.entries():
        if entry.id in left:
            left.remove(entry.id)
            found[entry.id] += 1
            yield entry.id, entry.text
        elif found.get(entry.id):
            raise InputError(file, place=entry.place, column="id", value=entry.id, expected="each id once")
    if left:
        first = min(left)
        problem = f"{len(left):,} of {total:,} candidates not found, such as {first!r}"
        raise InputError(str(corpus), problem=problem, expected="a text for every candidate of the run")


def _check_judged(topics: Topics) -> None:
    """Checks that every judged query has a text: one that was left out would count in no figure."""
    judged = topics.qrels["question_id"].unique(maintain_order=True)
    unknown = [question for question in judged if question not in topics.queries]
    if unknown:
        queries = "query" if len(unknown) == 1 else "queries"
        problem = f"{len(unknown):,} judged {queries} without a text, such as {unknown[0]!r}"
        raise InputError(topics.path, problem=problem, expected="a text for every judged query")


def _check_same_queries(topics: Topics, run: pl.DataFrame) -> None:
    asked = run["question_id"].unique(maintain_order=True)
    if not any(question in topics.queries for question in asked):
        theirs, ours = asked[0], next(iter(topics.queries), "none")
        problem = f"no query of {topics.path}: the first ids are {theirs!r} here and {ours!r} there"
        raise InputError(topics.run_path, problem=problem, expected="a run over these queries")


def _retrieved(corpus: Corpus, splits: Mapping[str, Topics], depth: int) -> dict[str, pl.DataFrame]:
    """The run of BM25 for each split that has none: question_id, answer_id, score.

    Raises:
        AptoolError: there is no document.
    """

    def documents() -> Iterator[tuple[str, str]]:
        return ((entry.id, entry.text) for _, entry in corpus.entries())

    lacking = {split: topics.queries for split, topics in splits.items() if topics.run is None}
    if lacking and next(documents(), None) is None:
        raise AptoolError(f"{corpus}: no document; expected at least one")
    texts = [text for queries in lacking.values() for text in queries.values()]
    rankings = iter(retrieve(documents, texts, depth) if texts else ())
    return {
        split: _run(list(queries), list(islice(rankings, len(queries)))) for split, queries in lacking.items()
    }


def _run(questions: list[str], rankings: list[Ranking]) -> pl.DataFrame:
    """The rankings of some questions as a frame: question_id, answer_id, score."""
    schema = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}
    frames = [
        pl.DataFrame({"question_id": question, "answer_id": ids.tolist(), "score": scores}, schema=schema)
        for question, (ids, scores) in zip(questions, rankings, strict=True)
    ]
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)
