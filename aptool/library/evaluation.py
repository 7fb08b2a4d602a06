"""The public functions `evaluate`, `compare`, `fuse` and `learn_fusion`, of runs."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias, overload

import polars as pl

from aptool.arguments import PathLike, check_path, is_path
from aptool.data.frames import TABLE, Table, read_columns
from aptool.data.pools import Pools
from aptool.data.run import AnyQrels, AnyRun, Qrels, Run, as_qrels, as_run, run_of_scores
from aptool.data.trec import count_ties, log_ties
from aptool.errors import AptoolError, InputError, UsageError
from aptool.evaluation import compare as comparing
from aptool.evaluation import fusion, texts
from aptool.evaluation import measures as measuring
from aptool.evaluation.compare import Comparison, Comparisons, check_comparable, check_same_questions
from aptool.evaluation.evaluation import (
    Evaluation,
    groups_of_column,
    groups_of_files,
    groups_of_mapping,
    read_groups,
)
from aptool.evaluation.fusion import (
    DEFAULT_K,
    METHODS,
    NORMALIZATIONS,
    Method,
    Normalization,
    combine_scores,
    reciprocal_rank_fusion,
)
from aptool.evaluation.measures import relevant_from
from aptool.evaluation.names import DEFAULT_MEASURES, measure_names
from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
from aptool.evaluation.texts import KINDS

AnyGroups: TypeAlias = PathLike | Pools | Table


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
    judgements, loaded = as_qrels(qrels), as_run(run)
    label = _label(loaded)
    evaluation = measuring.evaluate(
        judgements.frame,
        loaded.frame,
        _names(measures),
        level=level,
        run_name=label,
        qrels_name=judgements.path or "qrels",
    )
    log_ties(label, *count_ties(loaded.frame))
    if by is None and groups is None:
        return evaluation
    return evaluation.grouped(question_groups(by, groups, judgements, level))


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
    names = _names(measures)
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
        check_same_questions(_label(first), reference.missing, _label(run), evaluation.missing)
    tags = _distinct([run.tag for run in runs])
    comparisons = comparing.compare(
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


def _names(measures: str | Iterable[str]) -> tuple[str, ...]:
    """The printed names of the measures."""
    return measure_names([measures] if isinstance(measures, str) else measures)


def _label(run: Run) -> str:
    """The name of a run in errors."""
    return run.path or f"run {run.tag!r}"


def question_groups(by: object, groups: object, qrels: Qrels, level: int) -> pl.DataFrame:
    """The groups of each question, from arguments of `evaluate`: question_id, group, position."""
    source = "a group"
    if isinstance(by, Mapping):
        if groups is not None:
            expected = "the name of a column as by"
            raise InputError("groups", problem="not allowed if by is a dict", expected=expected)
        table = groups_of_mapping("by", by)
    elif not isinstance(by, str):
        raise InputError("by", value=by, expected="a dict {question id: group}, or the name of a column")
    elif isinstance(groups, Pools):
        with groups.files() as (files, answers):
            source = ", ".join(files)
            if by in KINDS:
                kind: Any = by
                table = texts.question_groups(files, relevant_from(qrels.frame, level), kind, answers)
            else:
                try:
                    table = groups_of_files(files, by)
                except InputError as error:
                    expected = f"{', '.join(KINDS)}, or a column of groups or of the pools"
                    raise UsageError(f"by {by}: expected {expected} ({error})") from error
    elif is_path(groups):
        source = check_path("groups", groups)
        table = read_groups(source, by)
    else:
        table = groups_of_column("groups", _groups_frame(groups), by)
    if qrels.frame.join(table, on="question_id", how="semi").is_empty():
        name = f"by {by}" if isinstance(by, str) else "by"
        raise UsageError(f"{name}: no question of {qrels.path or 'the qrels'} is in {source}")
    return table


def _groups_frame(groups: object) -> pl.DataFrame:
    expected = f"{TABLE}, a TSV, CSV or Parquet file, or Pools, with the column of by"
    return pl.DataFrame(dict(read_columns("groups", groups, expected)), strict=False)


def _on_common(qrels: Qrels, runs: Sequence[Run]) -> tuple[Qrels, list[Run]]:
    """Restrict qrels and runs to the judged questions that every run ranks."""
    judged = qrels.frame.select("question_id").unique()
    common = judged
    for run in runs:
        common = common.join(run.frame, on="question_id", how="semi")
    if common.is_empty():
        labels = ", ".join(map(_label, runs))
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
    if method not in METHODS:
        raise UsageError(f"method {method!r}: expected one of {', '.join(METHODS)}")
    if normalization not in (None, *NORMALIZATIONS):
        raise UsageError(f"normalization {normalization!r}: expected one of {', '.join(NORMALIZATIONS)}")
    by_rank = method == "rrf"
    if by_rank and normalization is not None:
        raise UsageError("normalization: requires the method combsum or combmnz")
    if not by_rank and k is not None:
        raise UsageError("k: requires the method rrf")
    frames = _frames(runs)
    if by_rank:
        frame = reciprocal_rank_fusion(frames, DEFAULT_K if k is None else k)
    else:
        frame = combine_scores(frames, normalization or "min-max", multiply=method == "combmnz")
    return run_of_scores(frame, tag)


def _frames(runs: Iterable[AnyRun]) -> list[pl.DataFrame]:
    """Read at least two runs."""
    frames = [as_run(run).frame for run in runs]
    if len(frames) < 2:
        raise UsageError(f"runs: {len(frames)} given; expected at least two runs")
    return frames


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
    fused, judgements = _frames(runs), as_qrels(qrels).frame
    if train_runs is None:
        result = fusion.cross_fitted(fused, judgements, folds)
    else:
        train = [as_run(run).frame for run in train_runs]
        if len(train) != len(fused):
            raise UsageError(f"train_runs: {len(train)} given; expected one for each of {len(fused)} runs")
        result = fusion.learn_fusion(train, judgements, fused)
    means, deviations = result.weights.mean(0), result.weights.std(0)
    weights = list(zip(means.tolist(), deviations.tolist(), strict=True))
    return LearnedFusion(run_of_scores(result.frame, tag), weights, result.questions)
