"""Evaluation, comparison and review of several runs, for the public functions and the commands."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from aptool.errors import AptoolError
from aptool.evaluation import compare as comparing
from aptool.evaluation import measures as measuring
from aptool.evaluation.compare import (
    Comparison,
    Deltas,
    check_same_questions,
    differing_candidates,
    largest_deltas,
)
from aptool.evaluation.evaluation import Evaluation
from aptool.evaluation.limits import Limits, candidate_limits
from aptool.evaluation.measures import relevant_from
from aptool.evaluation.names import measure_names, parse_measures
from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
from aptool.evaluation.texts import FoundTexts, find_texts
from aptool.library.groups import question_groups
from aptool.library.pools import Pools
from aptool.library.qrels import AnyQrels, Qrels, as_qrels
from aptool.library.run import AnyRun, Run, as_run

if TYPE_CHECKING:
    from aptool.reporting.review import Review


class ReviewInputs(NamedTuple):
    """Inputs of a review besides the runs.

    Attributes:
        names: name of each run in the answers.
        pools: pools with the texts; None if there are none.
        dev: run on dev of each run's system; empty for no gap to dev.
        dev_qrels: judgements of dev.
        confidence: confidence of the intervals.
    """

    names: Mapping[str, str]
    pools: Pools | None = None
    dev: Mapping[str, AnyRun] = {}
    dev_qrels: AnyQrels | None = None
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class EvaluatedRuns:
    """Runs evaluated with the same qrels.

    Attributes:
        qrels: the judgements.
        runs: the runs by name, in the order given; the other fields have the same keys.
        measures: names of the measures.
        level: the lowest relevance that counts as relevant.
        evaluations: evaluation of each run.
        limits: upper bounds of each run; empty unless requested.
        review: answers to the questions of a reviewer; None unless requested.
    """

    qrels: Qrels
    runs: dict[str, Run]
    measures: tuple[str, ...]
    level: int
    evaluations: dict[str, Evaluation]
    limits: dict[str, Limits]
    review: "Review | None" = None


@dataclass(frozen=True)
class ComparedRuns:
    """Systems compared with a baseline.

    Attributes:
        evaluated: the runs, the baseline first.
        questions: number of questions of the qrels, including those left out by ``on_common``.
        comparisons: each system by each measure, ordered by measure.
        deltas: the questions with the largest differences, of each system; empty unless requested.
        texts: texts of these questions; None without pools.
        review: answers to the questions of a reviewer; None unless requested.
    """

    evaluated: EvaluatedRuns
    questions: int
    comparisons: list[Comparison]
    deltas: list[Deltas]
    texts: FoundTexts | None
    review: "Review | None"

    def differing(self, run: str) -> list[str]:
        """The judged questions for which a run ranks other candidates than the baseline, sorted."""
        runs = self.evaluated.runs
        baseline = next(iter(runs))
        return differing_candidates(runs[baseline].frame, runs[run].frame, self.evaluated.qrels.frame)


def evaluate_runs(
    qrels: Qrels,
    runs: Mapping[str, Run],
    measures: Iterable[str],
    *,
    level: int = 1,
    limits: bool = False,
    by: object = None,
    groups: object = None,
    review: ReviewInputs | None = None,
    options: bool = False,
) -> EvaluatedRuns:
    """Evaluate runs by name; arguments as in ``evaluate``.

    Args:
        qrels: judgements.
        runs: the runs by name.
        measures: names of measures.
        level: the lowest relevance that counts as relevant.
        limits: whether to compute the upper bounds of each run.
        by: groups of questions, or the name of a column of ``groups``.
        groups: source of the groups.
        review: inputs of a review; None for no review.
        options: whether errors name options of a command in place of arguments.
    """
    names = measure_names(measures)
    qrels_name = qrels.path or "qrels"
    evaluations = {
        name: measuring.evaluate(
            qrels.frame, run.frame, names, level=level, run_name=_label(name, run), qrels_name=qrels_name
        )
        for name, run in runs.items()
    }
    bounds = {}
    if limits:
        bounds = {
            name: candidate_limits(qrels.frame, run.frame, names, level=level) for name, run in runs.items()
        }
    evaluated = EvaluatedRuns(qrels, dict(runs), names, level, evaluations, bounds)
    answers = _review(evaluated, names, review) if review is not None else None
    if by is not None or groups is not None:
        table = question_groups(by, groups, qrels, level, options=options)
        evaluations = {name: evaluation.grouped(table) for name, evaluation in evaluations.items()}
    return replace(evaluated, evaluations=evaluations, review=answers)


def compare_runs(
    qrels: Qrels,
    runs: Mapping[str, Run],
    measures: Iterable[str],
    *,
    level: int = 1,
    on_common: bool = False,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    top: int = 0,
    by: str | None = None,
    pools: Pools | None = None,
    review: ReviewInputs | None = None,
    options: bool = False,
) -> ComparedRuns:
    """Compare runs with the first run; arguments as in ``compare``.

    Args:
        qrels: judgements.
        runs: the runs by name, the baseline first.
        measures: names of measures that are means over questions.
        level: the lowest relevance that counts as relevant.
        on_common: whether to compare only the questions that every run ranks.
        confidence: confidence of the intervals.
        permutations: number of random sign assignments of a permutation test that is not exact.
        seed: random seed.
        top: number of questions with the largest gains, and with the largest losses, to describe.
        by: measure of the gains and losses, a mean over questions; None for the first of ``measures``.
        pools: pools with the texts of these questions.
        review: inputs of a review; None for no review.
        options: whether errors name options of a command in place of arguments.
    """
    names = measure_names(measures)
    by = names[0] if by is None else by
    needed = tuple(dict.fromkeys([*names, by]))
    questions = qrels.frame["question_id"].n_unique()
    if on_common:
        qrels, runs = _on_common(qrels, runs)
    evaluated = evaluate_runs(qrels, runs, needed, level=level)
    evaluations = evaluated.evaluations
    baseline, *systems = runs
    remedy = "--on-common" if options else "on_common=True"
    for name in systems:
        check_same_questions(
            _label(baseline, runs[baseline]),
            evaluations[baseline].missing,
            _label(name, runs[name]),
            evaluations[name].missing,
            remedy=f", or {remedy}",
        )
    tables = {name: evaluation.per_question for name, evaluation in evaluations.items()}
    comparisons = comparing.compare(
        tables[baseline],
        {name: tables[name] for name in systems},
        names,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
    )
    deltas = []
    if top:
        relevant = relevant_from(qrels.frame, parse_measures([by])[0].level or level)
        deltas = [
            largest_deltas(
                name,
                by,
                top,
                (tables[baseline], tables[name]),
                (runs[baseline].frame, runs[name].frame),
                relevant,
            )
            for name in systems
        ]
    return ComparedRuns(
        evaluated,
        questions,
        comparisons,
        deltas,
        _texts(pools, deltas) if top and pools is not None else None,
        _review(evaluated, names, review, comparisons) if review is not None else None,
    )


def _on_common(qrels: Qrels, runs: Mapping[str, Run]) -> tuple[Qrels, dict[str, Run]]:
    """Judgements of the questions that every run ranks, and the runs without the other judged questions."""
    judged = qrels.frame.select("question_id").unique()
    common = judged
    for run in runs.values():
        common = common.join(run.frame, on="question_id", how="semi")
    if common.is_empty():
        labels = ", ".join(_label(name, run) for name, run in runs.items())
        raise AptoolError(f"{labels}: no question of the qrels is in all of these runs")
    left_out = judged.join(common, on="question_id", how="anti")
    kept = {
        name: run.with_frame(run.frame.join(left_out, on="question_id", how="anti"))
        for name, run in runs.items()
    }
    return qrels.with_frame(qrels.frame.join(common, on="question_id", how="semi")), kept


def _texts(pools: Pools, deltas: Iterable[Deltas]) -> FoundTexts:
    """The texts of the questions with the largest differences."""
    pairs = {
        (delta.question_id, answer)
        for largest in deltas
        for delta in (*largest.gained, *largest.lost)
        for answer in (delta.relevant, delta.first_before, delta.first_after)
        if answer is not None
    }
    schema = {"question_id": pl.String, "answer_id": pl.String}
    with pools.files() as (files, answers):
        return find_texts(files, pl.DataFrame(sorted(pairs), schema=schema, orient="row"), answers)


def _review(
    evaluated: EvaluatedRuns,
    measures: tuple[str, ...],
    inputs: ReviewInputs,
    comparisons: Sequence[Comparison] = (),
) -> "Review":
    """The review of evaluated runs by some of their measures, the main measure first."""
    from aptool.reporting import review

    level, frame = evaluated.level, evaluated.qrels.frame
    dev: dict[str, Evaluation] = {}
    if inputs.dev:
        # Each run's system has a run on dev, under the run's name.
        on_dev = {name: as_run(inputs.dev[name]) for name in evaluated.runs}
        dev = evaluate_runs(as_qrels(inputs.dev_qrels), on_dev, measures, level=level).evaluations
    limits = evaluated.limits or {
        name: candidate_limits(frame, run.frame, measures, level=level)
        for name, run in evaluated.runs.items()
    }
    with inputs.pools.files() if inputs.pools is not None else nullcontext() as pools:
        return review.review_runs(
            review.ReviewedRuns(
                runs={name: run.frame for name, run in evaluated.runs.items()},
                evaluations=evaluated.evaluations,
                limits=limits,
                relevant=relevant_from(frame, level),
                qrels=evaluated.qrels.path,
                measures=measures,
                names=inputs.names,
                confidence=inputs.confidence,
                comparisons=comparisons,
                dev=dev,
                pools=pools,
            )
        )


def _label(name: str, run: Run) -> str:
    """The name of a run in errors: its file, else its name."""
    return run.path or f"run {name!r}"
