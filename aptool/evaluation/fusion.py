"""Fusion of runs by reciprocal rank, or by a logistic regression of their scores."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from aptool.data.runs import AnyQrels, AnyRun, Run, as_qrels, as_run, run_of_scores
from aptool.data.trec import rank_candidates
from aptool.environment import require
from aptool.errors import AptoolError, UsageError

DEFAULT_K = 60.0  # Cormack, Clarke and Buettcher, SIGIR 2009
DEFAULT_FOLDS = 5

_KEYS = ["question_id", "answer_id"]
_PURPOSE = "learned fusion"


def fuse(runs: Iterable[AnyRun], *, k: float = DEFAULT_K, tag: str = "fused") -> Run:
    """Fuse runs by reciprocal rank, without training data, into a run with all of their candidates.

    The score of a candidate is the sum of 1 / (k + rank) over the runs that rank it.

    Args:
        runs: two or more runs: ``Run``, files or dicts.
        k: constant, at least 0; a larger constant reduces the weight of the first ranks.
        tag: the name of the fused run.

    Example:
        >>> first = aptool.Run({"q1": {"a": 0.9, "b": 0.2}})
        >>> second = aptool.Run({"q1": {"b": 12.0, "c": 3.0}})
        >>> list(aptool.fuse([first, second]).to_dict()["q1"])
        ['b', 'a', 'c']
    """
    return run_of_scores(reciprocal_rank_fusion(_frames(runs), k), tag)


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
    folds: int = DEFAULT_FOLDS,
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
    columns = _columns(fused)
    if train_runs is None:
        judged = _judged(columns, judgements)
        scored, coefficients = _cross_fitted(columns, judged, folds)
    else:
        train = [as_run(run).frame for run in train_runs]
        if len(train) != len(fused):
            raise UsageError(f"train_runs: {len(train)} given; expected one for each of {len(fused)} runs")
        judged = _judged(_columns(train), judgements)
        model = _fit(judged)
        scored, coefficients = _scored(columns, model), model.coef_
    means, deviations = coefficients.mean(0).tolist(), coefficients.std(0).tolist()
    run = run_of_scores(_ranked(scored, fused), tag)
    return LearnedFusion(run, list(zip(means, deviations, strict=True)), judged["question_id"].n_unique())


def reciprocal_rank_fusion(frames: Sequence[pl.DataFrame], k: float = DEFAULT_K) -> pl.DataFrame:
    """Score every candidate by the sum of ``1 / (k + rank)`` over the runs that rank it.

    Ranks start at 1 and follow trec_eval's order. The result does not depend on the order of the runs.
    Returns question_id, answer_id, score (f64), ranked, with questions in the order of the runs.
    """
    if not k >= 0:
        raise UsageError(f"k {k}: expected at least 0")
    parts = [
        rank_candidates(frame).select("question_id", "answer_id", part=1.0 / (k + pl.col("rank")))
        for frame in frames
    ]
    # Floating-point sums depend on the order of their terms.
    total = pl.col("part").sort().sum()
    return _ranked(pl.concat(parts).group_by(_KEYS).agg(score=total), frames)


def _ranked(fused: pl.DataFrame, runs: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rank candidates, with questions in the order of their first rows in the runs."""
    questions = pl.concat(run.select("question_id") for run in runs).unique(maintain_order=True)
    return rank_candidates(questions.join(fused, on="question_id", maintain_order="left")).drop("rank")


def _scaled(frame: pl.DataFrame) -> pl.DataFrame:
    """Divide the scores of each question by a power of two, so that no square overflows or vanishes.

    The largest magnitude becomes 0.5 to 1. Standardized scores do not change.
    """
    frame = frame.select(*_KEYS, pl.col("score").cast(pl.Float64))
    largest = frame.select(pl.col("score").abs().max().over("question_id")).to_series().to_numpy()
    scaled = np.ldexp(frame["score"].to_numpy(), -np.frexp(largest)[1])
    return frame.with_columns(score=pl.Series(scaled))


