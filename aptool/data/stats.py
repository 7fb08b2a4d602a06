"""Statistics of a collection: table 1 of the paper, and further measures of its difficulty.

M and L are mean lengths of questions and answers in words between white space, which give the paper's values.
Table 1 does not define the answers over which L is averaged, so L is given over relevant answers and over all
candidates.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.data.collection import Collection
from aptool.data.trec import read_qrels


@dataclass(frozen=True)
class SplitStatistics:
    """Statistics of one split; the mean of no values is 0."""

    questions: int  # pools
    candidates: int  # question-candidate pairs
    pool_mean: float  # candidates per question
    pool_least: int  # candidates of the smallest pool
    pool_most: int  # candidates of the largest pool
    M: float  # words per question
    L: float  # words per relevant candidate, over the pairs of a question and a relevant candidate
    L_all: float  # words per candidate, over all pairs
    L_over_M: float  # mean of answer length / question length, over the pairs of L
    relevant: int  # judgements of 1 or more
    without_relevant: int  # questions without such a judgement
    without_nonrelevant: int  # questions whose candidates are all relevant
    relevant_not_in_pool: int  # relevant answers that are missing from their pool
    questions_without_relevant_in_pool: int  # questions without a relevant candidate
    distinct_answers: int  # distinct texts of candidates


@dataclass(frozen=True)
class Statistics:
    """Statistics of a collection."""

    name: str  # name of the collection
    splits: dict[str, SplitStatistics]  # split -> its statistics
    policies: dict[str, dict[str, int]]  # policy -> split -> rows, from the manifest


def describe(collection: Collection) -> Statistics:
    """Compute the statistics of a collection; memory holds the texts of one unit and the shared answers."""
    splits = {split: _describe_split(collection, split) for split in collection.splits}
    policies = {name: dict(rows) for name, rows in collection.manifest["policies"].items()}
    return Statistics(collection.name, splits, policies)


def _describe_split(collection: Collection, split: str) -> SplitStatistics:
    keys = ["question_id", "answer_id"]
    qrels = read_qrels(collection.qrels_file(split))
    relevant = qrels.filter(pl.col("relevance") > 0).select(*keys, relevant=pl.lit(True))
    parts: list[pl.DataFrame] = []
    distinct: set[int] = set()
    for pools in collection.batches(split):
        lengths = {
            "M": _lengths(pools.questions)[pools.pair_question],
            "L": _lengths(pools.answers)[pools.pair_answer],
        }
        pairs = pools.pairs().with_columns(**{name: pl.Series(words) for name, words in lengths.items()})
        parts.append(pairs.join(relevant, on=keys, how="left", maintain_order="left").drop("answer_id"))
        distinct.update(map(hash, pools.answers.to_pylist()))
    pairs = pl.concat(parts).with_columns(pl.col("relevant").fill_null(False))
    judged = relevant.group_by("question_id").agg(judged=pl.len())
    table = pairs.group_by("question_id", maintain_order=True).agg(
        pl.col("M").first(), size=pl.len(), relevant=pl.col("relevant").sum()
    )
    table = table.join(judged, on="question_id", how="left", maintain_order="left").fill_null(0)
    columns = {name: table[name].cast(pl.Int64).to_numpy() for name in ("M", "size", "relevant", "judged")}
    sizes, in_pool, judged_relevant = columns["size"], columns["relevant"], columns["judged"]
    words = pairs["L"].to_numpy()
    is_relevant = pairs["relevant"].to_numpy()
    return SplitStatistics(
        questions=len(table),
        candidates=len(pairs),
        pool_mean=_mean(sizes),
        pool_least=int(sizes.min()),
        pool_most=int(sizes.max()),
        M=_mean(columns["M"]),
        L=_mean(words[is_relevant]),
        L_all=_mean(words),
        L_over_M=_mean((words / np.maximum(pairs["M"].to_numpy(), 1))[is_relevant]),
        relevant=int(judged_relevant.sum()),
        without_relevant=int((judged_relevant == 0).sum()),
        without_nonrelevant=int((in_pool == sizes).sum()),
        relevant_not_in_pool=int((judged_relevant - in_pool).sum()),
        questions_without_relevant_in_pool=int((in_pool == 0).sum()),
        distinct_answers=len(distinct),
    )


def _lengths(texts: pa.Array) -> np.ndarray:
    """(texts,) int64: words per text."""
    return np.array([len(text.split()) for text in texts.to_pylist()], dtype=np.int64)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
