"""The questions a reviewer asks of evaluated runs, answered for ``aptool eval`` and ``aptool compare``."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from aptool.datasets.leaks import Leak, find_leaks
from aptool.evaluation.agreement import pairwise
from aptool.evaluation.compare import Comparison
from aptool.evaluation.evaluation import Evaluation
from aptool.evaluation.gap import split_gaps
from aptool.evaluation.limits import Limits
from aptool.evaluation.power import detectable_effect
from aptool.formats.collection import MANIFEST, Collection
from aptool.formats.location import location
from aptool.formats.pools import Answers
from aptool.reporting.breakdown import figures_by_kind
from aptool.reporting.review import (
    Answer,
    agreement_answer,
    gap_answer,
    groups_answer,
    leaks_answer,
    limits_answer,
    power_answer,
)


class ReviewedRuns(NamedTuple):
    """The subject of a review.

    Attributes:
        runs: question_id, answer_id, score of each run.
        evaluations: evaluation of each run.
        limits: upper bounds of each run.
        relevant: relevant judgements: question_id, answer_id, relevance.
        qrels: path of the qrels; None of qrels in memory.
        measures: names of the measures, the main measure first.
        names: name of each run in the answers.
        confidence: confidence of the intervals.
        comparisons: comparisons with the first run; empty if there are none.
        dev: evaluation of each run's system on dev; empty if there are no runs on dev.
        pools: pools files with the texts, and the answers that they share; None if there are none.
    """

    runs: Mapping[str, pl.DataFrame]
    evaluations: Mapping[str, Evaluation]
    limits: Mapping[str, Limits]
    relevant: pl.DataFrame
    qrels: str | None
    measures: Sequence[str]
    names: Mapping[str, str]
    confidence: float
    comparisons: Sequence[Comparison]
    dev: Mapping[str, Evaluation]
    pools: tuple[list[str], Answers | None] | None


class Review(NamedTuple):
    """The answers in words, and their figures for JSON."""

    answers: list[Answer]
    figures: dict[str, Any]


def review_runs(evaluated: ReviewedRuns) -> Review:
    """Answer every question; an answer that the files do not contain is given as unknown.

    Raises:
        InputError: a pools file or a collection cannot be read.
    """
    names, confidence = evaluated.names, evaluated.confidence
    main = evaluated.measures[0]
    tables = {run: evaluation.per_question for run, evaluation in evaluated.evaluations.items()}
    questions = next(iter(tables.values())).height
    pairs = pairwise(evaluated.runs, tables, main)
    agreements = {f"{names[a]} and {names[b]}": [agreement] for (a, b), agreement in pairs.items()}
    if len(pairs) > 1:
        agreements["all pairs, mean"] = list(pairs.values())
    gaps = {
        run: split_gaps(dev, evaluated.evaluations[run], evaluated.measures, confidence=confidence)
        for run, dev in evaluated.dev.items()
    }
    kinds = None
    if evaluated.pools is not None:
        files, texts = evaluated.pools
        kinds = figures_by_kind(files, evaluated.relevant, tables, texts)
    split = _split_of(evaluated.qrels)
    leaks = _leaks(evaluated.qrels, split)
    answers = [
        power_answer(questions, evaluated.comparisons, names, confidence),
        limits_answer({names[run]: limits for run, limits in evaluated.limits.items()}, evaluated.measures),
        *(
            [
                groups_answer(kind, {names[run]: groups for run, groups in by_run.items()}, main)
                for kind, by_run in kinds.items()
            ]
            if kinds is not None
            else [_unknown("For which questions?", "no pools beside the qrels (--pools FILE)")]
        ),
        agreement_answer(agreements, main) if pairs else _unknown("Do the runs agree?", "one run is given"),
        gap_answer({names[run]: by_measure for run, by_measure in gaps.items()}, split)
        if gaps
        else _unknown("How far is this from dev?", "no run on dev is given (--dev RUN)"),
        leaks_answer(leaks, split)
        if leaks is not None
        else _unknown("Does it leak from what was trained on?", "the qrels are in no collection"),
    ]
    figures = {
        "detectable_effect": detectable_effect(questions, alpha=1 - confidence) if questions > 1 else None,
        "limits": {run: limits._asdict() for run, limits in evaluated.limits.items()},
        "groups": None
        if kinds is None
        else {
            kind: {run: [group.to_dict() for group in groups.values()] for run, groups in by_run.items()}
            for kind, by_run in kinds.items()
        },
        "agreement": [{"runs": list(pair), **agreement._asdict()} for pair, agreement in pairs.items()],
        "gaps": {
            run: {name: gap._asdict() for name, gap in by_measure.items()} for run, by_measure in gaps.items()
        },
        "leaks": None if leaks is None else [leak._asdict() for leak in leaks],
    }
    return Review(answers, figures)


def _leaks(qrels: str | None, split: str) -> list[Leak] | None:
    """Near copies between the split of the qrels and earlier splits; None outside of a collection."""
    if qrels is None:
        return None
    folder = location(qrels).parent
    if not (folder / MANIFEST).is_file():
        return None
    collection = Collection(folder)
    return find_leaks(collection, split) if split in collection.splits else None


def _split_of(qrels: str | None) -> str:
    """The split that a qrels file is named after."""
    return (qrels or "test").rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".qrels")


def _unknown(question: str, reason: str) -> Answer:
    return Answer(question, [f"Unknown: {reason}."], [])
