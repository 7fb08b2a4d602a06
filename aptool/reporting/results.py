"""Results of systems on a collection: means over seeds, intervals, and tests against a baseline."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from aptool.errors import UsageError
from aptool.evaluation.averages import averages, mean_intervals
from aptool.evaluation.compare import Comparison, compare, is_mean
from aptool.evaluation.measures import evaluate
from aptool.evaluation.seeds import mean_and_sd
from aptool.evaluation.significance import Interval
from aptool.formats.collection import Collection
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.runs import RunEntry

logger = logging.getLogger(__name__)

DEFAULT_BASELINE = "bm25"
# The measure of the paper's figures 3 and 4; evaluated even if it is not in the table of experiments.
ACCURACY = "P@1"


class SystemResults(NamedTuple):
    """Results of one system over all its seeds.

    Attributes:
        name: name of the system.
        entries: its runs, one per seed.
        preset: preset of a trained system.
        configs: ``config.json`` of each of its models.
        per_question: question_id, and each measure and `ACCURACY`: the mean over seeds.
        by_seed: the same of each seed, in the order of the entries.
        means: each measure, mean over seeds.
        deviations: each measure, sample standard deviation over seeds; 0 for one seed.
        intervals: confidence interval of each measure.
        comparisons: comparison with the baseline by each measure; empty for the baseline.
    """

    name: str
    entries: list[RunEntry]
    preset: str | None
    configs: list[dict[str, Any]]
    per_question: pl.DataFrame
    by_seed: list[pl.DataFrame]
    means: dict[str, float]
    deviations: dict[str, float]
    intervals: dict[str, Interval]
    comparisons: dict[str, Comparison]


class CollectionResults(NamedTuple):
    """Results of all systems on one collection."""

    name: str  # in the table of experiments
    collection: Collection
    split: str
    questions: int
    measures: tuple[str, ...]
    baseline: str
    systems: list[SystemResults]


def evaluate_systems(
    name: str,
    collection: Collection,
    systems: dict[str, list[RunEntry]],
    measures: tuple[str, ...],
    baseline: str | None,
) -> CollectionResults:
    """Evaluates every run on a collection and tests every system against the baseline.

    Args:
        name: name of the collection in the table of experiments.
        collection: the collection, with the qrels.
        systems: the runs of each system, one per seed.
        measures: names; the first is the main measure.
        baseline: a system; None for BM25 if it was run, otherwise the first system.

    Raises:
        UsageError: the baseline is not among the systems.
        InputError: a file cannot be read.
    """
    if baseline is None:
        baseline = DEFAULT_BASELINE if DEFAULT_BASELINE in systems else next(iter(systems))
    if baseline not in systems:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(systems)}")
    split = next(iter(systems.values()))[0].split
    path = collection.qrels(split)
    qrels = read_qrels(path)
    wanted = tuple(dict.fromkeys((*measures, ACCURACY)))
    results = []
    for system, entries in systems.items():
        logger.info(f"{name}: {system}")
        frames = [
            evaluate(
                qrels, read_run(entry.run).frame, wanted, run_name=str(entry.run), qrels_name=str(path)
            ).per_question
            for entry in entries
        ]
        results.append(_system(system, entries, frames, measures))
    logger.info(f"{name}: tests against {baseline}")
    tables = {system.name: system.per_question for system in results}
    reference = tables.pop(baseline)
    tested = [measure for measure in measures if is_mean(measure)]
    for one in compare(reference, tables, tested):
        next(system for system in results if system.name == one.system).comparisons[one.measure] = one
    return CollectionResults(name, collection, split, reference.height, measures, baseline, results)


def _system(
    name: str, entries: list[RunEntry], frames: Sequence[pl.DataFrame], measures: tuple[str, ...]
) -> SystemResults:
    seeds = [averages(frame.select("question_id", *measures)) for frame in frames]
    mean = pl.concat(frames).drop("candidates").group_by("question_id", maintain_order=True).mean()
    spreads = {measure: mean_and_sd([seed[measure] for seed in seeds]) for measure in measures}
    configs = [config for entry in entries if (config := entry.config) is not None]
    return SystemResults(
        name,
        entries,
        str(configs[0]["recipe"]["preset"]) if configs else None,
        configs,
        mean,
        list(frames),
        {measure: spread.mean for measure, spread in spreads.items()},
        {measure: spread.sd for measure, spread in spreads.items()},
        mean_intervals(mean.select("question_id", *measures)),
        {},
    )
