"""Paired comparison of systems with a baseline, and the questions with the largest differences."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, overload

import polars as pl
from typing_extensions import override

from aptool.data.runs import AnyQrels, AnyRun, Qrels, Run, as_qrels, as_run
from aptool.data.trec import rank_candidates
from aptool.errors import AptoolError, UsageError, counted, first_few
from aptool.evaluation.evaluation import Evaluation, html_table
from aptool.evaluation.measures import evaluate
from aptool.evaluation.names import is_mean, measure_names
from aptool.evaluation.significance import (
    CONFIDENCE,
    HIGHEST_CONFIDENCE,
    LOWEST_CONFIDENCE,
    PERMUTATIONS,
    Interval,
    Paired,
    compare_paired,
    detectable_effect,
    holm,
)
from aptool.version import Tabular


class Comparison(NamedTuple):
    """A system compared with the baseline by one measure; the p-values have Holm's correction."""

    system: str
    measure: str
    paired: Paired  # both means, the interval, wins, ties and losses, the effect size and both tests
    permutation_holm: float  # p-value of the permutation test
    t_holm: float  # p-value of the paired t-test
    deviation: float  # sample standard deviation of the differences per question; NaN for one question

    @property
    def p(self) -> float:
        """Two-sided p-value of the paired permutation test, without correction."""
        return self.paired.permutation.p

    @property
    def difference(self) -> float:
        """The system's mean minus the baseline's."""
        return self.paired.difference

    @property
    def interval(self) -> Interval:
        """Bootstrap interval of the mean difference."""
        return self.paired.interval

    @property
    def effect(self) -> float:
        """Cohen's d of the differences, for paired samples."""
        return self.paired.effect

    def detectable(self, confidence: float = CONFIDENCE) -> float | None:
        """The smallest true mean difference that a paired t-test detects with power 0.8.

        None for one question, or if all questions differ by the same amount. For few questions, it may be
        above the largest difference that the measure allows. ``confidence`` is 1 minus the level of the test,
        0.5 to 0.999.
        """
        if not LOWEST_CONFIDENCE <= confidence <= HIGHEST_CONFIDENCE:
            expected = f"a number from {LOWEST_CONFIDENCE} to {HIGHEST_CONFIDENCE}"
            raise UsageError(f"confidence is {confidence}: expected {expected}")
        if not self.deviation > 0:
            return None
        return detectable_effect(self.paired.questions, alpha=1 - confidence) * self.deviation

    def significant(self, confidence: float = CONFIDENCE) -> bool:
        """Whether the systems differ significantly by the corrected permutation test."""
        return self.permutation_holm <= 1 - confidence

    def __repr__(self) -> str:
        titles, row = TITLES[2:], table_row(self)[2:]
        cells = ", ".join(f"{title} {cell}" for title, cell in zip(titles, row, strict=True))
        return f"Comparison({self.system!r}, {self.measure}: {cells})"

    def _repr_html_(self) -> str:
        return html_of([self])


def shown_detectable(difference: float | None) -> str:
    """The text of `Comparison.detectable`: ``above 1`` if no two systems can differ by so much."""
    if difference is None:
        return "none"
    return "above 1" if difference > 1 else f"{difference:.4f}"


