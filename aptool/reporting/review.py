"""Questions of a reviewer about results, each with an answer in words and a table.

`aptool eval --review`, `aptool compare --review` and the report share these answers.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from aptool.datasets.leaks import Leak, find_leaks
from aptool.evaluation.compare import Comparison, shown_detectable
from aptool.evaluation.diagnostics import (
    PERSISTENCE,
    Agreement,
    Limits,
    candidate_limits,
    mean_agreement,
    pairwise,
)
from aptool.evaluation.evaluation import Group, MeasureValues, averages
from aptool.evaluation.significance import CONFIDENCE, POWER, Interval, detectable_effect
from aptool.evaluation.texts import OTHER, Kind, groups_by_kind
from aptool.formats.collection import MANIFEST, CollectionFiles
from aptool.formats.location import location
from aptool.formats.pools import Answers, read_answers
from aptool.formats.runs import read_run
from aptool.formats.trec import read_qrels
from aptool.reporting.charts import LEAST_QUESTIONS
from aptool.reporting.runs import CollectionResults, SystemResults

# The split that chooses the epoch; see `training.fit`.
DEV = "dev"
_KINDS: dict[Kind, str] = {
    "question-length": "by length of the question",
    "answer-length": "by length of the shortest relevant answer",
    "type": "by question word",
}


class Answer(NamedTuple):
    """The answer to a question."""

    question: str
    sentences: list[str]
    rows: list[list[str]]  # column titles first; empty without a table


def power_answer(
    questions: int,
    comparisons: Sequence[Comparison] = (),
    names: Mapping[str, str] | None = None,
    confidence: float = CONFIDENCE,
) -> Answer:
    """The smallest difference that the tests detect, in standard deviations without comparisons.

    ``names`` are display names of systems.
    """
    question = "How large a difference could these questions show?"
    if questions < 2:
        return Answer(question, ["None: a test needs at least two questions."], [])
    effect = detectable_effect(questions, alpha=1 - confidence)
    sentences = [
        f"A paired t-test of {questions:,} questions detects a true difference of {effect:.2f} standard "
        f"deviations of the per-question differences with probability {POWER:g} (level {1 - confidence:.3g})."
    ]
    rows = [["", "measure", "difference", "interval", "detectable"]]
    for comparison in comparisons:
        rows.append(
            [
                (names or {}).get(comparison.system, comparison.system),
                comparison.measure,
                f"{comparison.difference:+.4f}",
                _interval(comparison.interval),
                shown_detectable(comparison.detectable(confidence), comparison.measure),
            ]
        )
    if comparisons:
        sentences.append("Smaller true differences are often missed.")
        if any(row[-1].startswith("above") for row in rows[1:]):
            sentences.append("Above 1: no true difference can be that large, so more questions are needed.")
    return Answer(question, sentences, rows if comparisons else [])


def limits_answer(limits: Mapping[str, Limits], measures: Sequence[str]) -> Answer:
    """The oracle upper bound of each run."""
    titles = [f"highest {measure}" for measure in measures]
    rows = [["candidates of", "recall", *titles, "questions without a relevant candidate"]]
    same: dict[str, list[str]] = {}
    for name, bounds in limits.items():
        same.setdefault(repr(bounds), []).append(name)
    for names in same.values():
        bounds = limits[names[0]]
        best = [f"{bounds.best[measure]:.4f}" for measure in measures]
        runs = "all" if len(names) == len(limits) > 1 else ", ".join(names)
        without = f"{bounds.without:,} of {bounds.questions:,}"
        rows.append([runs, f"{bounds.recall:.4f}", *best, without])
    worst = min(limits.values(), key=lambda bounds: bounds.found / max(bounds.relevant, 1))
    missed = worst.relevant - worst.found
    sentence = (
        "No: every relevant answer is a candidate."
        if not missed
        else f"In part: {missed:,} of {worst.relevant:,} relevant answers are not among the candidates, "
        "so no re-ranker can return them."
    )
    highest = "The highest values are those of a perfect re-ranking of the candidates."
    unanswerable = "A question without a relevant answer counts 0."
    return Answer("Is the first stage the limit?", [sentence, highest, unanswerable], rows)


def groups_answer(kind: Kind, groups: Mapping[str, Mapping[str, Group]], measure: str) -> Answer:
    """A measure by group of questions; every run has the same groups."""
    question = f"For which questions? {measure} {_KINDS[kind]}"
    folded = {name: _fold_small(by_name) for name, by_name in groups.items()}
    if all(len(by_name) == 1 for by_name in folded.values()):
        return Answer(question, [f"There are not two groups of {LEAST_QUESTIONS} questions."], [])
    columns = next(iter(folded.values())).values()
    titles = [f"{group.name} ({group.questions:,})" for group in columns]
    rows = [[f"{measure} (questions)", *titles]]
    for name, by_name in folded.items():
        rows.append([name, *(f"{group.means[measure]:.4f}" for group in by_name.values())])
    small = f"Groups of fewer than {LEAST_QUESTIONS} questions are in “{OTHER}”."
    return Answer(question, [small, "The differences are not tested."], rows)


def _fold_small(groups: Mapping[str, Group]) -> dict[str, Group]:
    """Merge the groups of fewer than `LEAST_QUESTIONS` questions into the last group, `texts.OTHER`."""
    large = {
        name: group for name, group in groups.items() if group.questions >= LEAST_QUESTIONS and name != OTHER
    }
    if len(large) == len(groups):
        return large
    merged = pl.concat([group.per_question for name, group in groups.items() if name not in large])
    return {**large, OTHER: Group(OTHER, merged, averages(merged))}


def agreement_answer(
    pairs: Mapping[str, Sequence[Agreement]],
    measure: str,
    *,
    title: str = "runs",
    question: str = "Do the runs agree?",
) -> Answer:
    """The agreement of runs: by name, of one pair of runs or of every pair of a system's seeds.

    ``title`` is the column title of the names.
    """
    titles = ["Kendall's tau", "rank-biased overlap", f"correlation of {measure}"]
    rows = [[title, "pairs", *titles]]
    for name, agreements in pairs.items():
        means = ("none" if mean is None else f"{mean:.3f}" for mean in mean_agreement(agreements))
        rows.append([name, str(len(agreements)), *means])
    sentences = [
        "Kendall's tau is 1 for equal orders of the candidates, about 0 for unrelated orders, and -1 for "
        "opposite orders.",
        f"Rank-biased overlap (p = {PERSISTENCE:g}) is the share of candidates in common from the top down: "
        "1 for equal rankings; the first ten ranks have 86% of its weight. It is high in small pools.",
        "The correlation is Pearson's, over the questions: it is low if the runs do well on different "
        "questions.",
    ]
    return Answer(question, sentences, rows)


def gap_answer(results: CollectionResults) -> Answer | None:
    """The gap between dev and the split by system and measure, means over seeds; None without values on dev.

    The interval is the bootstrap interval of the gap over the questions of the split.
    """
    split = results.split
    rows = [["", "measure", "dev", split, "difference", "interval"]]
    for system in results.systems:
        dev = [MeasureValues.from_any_names(config["training"]["dev"]) for config in system.configs]
        for measure in results.measures:
            values = [measures[measure] for measures in dev if measure in measures]
            if not values or len(values) < len(system.entries):
                continue
            on_dev, mean = statistics.fmean(values), system.means[measure]
            low, high = system.intervals[measure]
            interval = _interval(Interval(low - on_dev, high - on_dev))
            rows.append(
                [system.name, measure, f"{on_dev:.4f}", f"{mean:.4f}", f"{mean - on_dev:+.4f}", interval]
            )
    if len(rows) == 1:
        return None
    sentences = [
        f"The interval resamples the questions of {split} alone. If it includes 0, the gap may be chance.",
        "Values on dev are too high if the epoch or the recipe was chosen on dev.",
    ]
    return Answer(f"How far is {split} from dev?", sentences, rows)


def leaks_answer(leaks: Sequence[Leak], split: str) -> Answer:
    """The near copies of questions and answers of a split in earlier splits."""
    question = f"Does {split} leak from what was trained on?"
    if not leaks:
        return Answer(question, [f"There is no split before {split} in the collection."], [])
    rows = [["near copies in", "questions", "word for word", "relevant answers", "word for word"]]
    for leak in leaks:
        questions = [f"{leak.near_questions:,} of {leak.questions:,}", f"{leak.same_questions:,}"]
        answers = [f"{leak.near_answers:,} of {leak.answers:,}", f"{leak.same_answers:,}"]
        rows.append([leak.earlier, *questions, *answers])
    copies = "Near copies share at least four fifths of their distinct words (Jaccard similarity 0.8)."
    examples = [
        f"{question_id} of {split} and {earlier} of {leak.earlier}"
        for leak in leaks
        for question_id, earlier in leak.examples
    ]
    shown = [f"Questions such as {', '.join(examples[:3])}."] if examples else []
    return Answer(question, [copies, *shown], rows)


def _interval(interval: Interval) -> str:
    return f"[{interval.low:+.4f}, {interval.high:+.4f}]"


def review(results: CollectionResults) -> list[Answer]:
    """The answers for the report, in the order of `aptool eval --review`."""
    collection, split, main = results.collection, results.split, results.measures[0]
    judgements = read_qrels(collection.qrels(split))
    comparisons = [test for system in results.systems for test in system.comparisons.values()]
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
    seeds = {system.name: _seeds(system, main) for system in results.systems if len(system.entries) > 1}
    if seeds:
        answers.append(agreement_answer(seeds, main, title="system", question="Do the seeds agree?"))
    if split != DEV and (gaps := gap_answer(results)):
        answers.append(gaps)
    # Pooled folds and first splits have no earlier split.
    if leaks := find_leaks(collection, split):
        answers.append(leaks_answer(leaks, split))
    return answers


def _seeds(system: SystemResults, measure: str) -> list[Agreement]:
    """The agreement of every pair of seeds."""
    names = [str(entry.seed) for entry in system.entries]
    runs = {name: read_run(entry.run).frame for name, entry in zip(names, system.entries, strict=True)}
    return list(pairwise(runs, dict(zip(names, system.by_seed, strict=True)), measure).values())


class Review(NamedTuple):
    """The answers in words, and their values for JSON."""

    answers: list[Answer]
    values: dict[str, Any]


def review_runs(
    runs: Mapping[str, pl.DataFrame],
    tables: Mapping[str, pl.DataFrame],
    *,
    limits: Mapping[str, Limits],
    relevant: pl.DataFrame,
    qrels: str | None,
    measures: Sequence[str],
    names: Mapping[str, str],
    confidence: float,
    comparisons: Sequence[Comparison],
    pools: tuple[list[str], Answers | None] | None,
) -> Review:
    """Answer every question about runs, given by name; without the files for an answer, it is unknown.

    ``tables`` are `Evaluation.per_question`, ``relevant`` the relevant judgements, ``qrels`` the path of the
    qrels (None in memory), ``names`` display names, and ``pools`` the pools files with the texts and their
    shared answers. The main measure is first. ``comparisons`` are with the first run, if there are several.
    """
    main = measures[0]
    questions = next(iter(tables.values())).height
    pairs = pairwise(runs, tables, main)
    agreements = {f"{names[a]} and {names[b]}": [agreement] for (a, b), agreement in pairs.items()}
    if len(pairs) > 1:
        agreements["all pairs, mean"] = list(pairs.values())
    kinds = groups_by_kind(pools[0], relevant, tables, pools[1]) if pools is not None else None
    # A qrels file is named after its split.
    split = (qrels or "test").rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".qrels")
    leaks = _leaks(qrels, split)
    answers = [
        power_answer(questions, comparisons, names, confidence),
        limits_answer({names[run]: bounds for run, bounds in limits.items()}, measures),
    ]
    if kinds is None:
        answers.append(_unknown("For which questions?", "there are no pools next to the qrels; pass --pools"))
    else:
        for kind, by_run in kinds.items():
            answers.append(groups_answer(kind, {names[run]: groups for run, groups in by_run.items()}, main))
    if pairs:
        answers.append(agreement_answer(agreements, main))
    else:
        answers.append(_unknown("Do the runs agree?", "there is only one run"))
    if leaks is not None:
        answers.append(leaks_answer(leaks, split))
    else:
        reason = "the qrels are in no collection"
        answers.append(_unknown("Does it leak from what was trained on?", reason))
    values = {
        "detectable_effect": detectable_effect(questions, alpha=1 - confidence) if questions > 1 else None,
        "limits": {run: bounds._asdict() for run, bounds in limits.items()},
        "groups": None
        if kinds is None
        else {
            kind: {run: [group.to_dict() for group in groups.values()] for run, groups in by_run.items()}
            for kind, by_run in kinds.items()
        },
        "agreement": [{"runs": list(pair), **agreement._asdict()} for pair, agreement in pairs.items()],
        "leaks": None if leaks is None else [leak._asdict() for leak in leaks],
    }
    return Review(answers, values)


def _leaks(qrels: str | None, split: str) -> list[Leak] | None:
    """Near copies between the split of the qrels and earlier splits; None outside a collection."""
    if qrels is None:
        return None
    folder = location(qrels).parent
    if not (folder / MANIFEST).is_file():
        return None
    collection = CollectionFiles(folder)
    return find_leaks(collection, split) if split in collection.splits else None


def _unknown(question: str, reason: str) -> Answer:
    return Answer(question, [f"Unknown: {reason}."], [])
