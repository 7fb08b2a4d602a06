"""Fusion of runs without training: by rank, or by score where all are scores of one system.

Reciprocal rank fusion, for which scores need not be comparable: Cormack, Clarke and Buettcher, SIGIR 2009,
who found k = 60 to work well on many collections.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from aptool.errors import AptoolError
from aptool.formats.trec import rank_candidates
from aptool.text.tokenizer import require

DEFAULT_K = 60


def reciprocal_rank_fusion(frames: Sequence[pl.DataFrame], k: float = DEFAULT_K) -> pl.DataFrame:
    """Scores every candidate by the sum of ``1 / (k + rank)`` over the runs that rank it.

    Ranks count from 1 in trec_eval's order, so equal scores are ordered by answer id. A run adds nothing to a
    candidate or a question that it does not rank. The result is the same to the last bit for every order of
    the runs, so candidates with the same ranks in different runs tie.

    Args:
        frames: two or more runs: question_id (str), answer_id (str), score, each candidate once.
        k: the larger, the less the first ranks dominate; at least 0.

    Returns:
        question_id (str), answer_id (str), score (f64), in trec_eval's order.

    Raises:
        ValueError: fewer than two runs, or a negative ``k``.
    """
    if len(frames) < 2:
        raise ValueError(f"{len(frames)} runs given; expected at least two")
    if k < 0:
        raise ValueError(f"k is {k}; expected at least 0")
    parts = [
        rank_candidates(frame).select("question_id", "answer_id", part=1.0 / (k + pl.col("rank")))
        for frame in frames
    ]
    # Floating-point sums depend on the order of their terms: sorting gives one order for all.
    fused = pl.concat(parts).group_by("question_id", "answer_id").agg(score=pl.col("part").sort().sum())
    return rank_candidates(fused).drop("rank")


DEFAULT_FOLDS = 5

_KEYS = ["question_id", "answer_id"]
_PURPOSE = "learned fusion"


class LearnedFusion(NamedTuple):
    """A fused run and what it was made of.

    Attributes:
        frame: question_id (str), answer_id (str), score (f64), in trec_eval's order.
        weights: (models, runs) float64, one row per fitted model: of each standardized score.
        questions: number of judged questions that were fitted on.
    """

    frame: pl.DataFrame
    weights: np.ndarray
    questions: int


class _Fitted(NamedTuple):
    score: Callable[[np.ndarray], np.ndarray]
    weights: np.ndarray


def learn_fusion(
    train: Sequence[pl.DataFrame],
    qrels: pl.DataFrame,
    runs: Sequence[pl.DataFrame],
) -> LearnedFusion:
    """Fits on the runs of judged questions, and fuses the runs of other questions.

    Args:
        train: one run per system on judged questions: question_id, answer_id, score.
        qrels: question_id, answer_id, relevance; a candidate that is not judged is not relevant.
        runs: one run per system, the same systems in the same order.

    Raises:
        AptoolError: a package is not installed, or the judged candidates are all relevant or none is.
        ValueError: fewer than two runs, or not as many as are fitted on.
    """
    if len(runs) < 2 or len(train) != len(runs):
        raise ValueError(f"{len(runs)} runs and {len(train)} to fit on; expected two or more of both")
    judged = _judged(_columns(train), qrels)
    fitted = _fit(judged)
    columns = _columns(runs)
    frame = columns.select(_KEYS).with_columns(score=fitted.score(_matrix(columns)))
    return LearnedFusion(
        rank_candidates(frame).drop("rank"), fitted.weights[None], judged["question_id"].n_unique()
    )


def cross_fitted(
    runs: Sequence[pl.DataFrame],
    qrels: pl.DataFrame,
    folds: int = DEFAULT_FOLDS,
) -> LearnedFusion:
    """Fuses runs of judged questions: each question by a model that was fitted on the other folds.

    Questions are dealt out by a hash of their ids, so that the folds do not depend on the runs. Questions
    that are not judged are fused by a model of all judged ones.

    Args:
        runs: one per system: question_id, answer_id, score.
        qrels: question_id, answer_id, relevance; a candidate that is not judged is not relevant.
        folds: at least 2.

    Raises:
        AptoolError: as ``learn_fusion``, or there are fewer judged questions than folds.
        ValueError: fewer than two runs or folds.
    """
    if len(runs) < 2 or folds < 2:
        raise ValueError(f"{len(runs)} runs and {folds} folds; expected at least two of both")
    columns = _columns(runs)
    judged = _judged(columns, qrels)
    questions = sorted(judged["question_id"].unique(), key=lambda one: (zlib.crc32(one.encode()), one))
    if len(questions) < folds:
        raise AptoolError(f"{len(questions)} judged questions are too few for {folds} folds")
    parts, weights = [], []
    for fold in range(folds):
        own = questions[fold::folds]
        fitted = _fit(judged.filter(~pl.col("question_id").is_in(own)))
        part = columns.filter(pl.col("question_id").is_in(own))
        parts.append(part.select(_KEYS).with_columns(score=fitted.score(_matrix(part))))
        weights.append(fitted.weights)
    others = columns.filter(~pl.col("question_id").is_in(questions))
    if others.height:
        fitted = _fit(judged)
        parts.append(others.select(_KEYS).with_columns(score=fitted.score(_matrix(others))))
    frame = rank_candidates(pl.concat(parts)).drop("rank")
    return LearnedFusion(frame, np.stack(weights), len(questions))


def _columns(runs: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """question_id, answer_id and one standardized column per run, of all candidates of any run.

    Within a question a run's scores have mean 0 and deviation 1; all are 0 where they are equal. A candidate
    that a run lacks has the run's least value for the question, 0 where the run lacks the question.
    """
    candidates = pl.concat(run.select(_KEYS) for run in runs).unique().sort(_KEYS)
    of_question = [pl.col("score").mean().alias("mean"), pl.col("score").std(ddof=0).alias("deviation")]
    for number, run in enumerate(runs):
        column = f"run{number}"
        scores = run.select(*_KEYS, pl.col("score").cast(pl.Float64))
        totals = scores.group_by("question_id").agg(of_question)
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


def _fit(judged: pl.DataFrame) -> _Fitted:
    relevant = judged["relevance"].to_numpy() > 0
    if not 0 < relevant.sum() < len(relevant):
        found = "no candidate is" if not relevant.any() else "all candidates are"
        raise AptoolError(
            f"{_PURPOSE}: {found} judged relevant in {judged['question_id'].n_unique()} questions; "
            "expected some of each: runs and qrels of the same questions"
        )
    linear_model = require("sklearn.linear_model", purpose=_PURPOSE, extra="fusion")
    model = linear_model.LogisticRegression(max_iter=1000)
    model.fit(_matrix(judged), relevant)
    return _Fitted(model.decision_function, model.coef_[0].astype(np.float64))
