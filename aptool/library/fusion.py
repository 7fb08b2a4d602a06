"""Fusion of runs by ranks or scores, or with weights that are learned from judged questions."""

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from aptool.errors import UsageError
from aptool.evaluation import fusion
from aptool.evaluation.fusion import (
    DEFAULT_K,
    METHODS,
    NORMALIZATIONS,
    Method,
    Normalization,
    combine_scores,
    reciprocal_rank_fusion,
)
from aptool.library.arguments import check_choice, check_integer, check_list, check_number, check_text
from aptool.library.qrels import AnyQrels, as_qrels
from aptool.library.run import AnyRun, Run, as_run, run_of_scores


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
