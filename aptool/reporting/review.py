"""Questions a reviewer asks of a table of results, each with its answer in plain words and a table.

One home for the words: `aptool eval` and `aptool compare` print the answers, the report shows them.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from aptool.datasets.leaks import Leak, find_leaks
from aptool.evaluation.agreement import PERSISTENCE, Agreement, mean_agreement, pairwise
from aptool.evaluation.compare import Comparison
from aptool.evaluation.evaluation import Evaluation, Group, MeasureValues
from aptool.evaluation.limits import Gap, Limits, candidate_limits, split_gaps
from aptool.evaluation.power import POWER, detectable_effect
from aptool.evaluation.significance import CONFIDENCE, Interval
from aptool.formats.collection import MANIFEST, CollectionFiles
from aptool.formats.location import location
from aptool.formats.pools import Answers, read_answers
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.kinds import Kind, groups_by_kind
from aptool.reporting.runs import CollectionResults, SystemResults

_KINDS: dict[Kind, str] = {
    "question-length": "by length of the question",
    "answer-length": "by length of the shortest relevant answer",
    "type": "by question word",
}


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
        question: the question.
        sentences: the answer.
        rows: its table, column titles first; empty if it has none.
    """

    question: str
    sentences: list[str]
    rows: list[list[str]]


def power_answer(
    questions: int,
    comparisons: Sequence[Comparison] = (),
    names: Mapping[str, str] | None = None,
    confidence: float = CONFIDENCE,
) -> Answer:
    """How large a difference the questions could show.

    Args:
        questions: how many there are.
        comparisons: with the baseline; without them the answer is in standard deviations.
        names: what systems are called; None is as in the comparisons.
        confidence: 1 minus the level of the tests.
    """
    asked = "How large a difference could these questions show?"
    if questions < 2:
        return Answer(asked, ["None: a test needs two questions or more."], [])
    effect = detectable_effect(questions, alpha=1 - confidence)
    sentences = [
        f"A paired t-test of {questions:,} questions finds a true difference of {effect:.2f} standard "
        f"deviations of the questions' differences with probability {POWER:g} (level {1 - confidence:.3g})."
    ]
    rows = [["", "measure", "difference", "interval", "could be found"]]
    for one in comparisons:
        detectable = one.detectable(confidence)
        rows.append(
            [
                (names or {}).get(one.system, one.system),
                one.measure,
                f"{one.difference:+.4f}",
                _interval(one.interval),
                "none" if detectable is None else f"{detectable:.4f}",
            ]
        )
    if comparisons:
        sentences.append("A difference that is smaller than what could be found may well be missed.")
    return Answer(asked, sentences, rows if comparisons else [])


def limits_answer(limits: Mapping[str, Limits], measures: Sequence[str]) -> Answer:
    """Whether the first stage is the limit.

    Args:
        limits: of each run by its name.
        measures: to show of the best order.
    """
    titles = [f"highest {measure}" for measure in measures]
    rows = [["candidates of", "recall", *titles, "questions without a relevant candidate"]]
    same: dict[str, list[str]] = {}
    for name, one in limits.items():
        same.setdefault(repr(one), []).append(name)
    for names in same.values():
        one = limits[names[0]]
        best = [f"{one.best[measure]:.4f}" for measure in measures]
        who = "all" if len(names) == len(limits) > 1 else ", ".join(names)
        rows.append([who, f"{one.recall:.4f}", *best, f"{one.without:,} of {one.questions:,}"])
    worst = min(limits.values(), key=lambda one: one.found / max(one.relevant, 1))
    missed = worst.relevant - worst.found
    sentence = (
        "No: every relevant answer is a candidate."
        if not missed
        else f"In part: {missed:,} of {worst.relevant:,} relevant answers are not among the candidates, "
        "where no reranker finds them."
    )
    highest = "The highest figures are those of the candidates in their best order."
    unanswerable = "A question without any relevant answer counts 0."
    return Answer("Is the first stage the limit?", [sentence, highest, unanswerable], rows)


def groups_answer(kind: Kind, groups: Mapping[str, Mapping[str, Group]], measure: str) -> Answer:
    """A measure by kind of question.

    Args:
        kind: what the questions are grouped by.
        groups: of each run by its name; the same groups of all.
        measure: the measure.
    """
    rows = [[_KINDS[kind].removeprefix("by "), "questions", *groups]]
    for same in zip(*(figures.values() for figures in groups.values()), strict=True):
        means = [f"{group.means[measure]:.4f}" for group in same]
        rows.append([same[0].name, f"{same[0].questions:,}", *means])
    few = "A group of a few questions says little: it shows where to look, not what is significant."
    return Answer(f"For which questions? {measure} {_KINDS[kind]}", [few], rows)


def agreement_answer(
    pairs: Mapping[str, Sequence[Agreement]],
    measure: str,
    *,
    what: str = "runs",
    asked: str = "Do the runs agree?",
) -> Answer:
    """Whether runs agree.

    Args:
        pairs: by name the agreement of one pair, or of every two seeds of a system.
        measure: the measure whose figures are correlated.
        what: column title of the names.
        asked: the question.
    """
    titles = ["Kendall's tau", "rank-biased overlap", f"correlation of {measure}"]
    rows = [[what, "pairs", *titles]]
    for name, found in pairs.items():
        mean = mean_agreement(found)
        rows.append([name, str(len(found)), *("none" if one is None else f"{one:.3f}" for one in mean)])
    sentences = [
        "Kendall's tau is 1 where the candidates are in the same order, about 0 for unrelated orders, and -1 "
        "for opposite ones.",
        f"Rank-biased overlap (p = {PERSISTENCE:g}) is the share of candidates in common from the top down: "
        "1 for the same ranking; the first ten ranks have 86% of its weight. It is high in small pools.",
        "The correlation is Pearson's, over the questions: low where a similar mean comes from other ones.",
    ]
    return Answer(asked, sentences, rows)


