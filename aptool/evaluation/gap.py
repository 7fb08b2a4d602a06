"""The gap between two splits: how far a system's figures on test are from those on dev.

The questions are different ones, so the interval is of two independent samples. It has the variance of the
questions alone: the figures on dev are too high as well where they chose the epoch or the recipe.
"""

from collections.abc import Iterable
from typing import NamedTuple

from aptool.evaluation.compare import is_mean
from aptool.evaluation.evaluation import Evaluation
from aptool.evaluation.significance import CONFIDENCE, Interval, gap_interval


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
