"""Several runs made into one, by rank, so that their scores need not be comparable.

Reciprocal rank fusion: Cormack, Clarke and Buettcher, SIGIR 2009, who found k = 60 to do well on many
collections.
"""

from collections.abc import Sequence

import polars as pl

from aptool.formats.trec import rank_candidates

USUAL_K = 60


def reciprocal_rank_fusion(frames: Sequence[pl.DataFrame], k: float = USUAL_K) -> pl.DataFrame:
    """Gives every candidate the sum of ``1 / (k + rank)`` over the runs that rank it.

    Ranks count from 1 in trec_eval's order, so equal scores go by answer id. A candidate or a question
    that a run lacks gets nothing from it and keeps what the others give. The result does not depend on the
    order of the runs, to the last bit, so candidates with the same ranks in other runs tie.

    Args:
        frames: two or more runs: question_id (str), answer_id (str), score, each candidate once.
        k: how little the first ranks stand out; at least 0.

    Returns:
        question_id (str), answer_id (str), score (f64), in trec_eval's order.
    """
    if len(frames) < 2:
        raise ValueError(f"{len(frames)} run given, at least two can be fused")
    if k < 0:
        raise ValueError(f"k is {k}, not at least 0")
    parts = [
        rank_candidates(frame).select("question_id", "answer_id", part=1.0 / (k + pl.col("rank")))
        for frame in frames
    ]
    # Floating-point sums depend on the order of their terms: from the smallest up is one order for all.
    fused = pl.concat(parts).group_by("question_id", "answer_id").agg(score=pl.col("part").sort().sum())
    return rank_candidates(fused).drop("rank")
