"""Systems side by side: intervals of their means, and each against a baseline, question by question."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from aptool.errors import UsageError
from aptool.evaluation.significance import (
    CONFIDENCE,
    PERMUTATIONS,
    Interval,
    Paired,
    bootstrap_interval,
    compare_paired,
    holm,
)
from aptool.formats.trec import rank_candidates

# Of the columns of a per-question frame, those that are no measures.
_NOT_MEASURES = ("question_id", "candidates")


class Comparison(NamedTuple):
    """A system against the baseline by one measure, with p-values corrected for all comparisons made."""

    system: str
    measure: str
    paired: Paired
    permutation_holm: float
    t_holm: float

    @property
    def p(self) -> float:
        """Of the paired permutation test, two-sided, not corrected."""
        return self.paired.permutation.p

    @property
    def difference(self) -> float:
        """The mean of the system less that of the baseline."""
        return self.paired.difference

    @property
    def interval(self) -> Interval:
        """The bootstrap interval of the difference."""
        return self.paired.interval

    @property
    def effect(self) -> float:
        """Cohen's d of the differences."""
        return self.paired.effect


class Move(NamedTuple):
    """A question that one system answers better than the other.

    Attributes:
        question_id: the question.
        before: the baseline's measure of it.
        after: the system's.
        right: the right answer that the better of the two ranks highest; None if it ranks none.
        right_before: the baseline's rank of that answer, from 1; None if it does not rank it.
        right_after: the system's.
        first_before: the answer that the baseline ranks first; None if it lacks the question.
        first_after: the system's.
    """

    question_id: str
    before: float
    after: float
    right: str | None
    right_before: int | None
    right_after: int | None
    first_before: str | None
    first_after: str | None

    @property
    def change(self) -> float:
        """The system's measure less the baseline's."""
        return self.after - self.before


class Deltas(NamedTuple):
    """The questions that moved most between the baseline and a system."""

    system: str
    measure: str
    better: int  # how many of all questions
    worse: int
    gained: list[Move]
    lost: list[Move]


def mean_intervals(
    per_question: pl.DataFrame, *, confidence: float = CONFIDENCE, seed: int = 0
) -> dict[str, Interval]:
    """Bootstrap intervals of what `metrics.averages` says of each measure.

    For a sum (``num_*``) it is the interval of the mean, times the number of questions; for a geometric mean
    (``gm_*``) that of the mean logarithm, exponentiated. BCa intervals follow such changes of scale exactly.

    Args:
        per_question: question_id and one column a measure, as `metrics.Evaluation` has them; not empty.
        confidence: the wanted coverage.
        seed: of the resampling, which is the same for all measures.
    """
    intervals = {}
    for name in _measures_of(per_question):
        column = per_question[name].to_numpy()
        if name.startswith("num_"):
            low, high = bootstrap_interval(column, confidence=confidence, seed=seed)
            intervals[name] = Interval(low * len(column), high * len(column))
        elif name.startswith("gm_"):
            logarithms = per_question[name].log().to_numpy()
            low, high = bootstrap_interval(logarithms, confidence=confidence, seed=seed)
            intervals[name] = Interval(math.exp(low), math.exp(high))
        else:
            intervals[name] = bootstrap_interval(column, confidence=confidence, seed=seed)
    return intervals


def check_comparable(measures: Iterable[str]) -> None:
    """Refuses measures that are no means over questions, whose differences the tests say nothing of.

    Raises:
        UsageError: names them.
    """
    others = [name for name in measures if name.startswith(("num_", "gm_"))]
    if others:
        raise UsageError(f"not means over questions, so nothing to test: {', '.join(others)}")


