"""The evaluation of one run: its figures over all questions and over groups of questions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from aptool.errors import counted
from aptool.evaluation.averages import averages, mean_intervals
from aptool.evaluation.names import Naming, is_sum, name_in
from aptool.evaluation.notebook import html_table
from aptool.evaluation.significance import CONFIDENCE, Interval
from aptool.evaluation.values import MeasureValues

# The means of a group with fewer questions say little.
FEW_QUESTIONS = 10


@dataclass(frozen=True, repr=False)
class Group:
    """The figures of a run over a group of questions.

    Attributes:
        name: name of the group.
        per_question: the rows of `Evaluation.per_question` of these questions.
        means: each measure over these questions, as `Evaluation.means`.
    """

    name: str
    per_question: pl.DataFrame
    means: MeasureValues[float]

    @property
    def questions(self) -> int:
        """Number of questions."""
        return self.per_question.height

    @property
    def is_small(self) -> bool:
        """Whether the group has so few questions (under `FEW_QUESTIONS`) that its means say little."""
        return self.questions < FEW_QUESTIONS

    def intervals(self, confidence: float = CONFIDENCE, *, seed: int = 0) -> MeasureValues[Interval]:
        """Bootstrap confidence interval of each mean; see `Evaluation.intervals`."""
        return mean_intervals(self.per_question, confidence=confidence, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain values, for JSON."""
        return {"name": self.name, "questions": self.questions, "few": self.is_small, "means": self.means}

    def __repr__(self) -> str:
        few = ", few" if self.is_small else ""
        return f"Group({self.name!r}: {_figures(self.means)}; {counted(self.questions, 'question')}{few})"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The measures of one run.

    Attributes:
        per_question: question_id (str), candidates (i64: how many the run ranks, 0 if the question is
            missing) and one f64 column per measure; one row per question of the qrels, sorted by id as bytes.
        means: each measure over all questions of the qrels, as in trec_eval's ``all`` lines: the arithmetic
            mean, but the sum of ``Num*`` and the geometric mean of ``GMAP`` and ``gm_bpref``. Its keys are
            the columns of ``per_question``; any name of a measure finds its value.
        missing: ids of the questions missing from the run; each counts 0.
        extra: ids of the questions of the run that are not in the qrels; left out.
        unjudged: question_id, answer_id of the candidates of judged questions that have no judgement, or a
            negative one, sorted by both ids; they count as not relevant.
        groups: the figures of each group of questions, by its name; empty if no groups were given.
        ungrouped: ids of the questions that are in no group, if groups were given.
    """

    per_question: pl.DataFrame
    means: MeasureValues[float]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unjudged: pl.DataFrame
    groups: Mapping[str, Group] = field(default_factory=dict)
    ungrouped: tuple[str, ...] = ()

    def intervals(self, confidence: float = CONFIDENCE, *, seed: int = 0) -> MeasureValues[Interval]:
        """Bootstrap confidence interval of each mean (BCa, 10,000 resamples of the questions).

        Args:
            confidence: coverage of the intervals, 0.5 to 0.999.
            seed: seed of the resampling.
        """
        return mean_intervals(self.per_question, confidence=confidence, seed=seed)

    def grouped(self, groups: pl.DataFrame) -> "Evaluation":
        """The evaluation with the figures of each group of questions.

        Args:
            groups: question_id, group and position (the order of the groups), one row per question; questions
                of the qrels that it lacks are in no group.
        """
        without = self.per_question.join(groups, on="question_id", how="anti", maintain_order="left")
        return replace(
            self,
            groups=group_figures(self.per_question, groups),
            ungrouped=tuple(without["question_id"]),
        )

    def named(self, naming: Naming) -> "Evaluation":
        """The same figures under the names of another naming."""
        names = {name: name_in(naming, name) for name in self.means}
        return replace(
            self,
            per_question=self.per_question.rename(names),
            means=_renamed(self.means, names),
            groups={
                group.name: Group(group.name, group.per_question.rename(names), _renamed(group.means, names))
                for group in self.groups.values()
            },
        )

    def __repr__(self) -> str:
        groups = f", {counted(len(self.groups), 'group')}" if self.groups else ""
        return f"Evaluation({_figures(self.means)}; {self._questions()}{groups})"

    def _repr_html_(self) -> str:
        rows = [["", "questions", *self.means]]
        rows.append(["all", f"{self.per_question.height:,}", *_cells(self.means)])
        for group in self.groups.values():
            few = " (few)" if group.is_small else ""
            rows.append([group.name, f"{group.questions:,}{few}", *_cells(group.means)])
        return html_table(rows, self._questions())

    def _questions(self) -> str:
        """The number of questions, and of those that the run and the qrels do not share."""
        text = counted(self.per_question.height, "question")
        text += f", {len(self.missing):,} missing (counted as 0)" if self.missing else ""
        return text + (f", {len(self.extra):,} not judged (left out)" if self.extra else "")


def group_figures(per_question: pl.DataFrame, groups: pl.DataFrame) -> dict[str, Group]:
    """The figures of each group of questions, by its name, in the order of the groups.

    Args:
        per_question: question_id and one column per measure, as `Evaluation.per_question`.
        groups: question_id, group and position, one row per question; a question that it lacks is left out.
    """
    both = per_question.join(groups, on="question_id", how="inner").sort("position", "question_id")
    parts = both.partition_by("position", maintain_order=True)
    named = {str(part["group"][0]): part.drop("group", "position") for part in parts}
    return {name: Group(name, part, averages(part)) for name, part in named.items()}


def _renamed(means: Mapping[str, float], names: Mapping[str, str]) -> MeasureValues[float]:
    return MeasureValues({names[name]: value for name, value in means.items()})


def _figures(means: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {cell}" for name, cell in zip(means, _cells(means), strict=True))


def _cells(means: Mapping[str, float]) -> list[str]:
    return [f"{value:.0f}" if is_sum(name) else f"{value:.4f}" for name, value in means.items()]
