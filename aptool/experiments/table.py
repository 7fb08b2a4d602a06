"""The results of an experiment matrix: a row per system and collection, mean ± deviation over seeds."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import polars as pl

from aptool.documents import json_text
from aptool.evaluation.measures import evaluate
from aptool.evaluation.power import Spread, mean_and_sd
from aptool.evaluation.significance import Paired, compare_paired, holm
from aptool.experiments.folds import fold_deviations
from aptool.experiments.matrix import ExperimentMatrix
from aptool.experiments.trial import Result, by_system
from aptool.formats.atomic import atomic_file
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.html import markdown_table


class SystemPair(NamedTuple):
    """Two systems on the folds of a collection by one measure.

    Attributes:
        collection: the name of the folds in the results.
        system: the one with the higher mean.
        other: the other one.
        measure: its name.
        paired: the tests; a question's value is its mean over seeds, and ``other`` is the baseline.
        holm: the p-value of the permutation test, corrected for all pairs of the collection.
    """

    collection: str
    system: str
    other: str
    measure: str
    paired: Paired
    holm: float


class Summary(NamedTuple):
    """A system on a collection over all its seeds.

    Attributes:
        questions: how many the means are over.
        deviations: standard deviation over seeds, of a sample; 0 of a single seed.
        fold_deviations: standard deviation over folds, of the means over seeds; empty without folds.
        train_seconds: mean over seeds, of all folds together.
        score_seconds: mean over seeds, of all folds together.
        bytes_per_answer: that are kept until its questions come; None if none are, or of a fusion.
        pairs_per_second: in ``score_seconds``; None of a system that is not trained, or whose network is not
            and had read the texts before.
    """

    collection: str
    system: str
    seeds: int
    questions: int
    means: dict[str, float]
    deviations: dict[str, float]
    fold_deviations: dict[str, float]
    train_seconds: float
    score_seconds: float
    bytes_per_answer: float | None = None
    pairs_per_second: float | None = None


def summarize(results: Sequence[Result]) -> list[Summary]:
    """One summary for each system and collection, in the order in which they first come."""
    return [_summary(group) for group in by_system(results)]


def table_cells(
    summaries: Sequence[Summary], measures: Sequence[str], *, costs: bool = False
) -> list[list[str]]:
    """The summaries as rows of text, headings first.

    Args:
        summaries: a row each.
        measures: by their common names.
        costs: whether with columns of ``bytes_per_answer`` and ``pairs_per_second``.
    """
    titles = list(measures)
    folds = [f"{titles[0]}, sd over folds"] if any(one.fold_deviations for one in summaries) else []
    head = ["collection", "system", *titles, *folds, "questions", "seeds", "train s", "score s"]
    rows = [head, *(_cells(one, measures[0] if folds else None) for one in summaries)]
    if costs:
        rows[0] += ["pairs/s", "bytes/answer"]
        for row, one in zip(rows[1:], summaries, strict=True):
            figures = one.pairs_per_second, one.bytes_per_answer
            row += ["" if figure is None else f"{figure:,.0f}" for figure in figures]
    return rows


def write_table(
    folder: Location,
    summaries: Sequence[Summary],
    results: Sequence[Result],
    tests: Sequence[SystemPair],
    measures: Sequence[str],
    command: str,
) -> None:
    """Write ``table.md``, ``table.json`` and, if there are paired tests, ``paired.md``.

    Args:
        folder: where to.
        summaries: of the results.
        results: all of them, with run files below ``folder``.
        tests: paired tests of the systems over folds.
        measures: those of the matrix.
        command: the command line that ran the matrix.

    Raises:
        InputError: the folder cannot be written to.
    """
    document: dict[str, Any] = {
        "command": command,
        # Those that the matrix made are relative to its folder, which may be moved and read from anywhere.
        "collections": {
            name: {
                "path": str(place).removeprefix(f"{folder}/"),
                "fingerprint": CollectionFiles(place).fingerprint,
            }
            for name, place in {one.collection: one.folder for one in results}.items()
        },
        "lines": [summary._asdict() for summary in summaries],
        "results": [_result_entry(result, folder) for result in results],
        "paired": [_pair_entry(one) for one in tests],
    }
    _write(folder / "table.md", markdown_table(table_cells(summaries, measures, costs=True), left=2))
    if tests:
        _write(folder / "paired.md", markdown_table(paired_cells(tests), left=4))
    _write(folder / "table.json", json_text(document))


def not_above_random(summaries: Sequence[Summary], matrix: ExperimentMatrix) -> list[str]:
    """The trained systems whose first measure is not above that of random order on the same collection."""
    measure = matrix.measures[0]
    random = {
        one.collection: one.means[measure]
        for one in summaries
        if matrix.systems[one.system].baseline == "random"
    }
    return [
        f"{one.system} on {one.collection}: {one.means[measure]:.4f}, random {random[one.collection]:.4f}"
        for one in summaries
        if matrix.systems[one.system].preset is not None
        and one.collection in random
        and one.means[measure] <= random[one.collection]
    ]


def _summary(group: list[Result]) -> Summary:
    first = group[0]
    spreads = {
        measure: mean_and_sd([result.measures[measure] for result in group]) for measure in first.measures
    }
    return Summary(
        collection=first.collection,
        system=first.system,
        seeds=len(group),
        questions=first.questions,
        means={measure: spread.mean for measure, spread in spreads.items()},
        deviations={measure: spread.sd for measure, spread in spreads.items()},
        fold_deviations=fold_deviations(group),
        train_seconds=mean_and_sd([result.seconds["train"] for result in group]).mean,
        score_seconds=mean_and_sd([result.seconds["score"] for result in group]).mean,
        bytes_per_answer=_mean([result.costs.get("bytes_per_answer") for result in group]),
        pairs_per_second=_mean(
            [
                result.costs["pairs"] / result.seconds["score"] if "pairs" in result.costs else None
                for result in group
            ]
        ),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if one is not known."""
    known = [value for value in values if value is not None]
    return mean_and_sd(known).mean if known and len(known) == len(values) else None


