"""Agreement of two runs: Kendall's tau, rank-biased overlap, and the correlation of a measure over questions.

Runs with equal means can be right about different questions.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from aptool.formats.trec import rank_candidates

# p of rank-biased overlap: the first ten ranks have 86% of the weight (Webber et al., section 4.1).
PERSISTENCE = 0.9


class Agreement(NamedTuple):
    """The agreement of two runs, or its mean over several pairs; None where a value is undefined."""

    tau: float | None  # Kendall's tau of the shared candidates, mean over questions; -1 to 1
    overlap: float | None  # extrapolated rank-biased overlap, mean over questions; 0 to 1
    correlation: float | None  # Pearson's correlation of the measure over the questions


def agreement(
    runs: tuple[pl.DataFrame, pl.DataFrame], tables: tuple[pl.DataFrame, pl.DataFrame], measure: str
) -> Agreement:
    """The agreement of two runs (question_id, answer_id, score) on the judged questions.

    Args:
        runs: the two runs.
        tables: `Evaluation.per_question` of each run.
        measure: the column that is correlated.
    """
    from scipy.stats import kendalltau

    judged = tables[0].select("question_id")
    first, second = (rank_candidates(run.join(judged, on="question_id", how="semi")) for run in runs)
    keys = ["question_id", "answer_id"]
    both = first.select(*keys, "rank").join(second.select(*keys, other="rank"), on=keys, how="inner")
    depths = first.group_by("question_id").len().join(second.group_by("question_id").len(), on="question_id")
    common = {
        question: (np.array(ranks), np.array(other_ranks))
        for question, ranks, other_ranks in both.group_by("question_id").agg("rank", "other").iter_rows()
    }
    none = np.empty(0), np.empty(0)
    taus, overlaps = [], []
    for question, length, other_length in depths.sort("question_id").iter_rows():
        ranks, other_ranks = common.get(question, none)
        if len(ranks) > 1:
            taus.append(float(kendalltau(ranks, other_ranks).statistic))
        overlaps.append(rank_biased_overlap(ranks, other_ranks, min(length, other_length)))
    paired = (
        tables[0]
        .select("question_id", measure)
        .join(tables[1].select("question_id", other=measure), on="question_id", how="inner")
    )
    return Agreement(_mean(taus), _mean(overlaps), _correlation(paired[measure], paired["other"]))


def pairwise(
    runs: Mapping[str, pl.DataFrame], tables: Mapping[str, pl.DataFrame], measure: str
) -> dict[tuple[str, str], Agreement]:
    """The agreement of every pair of runs, given by name; see `agreement`."""
    return {
        (first, second): agreement((runs[first], runs[second]), (tables[first], tables[second]), measure)
        for first, second in itertools.combinations(runs, 2)
    }


def mean_agreement(agreements: Iterable[Agreement]) -> Agreement:
    """The mean of each value over several pairs of runs; None where no pair has the value."""
    columns = zip(*agreements, strict=True)
    return Agreement(*(_mean([value for value in column if value is not None]) for column in columns))


def rank_biased_overlap(ranks: np.ndarray, other_ranks: np.ndarray, depth: int) -> float:
    """Extrapolated rank-biased overlap of two rankings (Webber, Moffat and Zobel, 2010, equation 30).

    X_k / k * p^k + (1 - p) / p * (the sum over d from 1 to k of X_d / d * p^d), where X_d is the number of
    candidates in the first d of both.

    Args:
        ranks: (n,) ranks, from 1, of the shared candidates.
        other_ranks: (n,) their ranks in the other ranking.
        depth: k, the length of the shorter ranking; at least 1.
    """
    p = PERSISTENCE
    within = np.bincount(np.maximum(ranks, other_ranks).astype(np.int64), minlength=depth + 1)[1 : depth + 1]
    shares = np.cumsum(within) / np.arange(1, depth + 1)
    weights = p ** np.arange(1, depth + 1)
    return float(shares[-1] * weights[-1] + (1 - p) / p * (shares * weights).sum())


def _correlation(first: pl.Series, second: pl.Series) -> float | None:
    if first.n_unique() < 2 or second.n_unique() < 2:
        return None
    correlation = statistics.correlation(first.to_list(), second.to_list())
    return correlation if math.isfinite(correlation) else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
