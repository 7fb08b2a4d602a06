"""A new measure: expected reciprocal rank (Chapelle et al., 2009), with grades up to 4.

Measures that trec_eval lacks are computed from the ranking. `FAMILIES` has the form of the name. The value is
a polars expression over the candidates of one question in trec_eval's order, with their rank and relevance.
Ties, missing questions and unjudged candidates are handled as for every other measure.

    import err_measure
    aptool.evaluate(qrels, run, ["ERR", "ERR@10"])
"""

import polars as pl

from aptool.evaluation.names import FAMILIES, Family, Measure
from aptool.evaluation.rankings import RANKING_MEASURES

HIGHEST_GRADE = 4


def expected_reciprocal_rank(measure: Measure, within: pl.Expr, level: int) -> pl.Expr:
    """Sum over ranks r of 1/r times the probability that a user stops there.

    Grade g satisfies a user with probability (2^g - 1) / 2^4; a satisfied user stops.
    """
    grade = pl.col("relevance").fill_null(0).clip(0, HIGHEST_GRADE).cast(pl.Float64)
    satisfied = (pl.lit(2.0).pow(grade) - 1) / 2**HIGHEST_GRADE
    reads_on = (1 - satisfied).cum_prod().shift(1, fill_value=1.0)
    return (satisfied * reads_on / pl.col("rank")).filter(within).sum()


RANKING_MEASURES["ERR"] = expected_reciprocal_rank
FAMILIES["ERR"] = Family(None, ranking="ERR", parameters=())
