"""The evaluation of a run over all questions and over groups of questions, and its means and intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, TypeVar

import polars as pl
from typing_extensions import override

from aptool.errors import counted
from aptool.evaluation.names import is_mean, printed_name
from aptool.evaluation.significance import CONFIDENCE, Interval, bootstrap_interval
from aptool.version import Tabular

# Means of groups with fewer questions are unreliable.
FEW_QUESTIONS = 10

# The columns of `Evaluation.per_question` that are not measures.
_NOT_MEASURES = ("question_id", "candidates")

Value = TypeVar("Value")


class MeasureValues(dict[str, Value]):
    """A dict of values by the printed names of measures that accepts every name of a measure.

    ``means["MAP"]`` and ``means["AP"]`` are the same value.
    """

    def __missing__(self, name: str) -> Value:
        printed = printed_name(name) if isinstance(name, str) else None
        if printed is None or not super().__contains__(printed):
            raise KeyError(f"{name!r}: expected one of {', '.join(self)}")
        return self[printed]

    def __contains__(self, name: object) -> bool:
        printed = printed_name(name) if isinstance(name, str) else None
        return super().__contains__(name) or super().__contains__(printed)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a measure by any of its names, or ``default``."""
        try:
            return self[name]
        except KeyError:
            return default


@dataclass(frozen=True, repr=False)
class Group:
    """The evaluation of a run over a group of questions; the attributes are those of `Evaluation`."""

    name: str
    per_question: pl.DataFrame
    means: MeasureValues[float]

    @property
    def questions(self) -> int:
        """Number of questions."""
        return self.per_question.height

    @property
    def is_small(self) -> bool:
        """Whether the group has fewer than 10 questions: its means are unreliable."""
        return self.questions < FEW_QUESTIONS

    def intervals(self, confidence: float = CONFIDENCE, *, seed: int = 0) -> MeasureValues[Interval]:
        """Compute the bootstrap interval of each mean; arguments as in `Evaluation.intervals`."""
        return mean_intervals(self.per_question, confidence=confidence, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Name, number of questions and means as plain values, for JSON."""
        return {"name": self.name, "questions": self.questions, "few": self.is_small, "means": self.means}

    def __repr__(self) -> str:
        few = ", few" if self.is_small else ""
        return f"Group({self.name!r}: {_values(self.means)}; {counted(self.questions, 'question')}{few})"


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """The measures of one run; a table of the means in a notebook.

    Attributes:
        per_question: one row per question of the qrels, sorted by id: question_id (str), candidates (i64: the
            number of ranked answers) and one f64 column per measure.
        means: each measure over all questions of the qrels, as trec_eval prints it: the mean, or the sum for
            ``Num*``. Any name of a measure works.
        missing: ids of the questions that the run lacks; each counts 0.
        extra: ids of the questions of the run that are not in the qrels; ignored.
        unjudged: question_id, answer_id of the candidates without a judgement of 0 or more; not relevant.
        groups: the evaluation of each group of questions by name; empty without groups.
        ungrouped: ids of the questions in no group; empty without groups.
    """

    per_question: pl.DataFrame
    means: MeasureValues[float]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unjudged: pl.DataFrame
    groups: Mapping[str, Group] = field(default_factory=dict)
    ungrouped: tuple[str, ...] = ()

    def intervals(self, confidence: float = CONFIDENCE, *, seed: int = 0) -> MeasureValues[Interval]:
        """Compute the BCa bootstrap interval of each mean from 10,000 resamples of the questions.

        Args:
            confidence: coverage of the intervals, 0.5 to 0.999.
            seed: random seed of the resampling.
        """
        return mean_intervals(self.per_question, confidence=confidence, seed=seed)

    def grouped(self, groups: pl.DataFrame) -> "Evaluation":
        """The evaluation with groups of questions: question_id, group, position (order of the groups)."""
        without = self.per_question.join(groups, on="question_id", how="anti", maintain_order="left")
        return replace(
            self,
            groups=evaluate_groups(self.per_question, groups),
            ungrouped=tuple(without["question_id"]),
        )

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return the means over all questions and over each group: group (null: all), questions, measures."""
        everything = {"group": None, "questions": self.per_question.height, **self.means}
        groups = [
            {"group": name, "questions": group.questions, **group.means}
            for name, group in self.groups.items()
        ]
        return pl.DataFrame([everything, *groups], schema_overrides={"group": pl.String})

    @override
    def __repr__(self) -> str:
        groups = f", {counted(len(self.groups), 'group')}" if self.groups else ""
        return f"Evaluation({_values(self.means)}; {self._questions()}{groups})"

    @override
    def _repr_html_(self) -> str:
        rows = [["", "questions", *self.means]]
        rows.append(["all", f"{self.per_question.height:,}", *_cells(self.means)])
        for group in self.groups.values():
            few = " (few)" if group.is_small else ""
            rows.append([group.name, f"{group.questions:,}{few}", *_cells(group.means)])
        return html_table(rows, self._questions())

    def _questions(self) -> str:
        """The number of questions, and of the questions that only the run or only the qrels have."""
        text = counted(self.per_question.height, "question")
        text += f", {len(self.missing):,} missing (counted as 0)" if self.missing else ""
        return text + (f", {len(self.extra):,} not judged (left out)" if self.extra else "")


def mean_over_runs(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The mean of each question over several `Evaluation.per_question`, such as those of several seeds."""
    return pl.concat(tables).group_by("question_id", maintain_order=True).mean()


def evaluate_groups(per_question: pl.DataFrame, groups: pl.DataFrame) -> dict[str, Group]:
    """Evaluate groups of questions by name, in order; see `Evaluation.grouped`."""
    both = per_question.join(groups, on="question_id", how="inner").sort("position", "question_id")
    parts = both.partition_by("position", maintain_order=True)
    named = {str(part["group"][0]): part.drop("group", "position") for part in parts}
    return {name: Group(name, part, averages(part)) for name, part in named.items()}


def _values(means: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {cell}" for name, cell in zip(means, _cells(means), strict=True))


def _cells(means: Mapping[str, float]) -> list[str]:
    return [f"{value:.4f}" if is_mean(name) else f"{value:.0f}" for name, value in means.items()]


def averages(per_question: pl.DataFrame) -> MeasureValues[float]:
    """`Evaluation.means` of a non-empty `Evaluation.per_question`.

    `math.fsum` rounds once, so the order of the questions does not matter.
    """
    result: MeasureValues[float] = MeasureValues()
    for column in per_question.select(_measures_of(per_question)):
        total = math.fsum(column)
        result[column.name] = total / len(column) if is_mean(column.name) else total
    return result


def mean_intervals(
    per_question: pl.DataFrame, *, confidence: float = CONFIDENCE, seed: int = 0
) -> MeasureValues[Interval]:
    """Bootstrap intervals of `averages`, with the same resamples for all measures.

    The interval of a sum is that of the mean times the number of questions.
    """
    intervals: MeasureValues[Interval] = MeasureValues()
    for name in _measures_of(per_question):
        column = per_question[name].to_numpy()
        interval = bootstrap_interval(column, confidence=confidence, seed=seed)
        if not is_mean(name):
            interval = Interval(interval.low * len(column), interval.high * len(column))
        intervals[name] = interval
    return intervals


def _measures_of(per_question: pl.DataFrame) -> list[str]:
    return [name for name in per_question.columns if name not in _NOT_MEASURES]


def html_table(rows: Sequence[Sequence[str]], caption: str, left: int = 1) -> str:
    """An HTML table: the first row holds the titles, ``left`` leading columns are left-aligned."""

    def row(cells: Sequence[str], tag: str) -> str:
        sides = ["left"] * left + ["right"] * (len(cells) - left)
        columns = zip(cells, sides, strict=True)
        text = "".join(f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>' for cell, side in columns)
        return f"<tr>{text}</tr>"

    body = "".join(row(cells, "td") for cells in rows[1:])
    return (
        f'<table><caption style="text-align: left">{escape(caption)}</caption>'
        f"<thead>{row(rows[0], 'th')}</thead><tbody>{body}</tbody></table>"
    )
