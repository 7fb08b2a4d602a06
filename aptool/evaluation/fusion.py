"""Fusion of runs without training: by rank, or by score where all are scores of one system.

Reciprocal rank fusion, for which scores need not be comparable: Cormack, Clarke and Buettcher, SIGIR 2009,
who found k = 60 to work well on many collections.
"""

from collections.abc import Sequence

import polars as pl

from aptool.formats.trec import rank_candidates

DEFAULT_K = 60


def reciprocal_rank_fusion(frames: Sequence[pl.DataFrame], k: float = DEFAULT_K) -> pl.DataFrame:
    """Scores every candidate by the sum of ``1 / (k + rank)`` over the runs that rank it.

    Ranks count from 1 in trec_eval's order, so equal scores are ordered by answer id. A run adds nothing to a
    candidate or a question that it does not rank. The result is the same to the last bit for every order of
    the runs, so candidates with the same ranks in different runs tie.

    Args:
        frames: two or more runs: question_id (str), answer_id (str), score, each candidate once.
        k: the larger, the less the first ranks dominate; at least 0.

    Returns:
        question_id (str), answer_id (str), score (f64), in trec_eval's order.

    Raises:
        ValueError: fewer than two runs, or a negative ``k``.
    """
    if len(frames) < 2:
        raise ValueError(f"{len(frames)} runs given; expected at least two")
    if k < 0:
        raise ValueError(f"k is {k}; expected at least 0")
    parts = [
        rank_candidates(frame).select("question_id", "answer_id", part=1.0 / (k + pl.col("rank")))
        for frame in frames
    ]
    # Floating-point sums depend on the order of their terms: sorting gives one order for all.
    fused = pl.concat(parts).group_by("question_id", "answer_id").agg(score=pl.col("part").sort().sum())
    return rank_candidates(fused).drop("rank")