def compare(
    baseline: pl.DataFrame,
    systems: Mapping[str, pl.DataFrame],
    measures: Sequence[str],
    *,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> list[Comparison]:
    """Compares every system with the baseline by every measure.

    Holm's correction is over all of these comparisons, for each of the two tests by itself.

    Args:
        baseline: question_id and one column a measure, as `metrics.Evaluation.per_question`.
        systems: the same of each system, over the same questions in any order.
        measures: means over questions; see `check_comparable`.
        confidence: of the intervals of the differences.
        permutations: see `significance.permutation_test`.
        seed: of all that is drawn.

    Returns:
        One comparison a measure and system, measure by measure.

    Raises:
        UsageError: a measure is no mean.
        ValueError: the questions differ.
    """
    check_comparable(measures)
    pairs = {name: _paired_frame(baseline, frame, measures) for name, frame in systems.items()}
    results = [
        (
            name,
            measure,
            compare_paired(
                both[measure].to_numpy(),
                both[measure + "_after"].to_numpy(),
                confidence=confidence,
                permutations=permutations,
                seed=seed,
            ),
        )
        for measure in measures
        for name, both in pairs.items()
    ]
    permutation = holm([paired.permutation.p for _, _, paired in results])
    t = holm([paired.t_test.p for _, _, paired in results])
    return [
        Comparison(name, measure, paired, corrected, corrected_t)
        for (name, measure, paired), corrected, corrected_t in zip(results, permutation, t, strict=True)
    ]


def moves(baseline: pl.DataFrame, system: pl.DataFrame, measure: str) -> pl.DataFrame:
    """The questions on which two systems differ, those that moved most first, equal moves by id.

    Args:
        baseline: question_id and one column a measure.
        system: the same, over the same questions.
        measure: which of the columns.

    Returns:
        question_id (str), before (f64), after (f64), change (f64: after less before, never 0).
    """
    both = _paired_frame(baseline, system, [measure])
    after = pl.col(measure + "_after")
    moved = both.select("question_id", before=measure, after=after, change=after - pl.col(measure))
    moved = moved.filter(pl.col("change").abs() > 1e-12)
    return moved.sort(-pl.col("change").abs().round(12), "question_id")


def moved_most(
    name: str,
    measure: str,
    top: int,
    tables: tuple[pl.DataFrame, pl.DataFrame],
    runs: tuple[pl.DataFrame, pl.DataFrame],
    qrels: pl.DataFrame,
) -> Deltas:
    """The questions that gained and lost most.

    Args:
        name: of the system.
        measure: the measure that they moved in.
        top: how many at most that gained, and as many that lost.
        tables: question_id and one column a measure, of the baseline and of the system.
        runs: question_id, answer_id, score, likewise.
        qrels: question_id, answer_id, relevance.
    """
    moved = moves(*tables, measure)
    better, worse = moved.filter(pl.col("change") > 0), moved.filter(pl.col("change") < 0)
    gained, lost = (explain_moves(part.head(top), qrels, *runs) for part in (better, worse))
    return Deltas(name, measure, better.height, worse.height, gained, lost)


def explain_moves(
    moved: pl.DataFrame, qrels: pl.DataFrame, baseline_run: pl.DataFrame, system_run: pl.DataFrame
) -> list[Move]:
    """What happened to the right answer of each question that moved.

    Args:
        moved: rows of `moves`.
        qrels: question_id, answer_id, relevance.
        baseline_run: question_id, answer_id, score.
        system_run: question_id, answer_id, score.
    """
    wanted = moved.select("question_id")
    before, after = (
        rank_candidates(run.join(wanted, on="question_id", how="semi")) for run in (baseline_run, system_run)
    )
    right = qrels.filter(pl.col("relevance") > 0).join(wanted, on="question_id", how="semi")
    keys = ["question_id", "answer_id"]
    ranks = (
        right.select(keys)
        .join(before.select(*keys, before="rank"), on=keys, how="left")
        .join(after.select(*keys, after="rank"), on=keys, how="left")
        .partition_by("question_id", as_dict=True)
    )
    firsts = [dict(run.filter(pl.col("rank") == 1).select(keys).iter_rows()) for run in (before, after)]
    return [
        Move(
            question,
            old,
            new,
            *_best(ranks.get((question,)), "after" if change > 0 else "before"),
            firsts[0].get(question),
            firsts[1].get(question),
        )
        for question, old, new, change in moved.iter_rows()
    ]


def _best(ranks: pl.DataFrame | None, better: str) -> tuple[str | None, int | None, int | None]:
    """The right answer with the best rank in column ``better``, and its rank before and after."""
    ranked = pl.DataFrame() if ranks is None else ranks.filter(pl.col(better).is_not_null())
    if ranked.is_empty():
        return None, None, None
    row = ranked.sort(better).row(0, named=True)
    return row["answer_id"], row["before"], row["after"]


def _measures_of(per_question: pl.DataFrame) -> list[str]:
    return [name for name in per_question.columns if name not in _NOT_MEASURES]


def _paired_frame(baseline: pl.DataFrame, system: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """question_id, the baseline's measures, and the system's with ``_after`` added to their names."""
    columns = ["question_id", *measures]
    before, after = baseline.select(columns), system.select(columns)
    both = before.join(after, on="question_id", how="inner", suffix="_after", maintain_order="left")
    if not both.height == before.height == after.height:
        raise ValueError(f"{before.height} and {after.height} questions, {both.height} of them the same")
    return both
