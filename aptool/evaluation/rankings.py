"""Measures that trec_eval lacks, computed from the ranking: RR with a cutoff, ERR, RBP, the share judged."""

from collections.abc import Callable, Sequence

import polars as pl

from aptool.evaluation.names import Measure
from aptool.formats.trec import rank_candidates

# Lowest maximal grade of ERR. gdeval always has this one, and refuses qrels with higher grades.
_MAXIMAL_GRADE = 4


def measure_rankings(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Sequence[Measure], level: int
) -> dict[str, dict[str, float]]:
    """Compute measures of `RANKING_MEASURES`: question id -> name -> value, for questions in both frames."""
    values = _values_by_question(qrels, run, measures, level)
    normalized = [measure for measure in measures if measure.family == "nERR"]
    if normalized:
        best = qrels.select("question_id", "answer_id", score="relevance")
        ideal = _values_by_question(qrels, best, normalized, level)
        for question, row in values.items():
            for measure in normalized:
                row[measure.name] /= ideal[question][measure.name] or 1.0
    return values


def _values_by_question(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Sequence[Measure], level: int
) -> dict[str, dict[str, float]]:
    keys = ["question_id", "answer_id"]
    judged = run.select(*keys, pl.col("score").cast(pl.Float64))
    judged = judged.join(qrels.select("question_id").unique(), on="question_id", how="semi")
    relevance = pl.col("relevance").cast(pl.Int64)
    labels = qrels.select(*keys, relevance, maximum=relevance.max().clip(_MAXIMAL_GRADE))
    ranked = rank_candidates(judged).join(labels, on=keys, how="left", maintain_order="left")
    expressions = []
    for measure in measures:
        within = pl.col("rank") <= (pl.len() if measure.cutoff is None else measure.cutoff)
        value = RANKING_MEASURES[measure.family](measure, within, measure.level or level)
        expressions.append(value.alias(measure.name))
    values = ranked.group_by("question_id", maintain_order=True).agg(expressions)
    return {row.pop("question_id"): row for row in values.iter_rows(named=True)}


def _hits(within: pl.Expr, level: int) -> pl.Expr:
    """The ranks of the relevant candidates."""
    relevant = pl.col("relevance").fill_null(-1) >= level
    return pl.col("rank").filter(within & relevant).cast(pl.Float64)


def _reciprocal_rank(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    return (1 / _hits(within, level).min()).fill_null(0.0)


def _rank_biased_precision(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """(1 - p) * sum over relevant ranks i of p ** (i - 1) (Moffat and Zobel, 2008, equation 3)."""
    ranks = _hits(within, level)
    # polars 1.30 computes the power of a literal only once for all questions.
    persistence = ranks * 0 + measure.persistence
    return (1 - measure.persistence) * persistence.pow(ranks - 1).sum()


def _expected_reciprocal_rank(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """Sum over ranks r of 1/r times the probability that the user stops there (Chapelle et al., 2009).

    Grade g satisfies the user with probability (2^g - 1) / 2^m, m the maximal grade; a satisfied user stops.
    """
    grade = pl.col("relevance").clip(lower_bound=0).cast(pl.Float64)
    two = grade * 0 + 2
    # 2^(g - m) - 2^-m has no overflow.
    probability = two.pow(grade - pl.col("maximum")) - two.pow(-pl.col("maximum").cast(pl.Float64))
    satisfied = probability.fill_null(0.0)
    reads_on = (1 - satisfied).cum_prod().shift(1, fill_value=1.0)
    return (satisfied * reads_on / pl.col("rank")).filter(within).sum()


def _judged(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """The share of candidates in the qrels, with any label, among at most as many as the cutoff."""
    return pl.col("relevance").is_not_null().filter(within).mean()


# Family -> expression over a question's candidates (columns rank and relevance, null if unjudged), from the
# measure, a mask of the candidates within its cutoff, and the relevance level.
RANKING_MEASURES: dict[str, Callable[[Measure, pl.Expr, int], pl.Expr]] = {
    "RR": _reciprocal_rank,
    "RBP": _rank_biased_precision,
    "ERR": _expected_reciprocal_rank,
    "nERR": _expected_reciprocal_rank,  # divided by its value for the best ranking of the judged answers
    "Judged": _judged,
}
