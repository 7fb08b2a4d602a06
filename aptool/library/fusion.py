"""Fusion of runs, by rank or by a model fitted on judged questions."""

from collections.abc import Iterable
from typing import NamedTuple

from aptool.errors import InputError
from aptool.evaluation import fusion
from aptool.evaluation.fusion import DEFAULT_K, reciprocal_rank_fusion
from aptool.library.arguments import check_integer, check_list, check_number, check_text
from aptool.library.qrels import AnyQrels, as_qrels
from aptool.library.run import AnyRun, Run, as_run


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
    fused = [as_run(run) for run in check_list("runs", runs, "at least two runs")]
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
    folds: int = fusion.DEFAULT_FOLDS,
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
    fused = [as_run(run).frame for run in check_list("runs", runs, "at least two runs")]
    if len(fused) < 2:
        raise InputError("runs", value=len(fused), expected="at least two runs")
    check_integer("folds", folds, 2)
    judgements = as_qrels(qrels).frame
    if train_runs is None:
        found = fusion.cross_fitted(fused, judgements, folds)
    else:
        train = [as_run(run).frame for run in check_list("train_runs", train_runs, "one for each run")]
        if len(train) != len(fused):
            raise InputError("train_runs", value=len(train), expected=f"{len(fused)}, one for each run")
        found = fusion.learn_fusion(train, judgements, fused)
    means, deviations = found.weights.mean(0), found.weights.std(0)
    weights = list(zip(means.tolist(), deviations.tolist(), strict=True))
    return LearnedFusion(Run.from_scores(found.frame, check_text("tag", tag)), weights, found.questions)
