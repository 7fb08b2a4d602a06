"""The evaluation of a run over all questions and over groups of questions, and its means and intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from typing_extensions import override

from aptool.environment import Tabular
from aptool.errors import counted
from aptool.evaluation.names import is_mean
from aptool.evaluation.significance import CONFIDENCE, Interval, bootstrap_interval

# The columns of `Evaluation.per_question` that are not measures.
_NOT_MEASURES = ("question_id", "candidates")


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """The measures of one run; a table of the means in a notebook.

    Attributes:
        per_question: one row per question of the qrels, sorted by id: question_id (str), candidates (i64: the
            number of ranked answers) and one f64 column per measure.
        means: each measure by its printed name over all questions of the qrels, as trec_eval prints it: the
            mean, or the sum for ``Num*``.
        missing: ids of the questions that the run lacks; each counts 0.
        extra: ids of the questions of the run that are not in the qrels; ignored.
        unjudged: question_id, answer_id of the candidates without a judgement of 0 or more; not relevant.
        groups: the rows of ``per_question`` in each group of questions by name; empty without groups.
    """

    per_question: pl.DataFrame
    means: dict[str, float]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unjudged: pl.DataFrame
    groups: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def intervals(self, confidence: float = CONFIDENCE) -> dict[str, Interval]:
        """Compute the BCa bootstrap interval of each mean from 10,000 resamples of the questions."""
        return mean_intervals(self.per_question, confidence)

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return the means over all questions and over each group: group (null: all), questions, measures."""
        rows: list[dict[str, Any]] = [
            {"group": name, "questions": frame.height, **averages(frame)}
            for name, frame in ((None, self.per_question), *self.groups.items())
        ]
        return pl.DataFrame(rows, schema_overrides={"group": pl.String})

    @override
    def __repr__(self) -> str:
        means = ", ".join(f"{name} {shown_mean(name, value)}" for name, value in self.means.items())
        return f"Evaluation({means}; {counted(self.per_question.height, 'question')})"


def shown_mean(measure: str, value: float) -> str:
    """The text of a mean or a sum."""
    return f"{value:.4f}" if is_mean(measure) else f"{value:.0f}"


def mean_over_runs(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The mean of each question over several `Evaluation.per_question`, such as those of several seeds."""
    return pl.concat(tables).group_by("question_id", maintain_order=True).mean()


def in_groups(per_question: pl.DataFrame, groups: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of each group of questions, by the name of the group and in the order of the groups.

    ``groups`` has question_id, group (str) and position (i64: the order of the groups).
    """
    both = per_question.join(groups, on="question_id", how="inner").sort("position", "question_id")
    parts = both.partition_by("position", maintain_order=True)
    return {str(part["group"][0]): part.drop("group", "position") for part in parts}


def averages(per_question: pl.DataFrame) -> dict[str, float]:
    """`Evaluation.means` of a non-empty `Evaluation.per_question`.

    `math.fsum` rounds once, so the order of the questions does not matter.
    """
    result = {}
    for column in per_question.drop(_NOT_MEASURES, strict=False):
        total = math.fsum(column)
        result[column.name] = total / len(column) if is_mean(column.name) else total
    return result


def mean_intervals(per_question: pl.DataFrame, confidence: float = CONFIDENCE) -> dict[str, Interval]:
    """Bootstrap intervals of `averages`, with the same resamples for all measures.

    The interval of a sum is that of the mean times the number of questions.
    """
    intervals = {}
    for column in per_question.drop(_NOT_MEASURES, strict=False):
        interval = bootstrap_interval(column.to_numpy(), confidence=confidence)
        if not is_mean(column.name):
            interval = Interval(interval.low * len(column), interval.high * len(column))
        intervals[column.name] = interval
    return intervals
