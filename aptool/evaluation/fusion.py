"""Fusion of runs by reciprocal rank, by sums of normalized scores, or by a logistic regression."""

import zlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import polars as pl

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


class LearnedFusion(NamedTuple):
    """A fused run and the weights of its models."""

    frame: pl.DataFrame  # question_id, answer_id, score (f64), ranked, questions in the order of the runs
    weights: np.ndarray  # (models, runs) float64, weights of the standardized scores
    questions: int  # number of judged questions in the training data


def learn_fusion(
    train: Sequence[pl.DataFrame], qrels: pl.DataFrame, runs: Sequence[pl.DataFrame]
) -> LearnedFusion:
    """Fit on the runs ``train`` of judged questions, and fuse ``runs`` of other questions.

    Both have one run per system, the same systems in the same order; unjudged candidates are not relevant.
    """
    judged = _judged(_columns(train), qrels)
    model = _fit(judged)
    frame = _ranked(_scored(_columns(runs), model), runs)
    return LearnedFusion(frame, model.coef_, judged["question_id"].n_unique())


def cross_fitted(
    runs: Sequence[pl.DataFrame], qrels: pl.DataFrame, folds: int = DEFAULT_FOLDS
) -> LearnedFusion:
    """Fuse runs by cross-validation: each judged question by a model fitted on the other folds.

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
    frame = _ranked(pl.concat(parts), runs)
    return LearnedFusion(frame, np.stack(weights), len(questions))


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
