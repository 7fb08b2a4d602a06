"""The questions a reviewer asks of a collection's results, answered for the report."""

import statistics

from aptool.datasets.leaks import find_leaks
from aptool.evaluation.agreement import Agreement, pairwise
from aptool.evaluation.gap import Gap
from aptool.evaluation.limits import candidate_limits
from aptool.evaluation.significance import Interval
from aptool.evaluation.values import MeasureValues
from aptool.formats.pools import read_answers
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.breakdown import figures_by_kind
from aptool.reporting.results import CollectionResults, SystemResults
from aptool.reporting.review import (
    Answer,
    agreement_answer,
    gap_answer,
    groups_answer,
    leaks_answer,
    limits_answer,
    power_answer,
)

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
    for kind, by_system in figures_by_kind(pools, judgements, tables, texts).items():
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
