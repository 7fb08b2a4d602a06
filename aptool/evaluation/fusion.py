"""Fusion of runs by reciprocal rank, by sums of normalized scores, or by a logistic regression."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import polars as pl

from aptool.data.runs import AnyQrels, AnyRun, Run, as_qrels, as_run, run_of_scores
from aptool.data.trec import rank_candidates
from aptool.errors import AptoolError, UsageError
from aptool.version import require

DEFAULT_K = 60  # Cormack, Clarke and Buettcher, SIGIR 2009
DEFAULT_FOLDS = 5

Method: TypeAlias = Literal["rrf", "combsum", "combmnz"]
METHODS: tuple[Method, ...] = get_args(Method)
Normalization: TypeAlias = Literal["min-max", "z-score"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)

_KEYS = ["question_id", "answer_id"]
_PURPOSE = "learned fusion"


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
    if train_runs is None:
        frame, coefficients, questions = _cross_fitted(fused, judgements, folds)
    else:
        train = [as_run(run).frame for run in train_runs]
        if len(train) != len(fused):
            raise UsageError(f"train_runs: {len(train)} given; expected one for each of {len(fused)} runs")
        frame, coefficients, questions = _fitted(train, judgements, fused)
    means, deviations = coefficients.mean(0).tolist(), coefficients.std(0).tolist()
    return LearnedFusion(run_of_scores(frame, tag), list(zip(means, deviations, strict=True)), questions)


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


def combine_scores(
    frames: Sequence[pl.DataFrame], normalization: Normalization, *, multiply: bool = False
) -> pl.DataFrame:
    """Score every candidate by the sum of its normalized scores (CombSUM; Fox and Shaw, TREC-2, 1993).

    Scores are normalized per question and run: ``min-max`` maps them to 0 to 1, ``z-score`` subtracts the
    mean and divides by the standard deviation; equal scores become 0. A run that lacks a candidate adds 0.
    ``multiply`` multiplies the sum by the number of runs with the candidate (CombMNZ).
    """
    score = pl.col("score")
    if normalization == "min-max":
        origin, unit = score.min(), score.max() - score.min()
    else:
        origin, unit = score.mean(), score.std(ddof=0)
    differ = score.max() > score.min()
    normalized = pl.when(differ.over("question_id")).then(((score - origin) / unit).over("question_id"))
    parts = [_scaled(frame).select(*_KEYS, part=normalized.otherwise(0.0)) for frame in frames]
    # Floating-point sums depend on the order of their terms.
    total = pl.col("part").sort().sum() * (pl.len() if multiply else 1)
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


def _fitted(
    train: Sequence[pl.DataFrame], qrels: pl.DataFrame, runs: Sequence[pl.DataFrame]
) -> tuple[pl.DataFrame, np.ndarray, int]:
    """Fit on the runs ``train`` of judged questions, and fuse ``runs``; unjudged candidates are not relevant.

    Returns the fused run, the weights (models, runs) and the number of judged questions.
    """
    judged = _judged(_columns(train), qrels)
    model = _fit(judged)
    fused = _ranked(_scored(_columns(runs), model), runs)
    return fused, model.coef_, judged["question_id"].n_unique()


def _cross_fitted(
    runs: Sequence[pl.DataFrame], qrels: pl.DataFrame, folds: int
) -> tuple[pl.DataFrame, np.ndarray, int]:
    """Fuse each judged question by a model fitted on the other folds; returns as `_fitted`.

    A hash of the question id decides the fold. Unjudged questions are fused by a model of all judged ones.
    """
    columns = _columns(runs)
    judged = _judged(columns, qrels)
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
    return _ranked(pl.concat(parts), runs), np.stack(weights), len(questions)


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
