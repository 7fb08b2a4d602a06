"""Paired comparison of systems with a baseline, and the questions with the largest differences."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import polars as pl
from typing_extensions import override

from aptool.data.runs import AnyQrels, AnyRun, Run, as_qrels, as_run
from aptool.data.trec import rank_candidates
from aptool.environment import Tabular
from aptool.errors import AptoolError, UsageError, first_few
from aptool.evaluation.measures import Evaluation, evaluate, in_groups
from aptool.evaluation.names import is_mean, measure_names
from aptool.evaluation.significance import ALPHA, compare_paired, detectable_effect, holm

_KEYS = ["question_id", "answer_id"]


class Comparison(NamedTuple):
    """A system compared with the baseline by one measure; differences are system minus baseline."""

    system: str
    measure: str
    questions: int
    baseline: float  # mean
    mean: float  # of the system
    difference: float  # mean
    low: float  # BCa bootstrap interval of the mean difference
    high: float
    p: float  # paired permutation test, two-sided
    p_holm: float  # corrected for all comparisons over all questions, or for all over groups
    t_test_p: float  # paired t-test, two-sided
    t_test_p_holm: float
    effect: float  # Cohen's d of the differences; not finite if all differences are equal
    wins: int
    ties: int
    losses: int
    detectable: float | None  # smallest true difference that a t-test finds with power 0.8; None as `effect`
    significant: bool  # whether `p_holm` is at most 0.05
    group: str | None = None  # the group of questions; None for all questions


class Comparisons(list[Comparison], Tabular):
    """Comparisons with one baseline, ordered by measure, those of groups last; a table when printed.

    Attributes:
        evaluations: of the baseline, then of the systems.
    """

    def __init__(self, comparisons: Iterable[Comparison], evaluations: Sequence[Evaluation]) -> None:
        super().__init__(comparisons)
        self.evaluations = evaluations

    @override
    def to_polars(self) -> pl.DataFrame:
        """Return one row per comparison; the columns are its attributes, ``group`` only with groups."""
        frame = pl.DataFrame([comparison._asdict() for comparison in self], infer_schema_length=None)
        return frame.drop("group") if frame["group"].dtype == pl.Null else frame

    @override
    def __repr__(self) -> str:
        return repr(self.to_polars())


def shown_p(p: float) -> str:
    """The text of a p-value, which is never 0."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def verdict(baseline: str, comparison: Comparison) -> str:
    """Whether a system is significantly better or worse than the baseline, in words."""
    system, shown = comparison.system, shown_p(comparison.p_holm)
    p = f"p {shown}" if shown.startswith("<") else f"p = {shown}"
    if not comparison.significant:
        return f"{system} and {baseline} do not differ significantly ({p})"
    way = "better" if comparison.difference > 0 else "worse"
    return f"{system} is significantly {way} than {baseline}, by {abs(comparison.difference):.4f} ({p})"


def compare(
    baseline: AnyRun,
    systems: AnyRun | Sequence[AnyRun],
    qrels: AnyQrels,
    measures: str | Iterable[str] = "MAP",
    *,
    groups: pl.DataFrame | None = None,
) -> Comparisons:
    """Test whether runs differ from a baseline, with paired tests over the questions.

    Args:
        baseline: the run to compare with: ``Run``, a file or a dict.
        systems: a run, or a list of runs.
        qrels: judgements: ``Qrels``, a file or a dict.
        measures: a measure, or a list of measures; names as in ``evaluate``.
        groups: groups of questions to compare in as well, as in ``evaluate``.

    Returns:
        A list with one comparison per measure and system, then per measure, system and group, which prints
        as a table and converts with ``to_polars`` and ``to_pandas``. A comparison has ``difference`` (mean of
        the system minus mean of the baseline), ``low`` and ``high`` (its 95% BCa bootstrap interval), ``p``
        (paired permutation test), ``p_holm`` (``p`` after Holm's correction for the list), ``effect``
        (Cohen's d), ``detectable``, ``significant`` and ``group``.

    Raises:
        AptoolError: a measure is unknown or is not a mean over questions, or the runs lack different
            questions.

    Example:
        >>> qrels = {f"q{n}": {"a": 1, "b": 0} for n in range(6)}
        >>> right = {f"q{n}": {"a": 0.9, "b": 0.2} for n in range(6)}
        >>> wrong = {f"q{n}": {"a": 0.1, "b": 0.4} for n in range(6)}
        >>> (comparison,) = aptool.compare(wrong, right, qrels, "P@1")
        >>> comparison.difference, comparison.p
        (1.0, 0.03125)
    """
    names = measure_names(measures)
    sums = [name for name in names if not is_mean(name)]
    if sums:
        raise UsageError(f"{', '.join(sums)}: not means over questions; expected measures for paired tests")
    given: list[Any] = [systems]
    if isinstance(systems, Sequence) and not isinstance(systems, str):
        given = list(systems)
    if not given:
        raise UsageError("systems: none given; expected at least one run")
    runs = [as_run(run) for run in (baseline, *given)]
    judgements = as_qrels(qrels)
    evaluations = [evaluate(judgements, run, names) for run in runs]
    _check_same_questions(runs, evaluations)
    tables = [evaluation.per_question for evaluation in evaluations]
    pairs = [(run.tag, table) for run, table in zip(runs[1:], tables[1:], strict=True)]
    comparisons = compare_tables(tables[0], pairs, names)
    if groups is not None:
        comparisons += compare_tables(tables[0], pairs, names, groups)
    return Comparisons(comparisons, evaluations)


