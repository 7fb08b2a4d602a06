"""The systems on one collection side by side: means over seeds, intervals, and tests against a baseline."""

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from aptool.errors import UsageError
from aptool.evaluation.metrics import evaluate
from aptool.evaluation.significance import Interval, Paired, bootstrap_interval, compare_paired, holm
from aptool.formats.collection import Collection
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.runs import Entry

# Draws of a permutation test: p is good to 0.002 near 0.05.
PERMUTATIONS = 20_000
USUAL_BASELINE = "bm25"
# The measure of the paper's figures 3 and 4: evaluated whether or not the table of experiments asks for it.
ACCURACY = "P_1"
_TITLES = {"map": "MAP", "recip_rank": "MRR", "P_1": "P@1"}


class System(NamedTuple):
    """One system over all its seeds; a question's value is its mean over seeds."""

    name: str
    entries: list[Entry]  # one a seed
    preset: str | None  # of a trained one
    configs: list[dict[str, Any]]  # of its models
    values: dict[str, np.ndarray]  # measure, and ACCURACY -> (questions,)
    means: dict[str, float]
    deviations: dict[str, float]  # over seeds, of the sample; 0 with one seed
    intervals: dict[str, Interval]  # of the mean over questions
    against: dict[str, Paired]  # measure -> against the baseline; none for the baseline itself
    p: dict[str, float]  # of the permutation tests, by Holm over all systems


class Comparison(NamedTuple):
    """All systems on one collection."""

    name: str  # as the table of experiments calls it
    collection: Collection
    split: str
    question_ids: list[str]
    measures: tuple[str, ...]
    baseline: str
    systems: list[System]


def compare_systems(
    name: str,
    collection: Collection,
    systems: dict[str, list[Entry]],
    measures: tuple[str, ...],
    baseline: str | None,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Evaluates every run of a collection and tests every system against the baseline.

    Args:
        name: the runs' name for the collection.
        collection: with the judgements.
        systems: the seeds of each system.
        measures: as trec_eval names them; the first is the one that decides.
        baseline: a system; None for BM25 where it was run, and else for the first.
        say: told in a line what is being done.

    Raises:
        UsageError: the baseline is not among the systems.
        InputError: a file cannot be read.
    """
    if baseline is None:
        baseline = USUAL_BASELINE if USUAL_BASELINE in systems else next(iter(systems))
    if baseline not in systems:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(systems)}")
    split = next(iter(systems.values()))[0].split
    qrels_path = collection.qrels(split)
    qrels = read_qrels(qrels_path)
    values = {}
    for system, entries in systems.items():
        say(f"{name}: {system}")
        frames = [
            evaluate(
                qrels,
                read_run(entry.run).frame,
                dict.fromkeys((*measures, ACCURACY)),
                run_name=str(entry.run),
                qrels_name=str(qrels_path),
            ).per_question
            for entry in entries
        ]
        values[system] = frames
    found = [_system(system, systems[system], frames, measures) for system, frames in values.items()]
    question_ids = next(iter(values.values()))[0]["question_id"].to_list()
    tested = _tested(found, baseline, measures)
    return Comparison(name, collection, split, question_ids, measures, baseline, tested)


def title_of(measure: str) -> str:
    """What a measure is called in headings."""
    return _TITLES.get(measure, measure)


def _system(name: str, entries: list[Entry], frames: list[pl.DataFrame], measures: tuple[str, ...]) -> System:
    values = {m: np.mean([frame[m].to_numpy() for frame in frames], axis=0) for m in (*measures, ACCURACY)}
    means = {m: [float(frame[m].to_numpy().mean()) for frame in frames] for m in measures}
    configs = [config for entry in entries if (config := entry.config) is not None]
    return System(
        name,
        entries,
        str(configs[0]["recipe"]["preset"]) if configs else None,
        configs,
        values,
        {m: statistics.fmean(seeds) for m, seeds in means.items()},
        {m: statistics.stdev(seeds) if len(seeds) > 1 else 0.0 for m, seeds in means.items()},
        {m: bootstrap_interval(values[m]) for m in measures},
        {},
        {},
    )


def _tested(systems: list[System], baseline: str, measures: tuple[str, ...]) -> list[System]:
    reference = next(system for system in systems if system.name == baseline)
    others = [system for system in systems if system is not reference]
    for measure in measures:
        paired = [
            compare_paired(reference.values[measure], other.values[measure], permutations=PERMUTATIONS)
            for other in others
        ]
        adjusted = holm([one.permutation.p for one in paired])
        for other, one, p in zip(others, paired, adjusted, strict=True):
            other.against[measure] = one
            other.p[measure] = p
    return systems