def shown_p(p: float) -> str:
    """The text of a p-value, which is never 0."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def verdict(baseline: str, system: str, comparison: Comparison, confidence: float = CONFIDENCE) -> str:
    """Whether a system is significantly better or worse than the baseline, in words, with the shown names."""
    shown = shown_p(comparison.permutation_holm)
    p = f"p {shown}" if shown.startswith("<") else f"p = {shown}"
    if not comparison.significant(confidence):
        return f"{system} and {baseline} do not differ significantly ({p})"
    way = "better" if comparison.difference > 0 else "worse"
    return f"{system} is significantly {way} than {baseline}, by {abs(comparison.difference):.4f} ({p})"


TITLES = ["system", "measure", "baseline", "mean", "difference", "interval", "p", "p (Holm)"]


def table_row(comparison: Comparison) -> list[str]:
    """The cells of a comparison, under `TITLES`."""
    paired = comparison.paired
    low, high = paired.interval
    means = [f"{paired.baseline:.4f}", f"{paired.system:.4f}", f"{paired.difference:+.4f}"]
    p_values = map(shown_p, (comparison.p, comparison.permutation_holm))
    return [comparison.system, comparison.measure, *means, f"[{low:+.4f}, {high:+.4f}]", *p_values]


def html_of(comparisons: Sequence[Comparison]) -> str:
    """Comparisons as an HTML table."""
    questions = counted(comparisons[0].paired.questions, "question") if comparisons else "no comparison"
    p = f"p of the paired permutation test, Holm's correction for {counted(len(comparisons), 'comparison')}"
    return html_table([TITLES, *map(table_row, comparisons)], f"{questions}; {p}", left=2)


class Comparisons(list[Comparison], Tabular):
    """Comparisons with one baseline; a table when printed.

    Attributes:
        evaluations: of the baseline, then of the systems.
    """

    def __init__(self, comparisons: Iterable[Comparison], evaluations: Sequence[Evaluation]) -> None:
        super().__init__(comparisons)
        self.evaluations = evaluations

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return one row per comparison: means, difference with its interval, tests, wins, ties, losses."""
        means = ("system", "measure", "questions", "baseline", "mean", "difference", "low", "high")
        tests = ("p", "p_holm", "t_test_p", "t_test_p_holm", "effect", "wins", "ties", "losses")
        rows = []
        for comparison in self:
            paired = comparison.paired
            values = (paired.questions, paired.baseline, paired.system, paired.difference, *paired.interval)
            permutation = (paired.permutation.p, comparison.permutation_holm)
            p_values = (*permutation, paired.t_test.p, comparison.t_holm)
            counts = (paired.wins, paired.ties, paired.losses)
            rows.append((comparison.system, comparison.measure, *values, *p_values, paired.effect, *counts))
        return pl.DataFrame(rows, schema=[*means, *tests], orient="row")

    @override
    def __repr__(self) -> str:
        rows = [TITLES, *map(table_row, self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if number < 2 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )

    @override
    def _repr_html_(self) -> str:
        return html_of(self)


class QuestionDelta(NamedTuple):
    """A question with different measures under the baseline (before) and a system (after)."""

    question_id: str
    before: float
    after: float
    relevant: str | None  # the relevant answer that the better system ranks highest
    rank_before: int | None  # rank of that answer, from 1
    rank_after: int | None
    first_before: str | None  # the answer ranked first; None if the run lacks the question
    first_after: str | None


class Deltas(NamedTuple):
    """The questions with the largest differences between the baseline and a system."""

    system: str
    measure: str
    better: int  # number of questions with a higher measure, including those not listed
    worse: int
    gained: list[QuestionDelta]
    lost: list[QuestionDelta]


def check_comparable(measures: Iterable[str]) -> None:
    """Raise if a measure is not a mean over questions, as the paired tests require."""
    invalid = [name for name in measures if not is_mean(name)]
    if invalid:
        raise UsageError(
            f"{', '.join(invalid)}: not means over questions; expected measures for paired tests"
        )


def check_same_questions(
    baseline: str, baseline_missing: Sequence[str], run: str, missing: Sequence[str]
) -> None:
    """Raise if two runs lack different questions, which would count 0 in only one of the runs."""
    only_baseline = [question for question in missing if question not in set(baseline_missing)]
    only_run = [question for question in baseline_missing if question not in set(missing)]
    parts = []
    if only_baseline:
        parts.append(f"lacks {len(only_baseline)} questions of {baseline} ({first_few(only_baseline)})")
    if only_run:
        parts.append(f"has {len(only_run)} that {baseline} lacks ({first_few(only_run)})")
    if parts:
        expected = "the same questions, or a comparison on the common ones (on-common)"
        raise AptoolError(f"{run}: {' and '.join(parts)}; expected {expected}")


def differing_candidates(before: pl.DataFrame, after: pl.DataFrame, qrels: pl.DataFrame) -> list[str]:
    """The questions of the qrels for which two runs rank different candidates, sorted."""
    keys = ["question_id", "answer_id"]
    differing = pl.concat(
        run.select(keys).join(other, on=keys, how="anti") for run, other in ((before, after), (after, before))
    )
    return differing.join(qrels, on="question_id", how="semi")["question_id"].unique().sort().to_list()


@overload
def compare(
    baseline: AnyRun,
    systems: AnyRun,
    qrels: AnyQrels,
    measures: str = ...,
    *,
    level: int = ...,
    on_common: bool = ...,
    confidence: float = ...,
    permutations: int = ...,
    seed: int = ...,
) -> Comparison: ...


@overload
def compare(
    baseline: AnyRun,
    systems: AnyRun | Sequence[AnyRun],
    qrels: AnyQrels,
    measures: str | Iterable[str] = ...,
    *,
    level: int = ...,
    on_common: bool = ...,
    confidence: float = ...,
    permutations: int = ...,
    seed: int = ...,
) -> Comparison | Comparisons: ...


def compare(
    baseline: AnyRun,
    systems: AnyRun | Sequence[AnyRun],
    qrels: AnyQrels,
    measures: str | Iterable[str] = "MAP",
    *,
    level: int = 1,
    on_common: bool = False,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Comparison | Comparisons:
    """Test whether runs differ from a baseline, with paired tests over the questions.

    Args:
        baseline: the run to compare with: ``Run``, a file or a dict.
        systems: a run, or a list of runs.
        qrels: judgements: ``Qrels``, a file or a dict.
        measures: a measure, or a list of measures; names as in ``evaluate``.
        level: the lowest relevance that counts as relevant, as in ``evaluate``.
        on_common: whether to compare only the questions that every run ranks. Otherwise runs that lack
            different questions are an error.
        confidence: coverage of the intervals, 0.5 to 0.999.
        permutations: number of random permutations if the permutation test cannot be exact.
        seed: random seed of the intervals and the tests.

    Returns:
        A comparison for one run and one measure; otherwise a list, ordered by measure, which notebooks show
        as a table. A comparison has ``difference`` (mean of the system minus mean of the baseline),
        ``interval`` (BCa bootstrap), ``p`` (paired permutation test), ``permutation_holm`` (``p`` after
        Holm's correction for the list), ``effect`` (Cohen's d), ``detectable()`` and ``paired``.

    Raises:
        AptoolError: a measure is unknown or is not a mean over questions, or the runs lack different
            questions.

    Example:
        >>> qrels = {f"q{n}": {"a": 1, "b": 0} for n in range(6)}
        >>> right = {f"q{n}": {"a": 0.9, "b": 0.2} for n in range(6)}
        >>> wrong = {f"q{n}": {"a": 0.1, "b": 0.4} for n in range(6)}
        >>> comparison = aptool.compare(wrong, right, qrels, "P@1")
        >>> comparison.difference, comparison.p
        (1.0, 0.03125)
    """
    names = measure_names(measures)
    check_comparable(names)
    several = isinstance(systems, Sequence) and not isinstance(systems, str)
    given: Sequence[Any] = systems if isinstance(systems, Sequence) and several else [systems]
    if not given:
        raise UsageError("systems: none given; expected at least one run")
    runs = [as_run(run) for run in (baseline, *given)]
    judgements = as_qrels(qrels)
    if on_common:
        judgements, runs = _on_common(judgements, runs)
    evaluations = [evaluate(judgements, run, names, level=level) for run in runs]
    (first, *others), (reference, *measured) = runs, evaluations
    for run, evaluation in zip(others, measured, strict=True):
        check_same_questions(first.label, reference.missing, run.label, evaluation.missing)
    tags = _distinct([run.tag for run in runs])
    comparisons = compare_tables(
        reference.per_question,
        {tag: evaluation.per_question for tag, evaluation in zip(tags[1:], measured, strict=True)},
        names,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
    )
    if several or not isinstance(measures, str):
        return Comparisons(comparisons, evaluations)
    return comparisons[0]


def _on_common(qrels: Qrels, runs: Sequence[Run]) -> tuple[Qrels, list[Run]]:
    """Restrict qrels and runs to the judged questions that every run ranks."""
    judged = qrels.frame.select("question_id").unique()
    common = judged
    for run in runs:
        common = common.join(run.frame, on="question_id", how="semi")
    if common.is_empty():
        labels = ", ".join(run.label for run in runs)
        raise AptoolError(f"{labels}: no question of the qrels is in all of these runs")
    left_out = judged.join(common, on="question_id", how="anti")
    remaining = [copy.copy(run) for run in runs]
    for run in remaining:
        run.frame = run.frame.join(left_out, on="question_id", how="anti")
    qrels = copy.copy(qrels)
    qrels.frame = qrels.frame.join(common, on="question_id", how="semi")
    return qrels, remaining


def _distinct(tags: list[str]) -> list[str]:
    """The tags; equal tags get the first number, from their position on, that makes them different."""
    names: list[str] = []
    for position, tag in enumerate(tags, 1):
        numbered = (f"{tag} ({number})" for number in count(position))
        taken = {*tags, *names}
        names.append(tag if tags.count(tag) == 1 else next(name for name in numbered if name not in taken))
    return names


def compare_tables(
    baseline: pl.DataFrame,
    systems: Mapping[str, pl.DataFrame],
    measures: Sequence[str],
    *,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> list[Comparison]:
    """Compare every system with the baseline by every measure (means over questions), ordered by measure.

    Holm's correction is over all comparisons, separately for each of the two tests. ``baseline`` and the
    values of ``systems`` are `Evaluation.per_question` over the same questions, in any order.
    """
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
        Comparison(name, measure, paired, corrected, corrected_t, _deviation(pairs[name], measure))
        for (name, measure, paired), corrected, corrected_t in zip(results, permutation, t, strict=True)
    ]


def question_deltas(baseline: pl.DataFrame, system: pl.DataFrame, measure: str) -> pl.DataFrame:
    """The questions on which two systems differ: question_id, before, after, change.

    The largest differences come first, equal differences by id.
    """
    both = _paired_frame(baseline, system, [measure])
    after = pl.col(measure + "_after")
    deltas = both.select("question_id", before=measure, after=after, change=after - pl.col(measure))
    deltas = deltas.filter(pl.col("change").abs() > 1e-12)
    return deltas.sort(-pl.col("change").abs().round(12), "question_id")


def largest_deltas(
    name: str,
    measure: str,
    top: int,
    tables: tuple[pl.DataFrame, pl.DataFrame],
    runs: tuple[pl.DataFrame, pl.DataFrame],
    qrels: pl.DataFrame,
) -> Deltas:
    """Find the ``top`` questions with the largest gains and as many with the largest losses.

    ``tables`` are `Evaluation.per_question` and ``runs`` the runs of the baseline and of the system.
    """
    deltas = question_deltas(*tables, measure)
    better, worse = deltas.filter(pl.col("change") > 0), deltas.filter(pl.col("change") < 0)
    gained, lost = (describe_deltas(part.head(top), qrels, *runs) for part in (better, worse))
    return Deltas(name, measure, better.height, worse.height, gained, lost)


def describe_deltas(
    deltas: pl.DataFrame, qrels: pl.DataFrame, baseline_run: pl.DataFrame, system_run: pl.DataFrame
) -> list[QuestionDelta]:
    """Add to rows of `question_deltas` the ranks of a relevant answer and the answers ranked first."""
    questions = deltas.select("question_id")
    before, after = (
        rank_candidates(run.join(questions, on="question_id", how="semi"))
        for run in (baseline_run, system_run)
    )
    relevant = qrels.filter(pl.col("relevance") > 0).join(questions, on="question_id", how="semi")
    keys = ["question_id", "answer_id"]
    ranks = (
        relevant.select(keys)
        .join(before.select(*keys, before="rank"), on=keys, how="left")
        .join(after.select(*keys, after="rank"), on=keys, how="left")
        .partition_by("question_id", as_dict=True)
    )
    firsts = [dict(run.filter(pl.col("rank") == 1).select(keys).iter_rows()) for run in (before, after)]
    return [
        QuestionDelta(
            question,
            old,
            new,
            *_best_relevant(ranks.get((question,)), "after" if change > 0 else "before"),
            firsts[0].get(question),
            firsts[1].get(question),
        )
        for question, old, new, change in deltas.iter_rows()
    ]


def _best_relevant(ranks: pl.DataFrame | None, better: str) -> tuple[str | None, int | None, int | None]:
    """The relevant answer with the best rank in column ``better``, and its ranks before and after."""
    ranked = pl.DataFrame() if ranks is None else ranks.filter(pl.col(better).is_not_null())
    if ranked.is_empty():
        return None, None, None
    row = ranked.sort(better).row(0, named=True)
    return row["answer_id"], row["before"], row["after"]


def _deviation(both: pl.DataFrame, measure: str) -> float:
    """The sample standard deviation of the differences; exactly 0 if only rounding differs."""
    deviation = (both[measure + "_after"] - both[measure]).round(12).std()
    return float(deviation) if isinstance(deviation, float) else math.nan


def _paired_frame(baseline: pl.DataFrame, system: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """question_id, the baseline's measures, and the system's with ``_after`` added to their names."""
    columns = ["question_id", *measures]
    before, after = baseline.select(columns), system.select(columns)
    both = before.join(after, on="question_id", how="inner", suffix="_after", maintain_order="left")
    if not both.height == before.height == after.height:
        raise ValueError(f"{before.height} and {after.height} questions, {both.height} of them in both")
    return both
