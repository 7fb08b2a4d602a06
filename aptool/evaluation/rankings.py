"""Measures that trec_eval lacks, from the ranking itself: RR with a cut-off, RBP, and the share judged.

The ranking is trec_eval's: score descending, equal scores by answer id descending, in float64.
"""

from collections.abc import Callable, Sequence

import polars as pl

from aptool.evaluation.names import Measure
from aptool.formats.trec import rank_candidates


def measure_rankings(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Sequence[Measure], level: int
) -> dict[str, dict[str, float]]:
    """Measures of each question that the run ranks and the qrels judge.

    Args:
        qrels: question_id, answer_id, relevance (integer): unjudged if negative.
        run: question_id, answer_id, score.
        measures: of the families in `RANKING_MEASURES`; RR without a cut-off goes to the end.
        level: the lowest relevance that counts as relevant, for measures without one of their own.

    Returns:
        question id -> name -> figure.
    """
    keys = ["question_id", "answer_id"]
    judged = run.select(*keys, pl.col("score").cast(pl.Float64))
    judged = judged.join(qrels.select("question_id").unique(), on="question_id", how="semi")
    ranked = rank_candidates(judged).join(
        qrels.select(*keys, pl.col("relevance").cast(pl.Int64)), on=keys, how="left", maintain_order="left"
    )
    figures = [_figure(measure, measure.level or level).alias(measure.name) for measure in measures]
    found = ranked.group_by("question_id", maintain_order=True).agg(figures)
    return {row.pop("question_id"): row for row in found.iter_rows(named=True)}


def _figure(measure: Measure, level: int) -> pl.Expr:
    """The figure of one question, over its candidates in order with columns rank and relevance (or null)."""
    within = pl.col("rank") <= (pl.len() if measure.cutoff is None else measure.cutoff)
    return RANKING_MEASURES[measure.family](measure, within, level)


def _hits(within: pl.Expr, level: int) -> pl.Expr:
    """The ranks of the relevant candidates."""
    relevant = pl.col("relevance").fill_null(-1) >= level
    return pl.col("rank").filter(within & relevant).cast(pl.Float64)


def _reciprocal_rank(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    return (1 / _hits(within, level).min()).fill_null(0.0)


def _rank_biased_precision(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """(1 - p) * sum over relevant ranks i of p ** (i - 1) (Moffat and Zobel, 2008, equation 3)."""
    ranks = _hits(within, level)
    # A column and no literal: polars 1.30 took a literal's power once for all questions.
    persistence = ranks * 0 + measure.persistence
    return (1 - measure.persistence) * persistence.pow(ranks - 1).sum()


def _judged(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """The share of judged candidates, of those there are where these are fewer than the cut-off."""
    return (pl.col("relevance").fill_null(-1) >= 0).filter(within).mean()


# Measure, whether a candidate is within its cut-off, and the level -> the figure of a question.
RANKING_MEASURES: dict[str, Callable[[Measure, pl.Expr, int], pl.Expr]] = {
    "RR": _reciprocal_rank,
    "RBP": _rank_biased_precision,
    "Judged": _judged,
}
