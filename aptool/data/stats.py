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
from aptool.data.pools import PoolBatch
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
    """Compute the statistics of a collection; memory holds one row group and the shared answers."""
    splits = {split: _describe_split(collection, split) for split in collection.splits}
    policies = {name: dict(rows) for name, rows in collection.manifest["policies"].items()}
    return Statistics(collection.name, splits, policies)


def _lengths(texts: pa.Array) -> np.ndarray:
    """(texts,) int64: words per text."""
    return np.array([len(text.split()) for text in texts.to_pylist()], dtype=np.int64)


def _describe_split(collection: Collection, split: str) -> SplitStatistics:
    qrels = read_qrels(collection.qrels_file(split))
    relevant = qrels.filter(pl.col("relevance") > 0).select("question_id", "answer_id")
    # Per question: candidates, words, relevant candidates. Per relevant pair: both lengths.
    questions: list[pl.DataFrame] = []
    pairs: list[np.ndarray] = []
    distinct: set[int] = set()
    words = 0
    for pools in collection.batches(split):
        lengths = _lengths(pools.answers)[pools.pair_answer]
        question_lengths = _lengths(pools.questions)
        is_relevant = _relevant_pairs(pools, relevant)
        owners = pools.pair_question[is_relevant]
        pairs.append(np.stack([question_lengths[owners], lengths[is_relevant]]))
        words += int(lengths.sum())
        distinct.update(map(hash, pools.answers.to_pylist()))
        questions.append(
            pl.DataFrame(
                {
                    "question_id": pools.question_ids.to_pylist(),
                    "size": np.diff(pools.offsets),
                    "words": question_lengths,
                    "relevant": np.bincount(owners, minlength=len(question_lengths)),
                }
            )
        )
    judged = relevant.group_by("question_id").agg(judged=pl.len().cast(pl.Int64))
    table = pl.concat(questions).join(judged, "question_id", how="left", maintain_order="left")
    judged_relevant = table["judged"].fill_null(0).to_numpy()
    sizes, pool_relevant = table["size"].to_numpy(), table["relevant"].to_numpy()
    relevant_pairs = np.concatenate(pairs, axis=1)
    return SplitStatistics(
        questions=len(table),
        candidates=int(sizes.sum()),
        pool_mean=_mean(sizes),
        pool_least=int(sizes.min()),
        pool_most=int(sizes.max()),
        M=_mean(table["words"].to_numpy()),
        L=_mean(relevant_pairs[1]),
        L_all=words / max(1, int(sizes.sum())),
        L_over_M=_mean(relevant_pairs[1] / np.maximum(relevant_pairs[0], 1)),
        relevant=int(judged_relevant.sum()),
        without_relevant=int((judged_relevant == 0).sum()),
        without_nonrelevant=int((pool_relevant == sizes).sum()),
        relevant_not_in_pool=int((judged_relevant - pool_relevant).sum()),
        questions_without_relevant_in_pool=int((pool_relevant == 0).sum()),
        distinct_answers=len(distinct),
    )


def _relevant_pairs(pools: PoolBatch, relevant: pl.DataFrame) -> np.ndarray:
    """(pairs,) bool: whether a candidate is relevant."""
    marked = relevant.with_columns(relevant=pl.lit(True))
    joined = pools.pairs().join(marked, on=["question_id", "answer_id"], how="left", maintain_order="left")
    return joined["relevant"].fill_null(False).to_numpy()


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