def _cross_fitted(columns: pl.DataFrame, judged: pl.DataFrame, folds: int) -> tuple[pl.DataFrame, np.ndarray]:
    """Score each judged question by a model fitted on the other folds; also returns (folds, runs) weights.

    A hash of the question id decides the fold. Unjudged questions are scored by a model of all judged ones.
    """
    questions = sorted(judged["question_id"].unique(), key=lambda name: (zlib.crc32(name.encode()), name))
    if len(questions) < folds:
        raise AptoolError(f"{len(questions)} judged questions are too few for {folds} folds")
    parts, weights = [], []
    for fold in range(folds):
        in_fold = pl.col("question_id").is_in(questions[fold::folds])
        model = _fit(judged.filter(~in_fold))
        parts.append(_scored(columns.filter(in_fold), model))
        weights.append(model.coef_[0])
    unjudged = columns.filter(~pl.col("question_id").is_in(questions))
    if unjudged.height:
        parts.append(_scored(unjudged, _fit(judged)))
    return pl.concat(parts), np.stack(weights)


def _scored(columns: pl.DataFrame, model: Any) -> pl.DataFrame:
    return columns.select(_KEYS).with_columns(score=model.decision_function(_matrix(columns)))


def _columns(runs: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """question_id, answer_id and one column of standardized scores per run, for the candidates of all runs.

    Scores are standardized per question. A missing candidate has the run's lowest value for the question, or
    0 if the run lacks the question.
    """
    candidates = pl.concat(run.select(_KEYS) for run in runs).unique().sort(_KEYS)
    statistics = [pl.col("score").mean().alias("mean"), pl.col("score").std(ddof=0).alias("deviation")]
    for number, run in enumerate(runs):
        column = f"run{number}"
        scores = _scaled(run)
        totals = scores.group_by("question_id").agg(statistics)
        deviation = pl.when(pl.col("deviation") > 0).then(pl.col("deviation")).otherwise(1.0)
        scaled = scores.join(totals, on="question_id").select(
            *_KEYS, ((pl.col("score") - pl.col("mean")) / deviation).alias(column)
        )
        candidates = candidates.join(scaled, on=_KEYS, how="left", maintain_order="left").with_columns(
            pl.col(column).fill_null(pl.col(column).min().over("question_id")).fill_null(0.0)
        )
    return candidates


def _judged(columns: pl.DataFrame, qrels: pl.DataFrame) -> pl.DataFrame:
    """The candidates of judged questions, with their relevance of 0 or more."""
    labels = qrels.select(*_KEYS, pl.col("relevance").cast(pl.Int64).clip(0))
    judged = columns.join(labels.select("question_id").unique(), on="question_id", how="semi").join(
        labels, on=_KEYS, how="left"
    )
    return judged.with_columns(pl.col("relevance").fill_null(0)).sort(_KEYS)


def _matrix(columns: pl.DataFrame) -> np.ndarray:
    """(candidates, runs) float64."""
    return columns.select(pl.selectors.starts_with("run")).to_numpy().astype(np.float64)


def _fit(judged: pl.DataFrame) -> Any:
    """A logistic regression of the relevance on the standardized scores."""
    relevant = judged["relevance"].to_numpy() > 0
    if not 0 < relevant.sum() < len(relevant):
        labelled = "no candidate is" if not relevant.any() else "all candidates are"
        raise AptoolError(
            f"{_PURPOSE}: {labelled} judged relevant in {judged['question_id'].n_unique()} questions; "
            "expected some of each: runs and qrels of the same questions"
        )
    linear_model = require("sklearn.linear_model", purpose=_PURPOSE, extra="fusion")
    model = linear_model.LogisticRegression(max_iter=1000)
    return model.fit(_matrix(judged), relevant)
