"""Oracle upper bound of a run's candidates, and the gap of a measure between two splits."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl

from aptool.evaluation.compare import is_mean
from aptool.evaluation.evaluation import Evaluation, MeasureValues
from aptool.evaluation.measures import evaluate
from aptool.evaluation.names import measure_names
from aptool.evaluation.significance import CONFIDENCE, Interval, gap_interval

_COUNTS = ("set_recall", "num_rel", "num_rel_ret")


class Limits(NamedTuple):
    """The measures of a perfect re-ranking of a run's candidates."""

    recall: (
        float  # share of the relevant answers that are candidates, mean over questions; equals the best MAP
    )
    questions: int  # questions with a relevant answer
    without: int  # of these, questions without a relevant candidate
    relevant: int  # relevant answers of all questions
    found: int  # of these, answers that are candidates
    best: Mapping[str, float]  # each measure of the best order


def candidate_limits(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Iterable[str], *, level: int = 1
) -> Limits:
    """The measures of the best order: the highest relevance first, unjudged candidates last.

    The arguments are those of `measures.evaluate`; the scores of the run do not matter.
    """
    names = measure_names(measures)
    keys = ["question_id", "answer_id"]
    relevance = pl.col("relevance").fill_null(-1).clip(lower_bound=-1).cast(pl.Float64)
    best = run.select(keys).join(qrels.select(*keys, "relevance"), on=keys, how="left")
    evaluation = evaluate(qrels, best.select(*keys, score=relevance), [*names, *_COUNTS], level=level)
    answerable = evaluation.per_question.filter(pl.col("NumRel") > 0)
    return Limits(
        recall=evaluation.means["set_recall"],
        questions=answerable.height,
        without=answerable.filter(pl.col("NumRelRet") == 0).height,
        relevant=int(evaluation.means["num_rel"]),
        found=int(evaluation.means["num_rel_ret"]),
        best=MeasureValues({name: evaluation.means[name] for name in names}),
    )


class Gap(NamedTuple):
    """The mean of a measure on two splits."""

    dev: float
    test: float
    difference: float  # test minus dev
    interval: Interval | None  # bootstrap interval of the difference; None if a split has one question


def split_gaps(
    dev: Evaluation, test: Evaluation, measures: Iterable[str], *, confidence: float = CONFIDENCE
) -> dict[str, Gap]:
    """The gap between two evaluations of a system, by each measure that is a mean over questions."""
    gaps = {}
    for name in measures:
        if is_mean(name):
            columns = [evaluation.per_question[name].to_numpy() for evaluation in (dev, test)]
            several = min(map(len, columns)) > 1
            interval = gap_interval(*columns, confidence=confidence) if several else None
            gaps[name] = Gap(dev.means[name], test.means[name], test.means[name] - dev.means[name], interval)
    return gaps
