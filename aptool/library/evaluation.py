"""The public functions `evaluate`, `compare`, `fuse` and `learn_fusion`, of runs."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, overload

import polars as pl

from aptool.errors import UsageError
from aptool.evaluation import fusion
from aptool.evaluation.compare import Comparison
from aptool.evaluation.evaluation import Evaluation
from aptool.evaluation.fusion import (
    DEFAULT_K,
    METHODS,
    NORMALIZATIONS,
    Method,
    Normalization,
    combine_scores,
    reciprocal_rank_fusion,
)
from aptool.evaluation.names import DEFAULT_MEASURES, measure_names
from aptool.evaluation.significance import CONFIDENCE, HIGHEST_CONFIDENCE, LOWEST_CONFIDENCE, PERMUTATIONS
from aptool.library.arguments import check_choice, check_integer, check_list, check_number, check_text
from aptool.library.evaluated_runs import AnyGroups, compare_runs, evaluate_runs
from aptool.library.run import AnyQrels, AnyRun, Run, as_qrels, as_run, run_of_scores


def evaluate(
    qrels: AnyQrels,
    run: AnyRun,
    measures: str | Iterable[str] = DEFAULT_MEASURES,
    *,
    level: int = 1,
    by: Mapping[str, object] | str | None = None,
    groups: AnyGroups | None = None,
) -> Evaluation:
    """Evaluate a run as ``trec_eval -c`` does.

    Args:
        qrels: judgements: ``Qrels``, a file, or ``{question id: {answer id: relevance}}``.
        run: ``Run``, a file, or ``{question id: {answer id: score}}``.
        measures: names of ir_measures: MAP (AP), MRR@10 (RR@10), P@1, R@10, nDCG@10, MAP(rel=2).
        level: the lowest relevance that counts as relevant (trec_eval ``-l``). It does not apply to nDCG, nor
            to measures with their own level.
        by: groups of questions: ``{question id: group}``, or a column of ``groups``. With pools also
            ``length`` (the most words of the relevant answer), ``question-length`` or ``type``.
        groups: source of the column: a polars or pandas frame with question_id, a TSV, CSV or Parquet file,
            or ``Pools``.

    Returns:
        ``means`` by measure; ``per_question``, a polars frame with one column per measure; ``intervals()``,
        the confidence intervals of the means; ``groups`` by name; and the ids that only the run or only the
        qrels have: ``missing``, ``extra``, ``unjudged``.

    Raises:
        AptoolError: a measure is unknown (the message lists the known ones), the run and the qrels share
            no question, the level is above every relevance, or no question is in a group.

    Example:
        >>> qrels = {"q1": {"a": 0, "b": 1}, "q2": {"c": 1}}
        >>> run = {"q1": {"a": 0.9, "b": 0.2}, "q2": {"c": 1.0}}
        >>> aptool.evaluate(qrels, run, ["MAP", "P@1"])
        Evaluation(MAP 0.7500, P@1 0.5000; 2 questions)
        >>> aptool.evaluate(qrels, run, ["MAP", "P@1"]).means["MAP"]
        0.75
    """
    parsed = _names(measures)
    check_integer("level", level, 1)
    judgements, loaded = as_qrels(qrels), as_run(run)
    evaluated = evaluate_runs(judgements, {loaded.tag: loaded}, parsed, level=level, by=by, groups=groups)
    return evaluated.evaluations[loaded.tag]


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
) -> Comparison | list[Comparison]: ...


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
) -> Comparison | list[Comparison]:
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
    names = _names(measures)
    check_integer("level", level, 1)
    check_number("confidence", confidence, LOWEST_CONFIDENCE, HIGHEST_CONFIDENCE)
    check_integer("permutations", permutations, 1)
    check_integer("seed", seed, 0)
    several = isinstance(systems, Sequence) and not isinstance(systems, str)
    runs = [as_run(baseline), *map(as_run, check_list("systems", systems, "runs") if several else [systems])]
    compared = compare_runs(
        as_qrels(qrels),
        dict(zip(_distinct([run.tag for run in runs]), runs, strict=True)),
        names,
        level=level,
        on_common=on_common,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
    )
    comparisons = compared.comparisons
    as_list = several or not isinstance(measures, str)
    return comparisons if as_list else comparisons[0]


def _names(measures: object) -> tuple[str, ...]:
    """The printed names of the measures."""
    names = [measures] if isinstance(measures, str) else check_list("measures", measures, "names of measures")
    for number, name in enumerate(names):
        check_text("measures", name, f"item {number}", "the name of a measure (str)")
    return measure_names(names)


def _distinct(tags: list[str]) -> list[str]:
    """The tags; equal tags get the first number, from their position on, that makes them different."""
    names: list[str] = []
    for position, tag in enumerate(tags, 1):
        numbered = (f"{tag} ({number})" for number in count(position))
        taken = {*tags, *names}
        names.append(tag if tags.count(tag) == 1 else next(name for name in numbered if name not in taken))
    return names


def fuse(
    runs: Iterable[AnyRun],
    *,
    method: Method = "rrf",
    k: float | None = None,
    normalization: Normalization | None = None,
    tag: str = "fused",
) -> Run:
    """Fuse runs by their ranks or scores, without training data, into a run with all of their candidates.

    Args:
        runs: two or more runs: ``Run``, files or dicts.
        method: ``rrf``, reciprocal rank fusion: the score of a candidate is the sum of 1 / (k + rank) over
            the runs. ``combsum``: the sum of its normalized scores. ``combmnz``: that sum times the number of
            runs with the candidate. A run that lacks a candidate adds 0.
        k: constant of ``rrf``, at least 0; a larger constant reduces the weight of the first ranks. Default:
            60.
        normalization: of the scores of each question for ``combsum`` and ``combmnz``: ``min-max`` or
            ``z-score``. Default: ``min-max``.
        tag: the name of the fused run.

    Example:
        >>> first = aptool.Run({"q1": {"a": 0.9, "b": 0.2}})
        >>> second = aptool.Run({"q1": {"b": 12.0, "c": 3.0}})
        >>> list(aptool.fuse([first, second]).to_dict()["q1"])
        ['b', 'a', 'c']
        >>> aptool.fuse([first, second], method="combmnz").to_dict()["q1"]
        {'b': 2.0, 'a': 1.0, 'c': 0.0}
    """
    by_rank = check_choice("method", method, METHODS) == "rrf"
    if by_rank and normalization is not None:
        raise UsageError("normalization: requires the method combsum or combmnz")
    if not by_rank and k is not None:
        raise UsageError("k: requires the method rrf")
    normalization = "min-max" if normalization is None else normalization
    check_choice("normalization", normalization, NORMALIZATIONS)
    frames = _frames(runs)
    if by_rank:
        frame = reciprocal_rank_fusion(frames, check_number("k", DEFAULT_K if k is None else k, 0, 1 << 53))
    else:
        frame = combine_scores(frames, normalization, multiply=method == "combmnz")
    return run_of_scores(frame, check_text("tag", tag))


def _frames(runs: Iterable[AnyRun]) -> list[pl.DataFrame]:
    """Read at least two runs."""
    given = check_list("runs", runs, "at least two runs")
    if len(given) < 2:
        raise UsageError(f"runs: {len(given)} given; expected at least two runs")
    return [as_run(run).frame for run in given]


class LearnedFusion(NamedTuple):
    """A fused run and the weights of the runs."""

    run: Run
    weights: list[tuple[float, float]]  # mean and standard deviation over the folds, per run
    questions: int  # number of judged questions in the training data


def learn_fusion(
    runs: Iterable[AnyRun],
    qrels: AnyQrels,
    *,
    train_runs: Iterable[AnyRun] | None = None,
    folds: int = fusion.DEFAULT_FOLDS,
    tag: str = "fused",
) -> LearnedFusion:
    """Fuse runs by a logistic regression on their scores, as ``aptool fuse --train`` does (extra ``fusion``).

    Scores are standardized per question.

    Args:
        runs: two or more runs: ``Run``, files or dicts.
        qrels: judgements to learn from: ``Qrels``, a file or a dict.
        train_runs: runs of the same systems, in the same order, on the questions of ``qrels``. None learns
            from ``runs`` by cross-validation.
        folds: number of folds of the cross-validation, at least 2.
        tag: the name of the fused run.

    Returns:
        ``run``; ``weights``, the mean and standard deviation of each run's weight over the folds; and
        ``questions``, the number of judged questions.

    Raises:
        AptoolError: the judged candidates are all relevant or all not relevant.

    Example:
        >>> first = {f"q{n}": {"a": 0.9, "b": 0.2} for n in range(4)}
        >>> second = {f"q{n}": {"a": 0.1, "b": 0.4} for n in range(4)}
        >>> qrels = {f"q{n}": {"a": 1, "b": 0} for n in range(4)}
        >>> fusion = aptool.learn_fusion([first, second], qrels, folds=2)
        >>> list(fusion.run.to_dict()["q0"]), fusion.questions
        (['a', 'b'], 4)
    """
    check_integer("folds", folds, 2)
    fused, judgements = _frames(runs), as_qrels(qrels).frame
    if train_runs is None:
        result = fusion.cross_fitted(fused, judgements, folds)
    else:
        train = [as_run(run).frame for run in check_list("train_runs", train_runs, "one for each run")]
        if len(train) != len(fused):
            raise UsageError(f"train_runs: {len(train)} given; expected one for each of {len(fused)} runs")
        result = fusion.learn_fusion(train, judgements, fused)
    means, deviations = result.weights.mean(0), result.weights.std(0)
    weights = list(zip(means.tolist(), deviations.tolist(), strict=True))
    return LearnedFusion(run_of_scores(result.frame, check_text("tag", tag)), weights, result.questions)
