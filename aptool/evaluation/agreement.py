"""How far two runs agree, such as those of one system trained with two seeds.

Means that are equal do not show that two runs are: they may be right about different questions. Three
figures tell more. Kendall's tau (Kendall, 1938) counts pairs of candidates in the same order less those in
the other order. Rank-biased overlap (Webber, Moffat and Zobel, 2010) weighs the first ranks most: the share
of candidates in common down to each rank d, weighted by p^(d - 1). Pearson's correlation of a measure over
the questions tells whether both are right about the same ones.
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
    """The agreement of two runs, or its mean over several pairs.

    Attributes:
        tau: Kendall's tau over the candidates that both rank, mean over the questions with two or more of
            them; from -1 to 1, None if there is no such question.
        overlap: rank-biased overlap, extrapolated, mean over the questions that both rank; from 0 to 1, None
            if there is none.
        correlation: Pearson's correlation of the measure over the questions; None where a run has the same
            figure for all of them.
    """

    tau: float | None
    overlap: float | None
    correlation: float | None


def agreement(
    runs: tuple[pl.DataFrame, pl.DataFrame], tables: tuple[pl.DataFrame, pl.DataFrame], measure: str
) -> Agreement:
    """The agreement of two runs on the questions that are judged.

    Args:
        runs: question_id, answer_id, score; ties are broken as trec_eval breaks them.
        tables: question_id and ``measure``, as `measures.Evaluation.per_question`, over the same questions.
        measure: the column that is correlated.
    """
    judged = tables[0].select("question_id")
    first, second = (rank_candidates(run.join(judged, on="question_id", how="semi")) for run in runs)
    keys = ["question_id", "answer_id"]
    both = first.select(*keys, "rank").join(second.select(*keys, other="rank"), on=keys, how="inner")
    depths = first.group_by("question_id").len().join(second.group_by("question_id").len(), on="question_id")
    common = {
        question: (ranks, others)
        for question, ranks, others in both.group_by("question_id").agg("rank", "other").iter_rows()
    }
    taus, overlaps = [], []
    for question, length, other_length in depths.sort("question_id").iter_rows():
        ranks, others = (np.array(one) for one in common.get(question, ([], [])))
        if len(ranks) > 1:
            taus.append(_tau(ranks, others))
        overlaps.append(rank_biased_overlap(ranks, others, min(length, other_length)))
    paired = (
        tables[0]
        .select("question_id", measure)
        .join(tables[1].select("question_id", other=measure), on="question_id", how="inner")
    )
    return Agreement(_mean(taus), _mean(overlaps), _correlation(paired[measure], paired["other"]))


def pairwise(
    runs: Mapping[str, pl.DataFrame], tables: Mapping[str, pl.DataFrame], measure: str
) -> dict[tuple[str, str], Agreement]:
    """The agreement of every two of several runs; arguments by name, as of `agreement`."""
    return {
        (one, other): agreement((runs[one], runs[other]), (tables[one], tables[other]), measure)
        for one, other in itertools.combinations(runs, 2)
    }


def mean_agreement(found: Iterable[Agreement]) -> Agreement:
    """Each figure's mean over several pairs; None where no pair has it."""
    columns = zip(*found, strict=True)
    return Agreement(*(_mean([value for value in column if value is not None]) for column in columns))


def rank_biased_overlap(ranks: np.ndarray, others: np.ndarray, depth: int, p: float = PERSISTENCE) -> float:
    """Extrapolated rank-biased overlap of two rankings (Webber et al., 2010, equation 30).

    X_k / k * p^k + (1 - p) / p * (the sum over d from 1 to k of X_d / d * p^d), where X_d is the number of
    candidates in the first d of both.

    Args:
        ranks: (n,) ranks, from 1, of the candidates that are in both.
        others: (n,) their ranks in the other one.
        depth: k, the length of the shorter ranking; at least 1.
        p: persistence, between 0 and 1.
    """
    within = np.bincount(np.maximum(ranks, others).astype(np.int64), minlength=depth + 1)[1 : depth + 1]
    shares = np.cumsum(within) / np.arange(1, depth + 1)
    weights = p ** np.arange(1, depth + 1)
    return float(shares[-1] * weights[-1] + (1 - p) / p * (shares * weights).sum())


def _tau(ranks: np.ndarray, others: np.ndarray) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(ranks, others).statistic)


def _correlation(first: pl.Series, second: pl.Series) -> float | None:
    if first.n_unique() < 2 or second.n_unique() < 2:
        return None
    found = statistics.correlation(first.to_list(), second.to_list())
    return found if math.isfinite(found) else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
