"""Evaluation, comparison and fusion of runs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, overload

from aptool.errors import InputError
from aptool.evaluation import compare as comparing
from aptool.evaluation import learned_fusion
from aptool.evaluation import measures as measuring
from aptool.evaluation.compare import Comparison, Comparisons, check_comparable, check_same_questions
from aptool.evaluation.evaluation import Evaluation
from aptool.evaluation.fusion import DEFAULT_K, reciprocal_rank_fusion
from aptool.evaluation.names import DEFAULT_MEASURES, NAMINGS, Naming, measure_names
from aptool.evaluation.significance import CONFIDENCE, HIGHEST_CONFIDENCE, LOWEST_CONFIDENCE, PERMUTATIONS
from aptool.library.arguments import (
    PathLike,
    check_choice,
    check_integer,
    check_list,
    check_number,
    check_text,
    check_type,
)
from aptool.library.groups import AnyGroups, question_groups
from aptool.library.qrels import Qrels
from aptool.library.run import Run

AnyRun: TypeAlias = Run | PathLike | Mapping[str, Mapping[str, float]]
AnyQrels: TypeAlias = Qrels | PathLike | Mapping[str, Mapping[str, int]]


def evaluate(
    qrels: AnyQrels,
    run: AnyRun,
    measures: str | Iterable[str] = DEFAULT_MEASURES,
    *,
    level: int = 1,
    by: Mapping[str, object] | str | None = None,
    groups: AnyGroups | None = None,
    names: Naming = "common",
) -> Evaluation:
    """Evaluate a run as ``trec_eval -c`` does.

    Args:
        qrels: judgements: ``Qrels``, a file, or ``{question id: {answer id: relevance}}``.
        run: ``Run``, a file, or ``{question id: {answer id: score}}``.
        measures: MAP, MRR@10, P@1, R@10, nDCG@10, MAP(rel=2), RBP(p=.8); trec_eval's names (recip_rank, P_1,
            ndcg_cut_10) and those of ir_measures (AP, RR@10) are accepted too.
        level: the lowest relevance that counts as relevant (trec_eval ``-l``), for measures without one of
            their own; nDCG takes every relevance as a gain.
        by: groups of questions: ``{question id: group}``, or the name of a column of ``groups``; with pools
            also ``question-length``, ``answer-length`` or ``type``, as ``aptool eval --by``.
        groups: a polars or pandas frame with question_id and the column, a TSV, CSV or Parquet file, or
            ``Pools``.
        names: names of the measures in the result: ``common`` (MAP, P@1), ``trec_eval`` (map, P_1) or
            ``ir_measures`` (AP, P@1).

    Returns:
        ``means`` by measure (any name of a measure finds its value), ``per_question`` (a polars frame with a
        column per measure), ``intervals()``, ``groups`` by name, and the ids that the run and the qrels do
        not share: ``missing``, ``extra``, ``unjudged``.

    Raises:
        AptoolError: a measure is unknown (the nearest names are listed), the run and the qrels have no
            question in common, the level is above every relevance, or no question is in a group.
    """
    parsed = _names(measures)
    check_integer("level", level, 1)
    check_choice("names", names, NAMINGS)
    judgements = _qrels(qrels)
    evaluation = _evaluation(judgements, _run(run), parsed, level)
    if by is not None or groups is not None:
        evaluation = evaluation.grouped(question_groups(by, groups, judgements, level))
        if not evaluation.groups:
            raise InputError("by", problem="no question of the qrels is in a group", expected="question ids")
    return evaluation if names == "common" else evaluation.named(names)


@overload
def compare(
    baseline: AnyRun,
    systems: AnyRun,
    qrels: AnyQrels,
    measures: str = ...,
    *,
    level: int = ...,
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
    confidence: float = ...,
    permutations: int = ...,
    seed: int = ...,
) -> Comparison | list[Comparison]: ...


def compare(
    baseline: AnyRun,
    systems: AnyRun | Sequence[AnyRun],
    qrels: AnyQrels,
    measures: str | Iterable[str] = "MAP",
    *,
    level: int = 1,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Comparison | list[Comparison]:
    """Tests whether runs differ from a baseline, question by question.

    Args:
        baseline: a run.
        systems: a run, or a list of runs.
        qrels: judgements.
        measures: a measure, or a list of measures; names as in ``evaluate``.
        level: the lowest relevance that counts as relevant, as in ``evaluate``.
        confidence: of the intervals.
        permutations: assignments of signs drawn where the permutation test cannot count them all.
        seed: random seed of the intervals and the tests.

    Returns:
        For one run and one measure a comparison; otherwise, as for a name that stands for several measures
        (``P``), a list, measure by measure. A comparison has ``p``
        (of the paired permutation test), ``difference`` (mean, system less baseline), ``interval`` (BCa
        bootstrap), ``effect`` (Cohen's d), ``permutation_holm`` (p corrected for all comparisons of the
        list), and all figures in ``paired``. A list shows as a table in notebooks.

    Raises:
        AptoolError: a measure is unknown or is no mean over questions, or the runs lack different questions.
    """
    names = _names(measures)
    check_comparable(names)
    check_integer("level", level, 1)
    check_number("confidence", confidence, LOWEST_CONFIDENCE, HIGHEST_CONFIDENCE)
    check_integer("permutations", permutations, 1)
    check_integer("seed", seed, 0)
    several = isinstance(systems, Sequence) and not isinstance(systems, str)
    runs = [_run(baseline), *map(_run, check_list("systems", systems, "runs") if several else [systems])]
    judgements = _qrels(qrels)
    evaluations = [_evaluation(judgements, run, names, level) for run in runs]
    tags = _distinct([run.tag for run in runs])
    for tag, evaluation in zip(tags[1:], evaluations[1:], strict=True):
        check_same_questions(f"run {tags[0]!r}", evaluations[0].missing, f"run {tag!r}", evaluation.missing)
    found = comparing.compare(
        evaluations[0].per_question,
        {tag: one.per_question for tag, one in zip(tags[1:], evaluations[1:], strict=True)},
        names,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
    )
    return Comparisons(found) if several or not isinstance(measures, str) or len(names) > 1 else found[0]


def fuse(runs: Iterable[AnyRun], *, k: float = DEFAULT_K, tag: str = "fused") -> Run:
    """Fuses runs by reciprocal rank: a candidate's score is the sum of 1 / (k + rank) over the runs.

    A candidate that a run lacks gets nothing from it.

    Args:
        runs: two or more.
        k: how little the first ranks stand out; at least 0.
        tag: the name of the fused run.

    Raises:
        AptoolError: fewer than two runs are given.
    """
    fused = [_run(run) for run in check_list("runs", runs, "at least two runs")]
    if len(fused) < 2:
        raise InputError("runs", value=fused, expected="at least two runs")
    check_number("k", k, 0, float(1 << 53))
    frame = reciprocal_rank_fusion([run.frame for run in fused], k)
    return Run.from_scores(frame, check_text("tag", tag))


class LearnedFusion(NamedTuple):
    """A fused run and the weights that it was fused with.

    Attributes:
        run: the fused run.
        weights: of each run, mean and standard deviation over the folds (deviation 0 of a single model): the
            weight of its standardized score.
        questions: number of judged questions that were fitted on.
    """

    run: Run
    weights: list[tuple[float, float]]
    questions: int


def learn_fusion(
    runs: Iterable[AnyRun],
    qrels: AnyQrels,
    *,
    train_runs: Iterable[AnyRun] | None = None,
    folds: int = learned_fusion.DEFAULT_FOLDS,
    tag: str = "fused",
) -> LearnedFusion:
    """Fuse runs by a logistic regression on their scores, as ``aptool fuse --train`` (extra ``fusion``).

    Scores are standardized within each question.

    Args:
        runs: two or more.
        qrels: judgements to fit on.
        train_runs: runs of the same systems in the same order on the questions of ``qrels``; None fits on
            ``runs`` themselves, each fold of the judged questions fused by a model of the other folds.
        folds: at least 2.
        tag: the name of the fused run.

    Raises:
        AptoolError: fewer than two runs are given, a package is not installed, or the judged candidates are
            all relevant or none is.
    """
    fused = [_run(run).frame for run in check_list("runs", runs, "at least two runs")]
    if len(fused) < 2:
        raise InputError("runs", value=len(fused), expected="at least two runs")
    check_integer("folds", folds, 2)
    judgements = _qrels(qrels).frame
    if train_runs is None:
        found = learned_fusion.cross_fitted(fused, judgements, folds)
    else:
        train = [_run(run).frame for run in check_list("train_runs", train_runs, "one for each run")]
        if len(train) != len(fused):
            raise InputError("train_runs", value=len(train), expected=f"{len(fused)}, one for each run")
        found = learned_fusion.learn_fusion(train, judgements, fused)
    means, deviations = found.weights.mean(0), found.weights.std(0)
    weights = list(zip(means.tolist(), deviations.tolist(), strict=True))
    return LearnedFusion(Run.from_scores(found.frame, check_text("tag", tag)), weights, found.questions)


def _names(measures: object) -> tuple[str, ...]:
    """The name of each measure in results."""
    given = [measures] if isinstance(measures, str) else check_list("measures", measures, "names of measures")
    for number, name in enumerate(given):
        check_text("measures", name, f"item {number}", "the name of a measure (str)")
    return measure_names(given)


def _evaluation(qrels: Qrels, run: Run, names: Iterable[str], level: int) -> Evaluation:
    """The evaluation of a run, named by its tag in errors."""
    return measuring.evaluate(qrels.frame, run.frame, names, level=level, run_name=f"run {run.tag!r}")


def _run(run: object) -> Run:
    if isinstance(run, str | os.PathLike):
        return Run.load(run)
    if isinstance(run, Mapping):
        return Run.from_dict(run)
    check_type("run", run, Run, "a Run, a file or a dict {question id: {answer id: score}}")
    assert isinstance(run, Run)
    return run


def _qrels(qrels: object) -> Qrels:
    if isinstance(qrels, str | os.PathLike):
        return Qrels.load(qrels)
    if isinstance(qrels, Mapping):
        return Qrels.from_dict(qrels)
    check_type("qrels", qrels, Qrels, "Qrels, a file or a dict {question id: {answer id: relevance}}")
    assert isinstance(qrels, Qrels)
    return qrels


def _distinct(tags: list[str]) -> list[str]:
    """The tags, numbered where several runs have one."""
    return [f"{tag} ({n + 1})" if tags.count(tag) > 1 else tag for n, tag in enumerate(tags)]
