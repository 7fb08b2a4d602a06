"""Figures of a run from those of its questions: means, and their confidence intervals."""

import math

import polars as pl

from aptool.evaluation.names import is_geometric, is_sum
from aptool.evaluation.significance import CONFIDENCE, Interval, bootstrap_interval
from aptool.evaluation.values import MeasureValues

# The columns of a per-question frame that are not measures.
_NOT_MEASURES = ("question_id", "candidates")


def averages(per_question: pl.DataFrame) -> MeasureValues[float]:
    """Each measure over the questions of ``per_question``, as in trec_eval's ``all`` lines.

    Args:
        per_question: question_id and one column per measure, as in `Evaluation.per_question`; not empty.

    Returns:
        The sum of ``Num*``, the geometric mean of ``GMAP`` and ``gm_bpref``, the arithmetic mean of all
        others. Sums are rounded once (`math.fsum`), so they do not depend on the order of the questions.
    """
    result: MeasureValues[float] = MeasureValues()
    for column in per_question.select(_measures_of(per_question)):
        if is_sum(column.name):
            result[column.name] = math.fsum(column)
        elif is_geometric(column.name):
            result[column.name] = math.exp(math.fsum(map(math.log, column)) / len(column))
        else:
            result[column.name] = math.fsum(column) / len(column)
    return result


def mean_intervals(
    per_question: pl.DataFrame, *, confidence: float = CONFIDENCE, seed: int = 0
) -> MeasureValues[Interval]:
    """Bootstrap intervals of the figures of `averages`.

    For a sum (``Num*``) it is the interval of the mean times the number of questions; for a geometric mean
    (``GMAP``) that of the mean logarithm, exponentiated. BCa intervals are invariant to such transformations.

    Args:
        per_question: question_id and one column per measure, as in `Evaluation.per_question`; not empty.
        confidence: coverage of the intervals.
        seed: seed of the resampling, which is the same for all measures.
    """
    intervals: MeasureValues[Interval] = MeasureValues()
    for name in _measures_of(per_question):
        column = per_question[name].to_numpy()
        if is_sum(name):
            low, high = bootstrap_interval(column, confidence=confidence, seed=seed)
            intervals[name] = Interval(low * len(column), high * len(column))
        elif is_geometric(name):
            logarithms = per_question[name].log().to_numpy()
            low, high = bootstrap_interval(logarithms, confidence=confidence, seed=seed)
            intervals[name] = Interval(math.exp(low), math.exp(high))
        else:
            intervals[name] = bootstrap_interval(column, confidence=confidence, seed=seed)
    return intervals


def _measures_of(per_question: pl.DataFrame) -> list[str]:
    return [name for name in per_question.columns if name not in _NOT_MEASURES]
