"""The systems on one collection side by side: means over seeds, intervals, and tests against a baseline."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from aptool.errors import UsageError
from aptool.evaluation.compare import Comparison, compare, mean_intervals
from aptool.evaluation.measures import averages, evaluate
from aptool.evaluation.seeds import mean_and_sd
from aptool.evaluation.significance import Interval
from aptool.formats.collection import Collection
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.runs import Entry

logger = logging.getLogger(__name__)

USUAL_BASELINE = "bm25"
# The measure of the paper's figures 3 and 4: evaluated whether or not the table of experiments asks for it.
ACCURACY = "P_1"


class System(NamedTuple):
    """One system over all its seeds."""

    name: str
    entries: list[Entry]  # one a seed
    preset: str | None  # of a trained one
    configs: list[dict[str, Any]]  # of its models
    per_question: pl.DataFrame  # question_id, and each measure and ACCURACY: the mean over seeds
    means: dict[str, float]  # over seeds
    deviations: dict[str, float]  # over seeds, of the sample; 0 with one seed
    intervals: dict[str, Interval]
    against: dict[str, Comparison]  # measure -> with the baseline; none for the baseline itself


class SideBySide(NamedTuple):
    """All systems on one collection."""

    name: str  # as the table of experiments calls it
    collection: Collection
    split: str
    questions: int
    measures: tuple[str, ...]
    baseline: str
    systems: list[System]


def side_by_side(
    name: str,
    collection: Collection,
    systems: dict[str, list[Entry]],
    measures: tuple[str, ...],
    baseline: str | None,
) -> SideBySide:
    """Evaluates every run of a collection and tests every system against the baseline.

    Args:
        name: the runs' name for the collection.
        collection: with the judgements.
        systems: the seeds of each system.
        measures: as trec_eval names them; the first is the one that decides.
        baseline: a system; None for BM25 where it was run, and else for the first.

    Raises:
        UsageError: the baseline is not among the systems.
        InputError: a file cannot be read.
    """
    if baseline is None:
        baseline = USUAL_BASELINE if USUAL_BASELINE in systems else next(iter(systems))
    if baseline not in systems:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(systems)}")
    split = next(iter(systems.values()))[0].split
    path = collection.qrels(split)
    qrels = read_qrels(path)
    wanted = tuple(dict.fromkeys((*measures, ACCURACY)))
    found = []
    for system, entries in systems.items():
        logger.info(f"{name}: {system}")
        frames = [
            evaluate(
                qrels, read_run(entry.run).frame, wanted, run_name=str(entry.run), qrels_name=str(path)
            ).per_question
            for entry in entries
        ]
        found.append(_system(system, entries, frames, measures))
    logger.info(f"{name}: tests against {baseline}")
    tables = {system.name: system.per_question for system in found}
    reference = tables.pop(baseline)
    # Sums and geometric means are no means over questions: there is nothing to test.
    tested = [measure for measure in measures if not measure.startswith(("num_", "gm_"))]
    for one in compare(reference, tables, tested):
        next(system for system in found if system.name == one.system).against[one.measure] = one
    return SideBySide(name, collection, split, reference.height, measures, baseline, found)


def _system(
    name: str, entries: list[Entry], frames: Sequence[pl.DataFrame], measures: tuple[str, ...]
) -> System:
    seeds = [averages(frame.select("question_id", *measures)) for frame in frames]
    mean = pl.concat(frames).drop("candidates").group_by("question_id", maintain_order=True).mean()
    spreads = {measure: mean_and_sd([seed[measure] for seed in seeds]) for measure in measures}
    configs = [config for entry in entries if (config := entry.config) is not None]
    return System(
        name,
        entries,
        str(configs[0]["recipe"]["preset"]) if configs else None,
        configs,
        mean,
        {measure: spread.mean for measure, spread in spreads.items()},
        {measure: spread.sd for measure, spread in spreads.items()},
        mean_intervals(mean.select("question_id", *measures)),
        {},
    )