def _check_same_questions(runs: Sequence[Run], evaluations: Sequence[Evaluation]) -> None:
    """Raise if a run lacks other questions than the first, which would count 0 in only one of the runs."""
    baseline, known = runs[0].label, evaluations[0].missing
    for run, evaluation in zip(runs, evaluations, strict=True):
        lacking = sorted({*evaluation.missing} - {*known})
        more = sorted({*known} - {*evaluation.missing})
        parts = []
        if lacking:
            parts.append(f"lacks {len(lacking)} questions of {baseline} ({first_few(lacking)})")
        if more:
            parts.append(f"has {len(more)} that {baseline} lacks ({first_few(more)})")
        if parts:
            raise AptoolError(f"{run.label}: {' and '.join(parts)}; expected the same questions")


def compare_tables(
    baseline: pl.DataFrame,
    systems: Iterable[tuple[str, pl.DataFrame]],
    measures: Sequence[str],
    groups: pl.DataFrame | None = None,
) -> list[Comparison]:
    """Compare every system with the baseline by every measure (means over questions), ordered by measure.

    The comparisons are over all questions, or over each of ``groups``, see `in_groups`. Holm's correction is
    over all comparisons, separately for each of the two tests. ``baseline`` and the tables of the named
    ``systems`` are `Evaluation.per_question` of the same questions, in any order.
    """
    pairs = [(name, _paired_frame(baseline, table, measures)) for name, table in systems]
    rows = [
        (name, measure, group, part)
        for measure in measures
        for name, both in pairs
        for group, part in ([(None, both)] if groups is None else in_groups(both, groups).items())
    ]
    results = [
        compare_paired(part[measure].to_numpy(), part[measure + "_after"].to_numpy())
        for _, measure, _, part in rows
    ]
    permutation = holm([paired.permutation.p for paired in results])
    t = holm([paired.t_test.p for paired in results])
    return [
        Comparison(
            system=name,
            measure=measure,
            questions=paired.questions,
            baseline=paired.baseline,
            mean=paired.system,
            difference=paired.difference,
            low=paired.interval.low,
            high=paired.interval.high,
            p=paired.permutation.p,
            p_holm=p_holm,
            t_test_p=paired.t_test.p,
            t_test_p_holm=t_holm,
            effect=paired.effect,
            wins=paired.wins,
            ties=paired.ties,
            losses=paired.losses,
            detectable=_detectable(part, measure),
            significant=p_holm <= ALPHA,
            group=group,
        )
        for (name, measure, group, part), paired, p_holm, t_holm in zip(
            rows, results, permutation, t, strict=True
        )
    ]


def _detectable(both: pl.DataFrame, measure: str) -> float | None:
    """`Comparison.detectable`; may be above the largest difference that the measure allows."""
    deviation = (both[measure + "_after"] - both[measure]).round(12).std()
    if not isinstance(deviation, float) or not deviation > 0:
        return None
    return detectable_effect(both.height) * deviation


def _paired_frame(baseline: pl.DataFrame, system: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """question_id, the baseline's measures, and the system's with ``_after`` added to their names."""
    columns = ["question_id", *measures]
    before, after = baseline.select(columns), system.select(columns)
    return before.join(after, on="question_id", how="inner", suffix="_after", maintain_order="left")


def question_deltas(
    baseline: pl.DataFrame, system: pl.DataFrame, measure: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The questions on which a system is better, and those on which it is worse.

    The frames have question_id, before, after and change. The largest differences come first, equal
    differences by id. The tables are `Evaluation.per_question`.
    """
    both = _paired_frame(baseline, system, [measure])
    after = pl.col(measure + "_after")
    deltas = both.select("question_id", before=measure, after=after, change=after - pl.col(measure))
    deltas = deltas.sort(-pl.col("change").abs().round(12), "question_id")
    return deltas.filter(pl.col("change") > 1e-12), deltas.filter(pl.col("change") < -1e-12)


def ranked_answers(
    deltas: pl.DataFrame, relevant: pl.DataFrame, runs: tuple[pl.DataFrame, pl.DataFrame]
) -> pl.DataFrame:
    """The answers of the questions of `question_deltas`: those that a run ranks, and the relevant ones.

    Args:
        deltas: rows of `question_deltas`.
        relevant: question_id, answer_id of the relevant answers.
        runs: question_id, answer_id, score of the baseline (before) and of the system (after).

    Returns:
        question_id, answer_id, is_relevant, rank_before, score_before, rank_after, score_after, in the order
        of rank_after. Ranks start at 1; rank and score are null if the run lacks the answer.
    """
    answers = relevant.join(deltas, on="question_id", how="semi").select(*_KEYS, is_relevant=True)
    for name, run in zip(("before", "after"), runs, strict=True):
        ranked = rank_candidates(run.join(deltas, on="question_id", how="semi"))
        columns = {f"rank_{name}": "rank", f"score_{name}": "score"}
        answers = answers.join(ranked.select(*_KEYS, **columns), on=_KEYS, how="full", coalesce=True)
    answers = answers.with_columns(pl.col("is_relevant").fill_null(value=False))
    return answers.sort("rank_after", "answer_id", nulls_last=True)