def _cells(one: Summary, fold_measure: str | None) -> list[str]:
    """A summary as cells, with the deviation over folds of a measure if there is a column for it."""
    figures = [Spread(mean, one.deviations[measure]).text(one.seeds) for measure, mean in one.means.items()]
    if fold_measure is not None:
        figures.append(f"{one.fold_deviations[fold_measure]:.4f}" if one.fold_deviations else "")
    counts = [str(one.questions), str(one.seeds)]
    seconds = [f"{one.train_seconds:.1f}", f"{one.score_seconds:.1f}"]
    return [one.collection, one.system, *figures, *counts, *seconds]


def _result_entry(result: Result, folder: Location) -> dict[str, Any]:
    """A result as JSON values, its run file relative to the folder of the table."""
    entry = {**result._asdict(), "run": str(result.run).removeprefix(f"{folder}/")}
    del entry["folder"]  # it is with the collection
    return entry


def _pair_entry(one: SystemPair) -> dict[str, Any]:
    """A paired test as JSON values."""
    paired = one.paired
    return {
        **one._asdict(),
        "paired": {
            **paired._asdict(),
            "interval": paired.interval._asdict(),
            "permutation": paired.permutation._asdict(),
            "t_test": paired.t_test._asdict(),
        },
    }


def _write(path: Location, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


# Fewer than for one comparison: there are as many tests as pairs of systems.
PERMUTATIONS = 10_000


def paired_tests(results: Sequence[Result], measure: str) -> list[SystemPair]:
    """Every pair of systems on the folds of each collection, the systems from the highest mean to the lowest.

    Raises:
        InputError: a run or the qrels cannot be read.
    """
    groups = [group for group in by_system(results) if group[0].folds]
    tests = []
    for collection in dict.fromkeys(group[0].collection for group in groups):
        values = {
            group[0].system: _per_question(group, measure)
            for group in groups
            if group[0].collection == collection
        }
        order = sorted(values, key=lambda system: -float(values[system].sum()))
        pairs = list(combinations(order, 2))
        found = [
            compare_paired(values[other].to_numpy(), values[system].to_numpy(), permutations=PERMUTATIONS)
            for system, other in pairs
        ]
        corrected = holm([one.permutation.p for one in found])
        tests += [
            SystemPair(collection, *pair, measure, paired, p)
            for pair, paired, p in zip(pairs, found, corrected, strict=True)
        ]
    return tests


def paired_cells(tests: Sequence[SystemPair]) -> list[list[str]]:
    """The tests as rows of text, headings first."""
    head = ["collection", "system", "against", "measure", "difference", "95% interval", "p", "p (Holm)"]
    return [head, *map(_paired_cells, tests)]


def _paired_cells(one: SystemPair) -> list[str]:
    paired = one.paired
    interval = f"{paired.interval.low:+.4f} to {paired.interval.high:+.4f}"
    figures = [f"{paired.difference:+.4f}", interval, f"{paired.permutation.p:.4f}", f"{one.holm:.4f}"]
    return [one.collection, one.system, one.other, one.measure, *figures]


def _per_question(group: Sequence[Result], measure: str) -> pl.Series:
    """The measure of each question, the mean over the seeds of a system, in the order of the qrels."""
    first = group[0]
    qrels = read_qrels(CollectionFiles(first.folder).qrels(first.split))
    frames = [evaluate(qrels, read_run(one.run).frame, [measure]).per_question for one in group]
    by_question = pl.concat(frames).group_by("question_id", maintain_order=True)
    return by_question.agg(pl.col(measure).mean())[measure]
