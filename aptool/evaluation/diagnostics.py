"""Diagnostics of runs: oracle upper bound, agreement of two runs."""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from aptool.evaluation.evaluation import MeasureValues
from aptool.evaluation.measures import evaluate
from aptool.evaluation.names import measure_names
from aptool.formats.trec import rank_candidates

# p of rank-biased overlap: the first ten ranks have 86% of the weight (Webber et al., section 4.1).
PERSISTENCE = 0.9

_KEYS = ["question_id", "answer_id"]


class Limits(NamedTuple):
    """The oracle upper bound of a run: the measures of a perfect re-ranking of its candidates."""

    recall: float  # share of the relevant answers that are candidates, mean over questions: the best MAP
    questions: int  # number of questions with a relevant answer
    without: int  # number of these questions without a relevant candidate
    relevant: int  # number of relevant answers of all questions
    found: int  # number of relevant answers that are candidates
    best: Mapping[str, float]  # each measure of the best order


def candidate_limits(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Iterable[str], *, level: int = 1
) -> Limits:
    """The measures of the best order: the highest relevance first, unjudged candidates last.

    The arguments are those of `measures.evaluate`; the scores of the run do not matter.
    """
    names = measure_names(measures)
    relevance = pl.col("relevance").clip(lower_bound=-1).fill_null(-2).cast(pl.Float64)
    best = run.select(_KEYS).join(qrels.select(*_KEYS, "relevance"), on=_KEYS, how="left")
    counts = ["set_recall", "num_rel", "num_rel_ret"]
    evaluation = evaluate(qrels, best.select(*_KEYS, score=relevance), [*names, *counts], level=level)
    answerable = evaluation.per_question.filter(pl.col("NumRel") > 0)
    return Limits(
        recall=evaluation.means["set_recall"],
        questions=answerable.height,
        without=answerable.filter(pl.col("NumRelRet") == 0).height,
        relevant=int(evaluation.means["num_rel"]),
        found=int(evaluation.means["num_rel_ret"]),
        best=MeasureValues({name: evaluation.means[name] for name in names}),
    )


class Agreement(NamedTuple):
    """The agreement of two runs, or its mean over several pairs; None where a value is undefined.

    Runs with equal means can be right about different questions.
    """

    tau: float | None  # Kendall's tau of the shared candidates, mean over questions; -1 to 1
    overlap: float | None  # extrapolated rank-biased overlap, mean over questions; 0 to 1
    correlation: float | None  # Pearson's correlation of the measure over the questions


def agreement(
    runs: tuple[pl.DataFrame, pl.DataFrame], tables: tuple[pl.DataFrame, pl.DataFrame], measure: str
) -> Agreement:
    """The agreement of two runs on the judged questions; ``tables`` are their `Evaluation.per_question`."""
    from scipy.stats import kendalltau

    judged = tables[0].select("question_id")
    first, second = (rank_candidates(run.join(judged, on="question_id", how="semi")) for run in runs)
    both = first.select(*_KEYS, "rank").join(second.select(*_KEYS, other="rank"), on=_KEYS, how="inner")
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
    values = tables[1].select("question_id", other=measure)
    paired = tables[0].select("question_id", measure).join(values, on="question_id", how="inner")
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
    candidates in the first d of both, and k is the ``depth``, the length of the shorter ranking. ``ranks``
    and ``other_ranks`` are (n,) ranks, from 1, of the shared candidates.
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
    return statistics.fmean(values) if values else None
