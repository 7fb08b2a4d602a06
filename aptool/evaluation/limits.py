"""Limits of the first stage: what the best order of a run's candidates would reach.

A reranker cannot rank what its candidates lack. The best order has the candidates of the highest relevance
first and those not judged last.
"""

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
    """How far any order of a run's candidates can get.

    Attributes:
        recall: share of the relevant answers that are candidates, mean over the questions of the qrels. It is
            the highest MAP as well: r of R relevant answers at the top have r / R.
        questions: how many questions have a relevant answer.
        without: how many of these have none among their candidates.
        relevant: relevant answers of all questions.
        found: how many of these are candidates.
        best: each measure of the best order.
    """

    recall: float
    questions: int
    without: int
    relevant: int
    found: int
    best: Mapping[str, float]


def candidate_limits(
    qrels: pl.DataFrame, run: pl.DataFrame, measures: Iterable[str], *, level: int = 1
) -> Limits:
    """The limits of a run's candidates.

    Args:
        qrels: question_id, answer_id, relevance.
        run: question_id, answer_id, score; the scores do not matter.
        measures: as in `measures.evaluate`.
        level: the lowest relevance that counts as relevant.

    Raises:
        AptoolError: as `measures.evaluate`.
    """
    names = measure_names(measures)
    keys = ["question_id", "answer_id"]
    relevance = pl.col("relevance").fill_null(-1).clip(lower_bound=-1).cast(pl.Float64)
    best = run.select(keys).join(qrels.select(*keys, "relevance"), on=keys, how="left")
    found = evaluate(qrels, best.select(*keys, score=relevance), [*names, *_COUNTS], level=level)
    answerable = found.per_question.filter(pl.col("NumRel") > 0)
    return Limits(
        recall=found.means["set_recall"],
        questions=answerable.height,
        without=answerable.filter(pl.col("NumRelRet") == 0).height,
        relevant=int(found.means["num_rel"]),
        found=int(found.means["num_rel_ret"]),
        best=MeasureValues({name: found.means[name] for name in names}),
    )


class Gap(NamedTuple):
    """A measure on two splits.

    Attributes:
        dev: mean on dev.
        test: mean on test.
        difference: test minus dev.
        interval: bootstrap interval of the difference; None where a split has one question.
    """

    dev: float
    test: float
    difference: float
    interval: Interval | None


def split_gaps(
    dev: Evaluation, test: Evaluation, measures: Iterable[str], *, confidence: float = CONFIDENCE
) -> dict[str, Gap]:
    """The gap by each measure that is a mean over questions.

    Args:
        dev: of a system's run on dev, with these measures.
        test: of its run on test.
        measures: names; sums and geometric means are left out.
        confidence: coverage of the intervals.
    """
    gaps = {}
    for name in measures:
        if is_mean(name):
            columns = [one.per_question[name].to_numpy() for one in (dev, test)]
            several = min(map(len, columns)) > 1
            interval = gap_interval(*columns, confidence=confidence) if several else None
            gaps[name] = Gap(dev.means[name], test.means[name], test.means[name] - dev.means[name], interval)
    return gaps
