"""A new measure: discounted cumulative gain, not normalized (Jarvelin and Kekalainen, 2002).

Measures that trec_eval lacks are computed from the ranking. `FAMILIES` has the form of the name. The value is
a polars expression over the candidates of one question in trec_eval's order, with their rank and relevance.
Ties, missing questions and unjudged candidates are handled as for every other measure.

    import dcg_measure
    aptool.evaluate(qrels, run, ["DCG", "DCG@10"])
"""

import math

import polars as pl

from aptool.evaluation.measures import RANKING_MEASURES
from aptool.evaluation.names import FAMILIES, Family, Measure


def discounted_cumulative_gain(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """Sum over ranks r of the grade divided by log2(r + 1)."""
    grade = pl.col("relevance").fill_null(0).clip(0).cast(pl.Float64)
    return (grade / (pl.col("rank") + 1).log(2)).filter(within).sum()


RANKING_MEASURES["DCG"] = discounted_cumulative_gain
FAMILIES["DCG"] = Family(None, ranking="DCG", parameters=(), highest=math.inf)