def gap_answer(gaps: Mapping[str, Mapping[str, Gap]], split: str, *, dev_sampled: bool = True) -> Answer:
    """How far figures on a split are from those on dev.

    Args:
        gaps: by run and measure.
        split: the split.
        dev_sampled: whether intervals are of the questions of both splits, not of this one alone.
    """
    rows = [["", "measure", "dev", split, "difference", "interval"]]
    for name, by_measure in gaps.items():
        for measure, gap in by_measure.items():
            figures = [f"{gap.dev:.4f}", f"{gap.test:.4f}", f"{gap.difference:+.4f}"]
            rows.append([name, measure, *figures, _interval(gap.interval)])
    sampled = "both splits" if dev_sampled else f"{split} alone"
    sentences = [
        f"The interval is of the questions of {sampled}: where it includes 0, the gap may be chance.",
        "Figures on dev are too high where they chose the epoch or the recipe.",
    ]
    return Answer(f"How far is {split} from dev?", sentences, rows)


def leaks_answer(leaks: Sequence[Leak], split: str) -> Answer:
    """Whether questions or answers of a split stand in an earlier one.

    Args:
        leaks: from `find_leaks`, of this split.
        split: the split.
    """
    asked = f"Does {split} leak from what was trained on?"
    if not leaks:
        return Answer(asked, [f"There is no split before {split} in the collection."], [])
    rows = [["near copies in", "questions", "word for word", "relevant answers", "word for word"]]
    for one in leaks:
        near = [f"{one.near_questions:,} of {one.questions:,}", f"{one.same_questions:,}"]
        rows.append([one.earlier, *near, f"{one.near_answers:,} of {one.answers:,}", f"{one.same_answers:,}"])
    copies = "Near copies share four fifths of their distinct words or more (Jaccard similarity .8)."
    examples = [
        f"{own} of {split} and {other} of {one.earlier}" for one in leaks for own, other in one.examples
    ]
    shown = [f"Questions such as {', '.join(examples[:3])}."] if examples else []
    return Answer(asked, [copies, *shown], rows)


def _interval(interval: Interval | None) -> str:
    return "none" if interval is None else f"[{interval.low:+.4f}, {interval.high:+.4f}]"


# The split that chooses the epoch; see `training.fit`.
DEV = "dev"


def review(results: CollectionResults) -> list[Answer]:
    """The answers, in the order of `aptool eval --review`.

    Raises:
        InputError: a file of the collection or a run cannot be read.
    """
    collection, split, main = results.collection, results.split, results.measures[0]
    judgements = read_qrels(collection.qrels(split))
    comparisons = [one for system in results.systems for one in system.comparisons.values()]
    limits = {
        system.name: candidate_limits(judgements, read_run(system.entries[0].run).frame, results.measures)
        for system in results.systems
    }
    answers = [power_answer(results.questions, comparisons), limits_answer(limits, results.measures)]
    pools, shared = [collection.pools(split)], collection.answers
    texts = read_answers(shared) if shared is not None else None
    tables = {system.name: system.per_question.select("question_id", main) for system in results.systems}
    for kind, by_system in groups_by_kind(pools, judgements, tables, texts).items():
        answers.append(groups_answer(kind, by_system, main))
    several = {system.name: _seeds(system, main) for system in results.systems if len(system.entries) > 1}
    if several:
        asked = "Do the seeds agree?"
        answers.append(agreement_answer(several, main, what="system", asked=asked))
    gaps = {one.name: found for one in results.systems if (found := _gaps(one, results))}
    if gaps and split != DEV:
        answers.append(gap_answer(gaps, split, dev_sampled=False))
    # The questions of all folds, or of a first split, have no other split to leak from.
    if leaks := find_leaks(collection, split):
        answers.append(leaks_answer(leaks, split))
    return answers


def _seeds(system: SystemResults, measure: str) -> list[Agreement]:
    """The agreement of every two seeds."""
    names = [str(entry.seed) for entry in system.entries]
    runs = {name: read_run(entry.run).frame for name, entry in zip(names, system.entries, strict=True)}
    return list(pairwise(runs, dict(zip(names, system.by_seed, strict=True)), measure).values())


def _gaps(system: SystemResults, results: CollectionResults) -> dict[str, Gap]:
    """By measure the gap between the models' figures on dev and those on the split, means over seeds."""
    gaps = {}
    dev = [MeasureValues.from_any_names(config["training"]["dev"]) for config in system.configs]
    for measure in results.measures:
        values = [figures[measure] for figures in dev if measure in figures]
        if values and len(values) == len(system.entries):
            mean, ours = statistics.fmean(values), system.means[measure]
            low, high = system.intervals[measure]
            gaps[measure] = Gap(mean, ours, ours - mean, Interval(low - mean, high - mean))
    return gaps


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
        kinds = groups_by_kind(files, evaluated.relevant, tables, texts)
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
    collection = CollectionFiles(folder)
    return find_leaks(collection, split) if split in collection.splits else None


def _split_of(qrels: str | None) -> str:
    """The split that a qrels file is named after."""
    return (qrels or "test").rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".qrels")


def _unknown(question: str, reason: str) -> Answer:
    return Answer(question, [f"Unknown: {reason}."], [])
