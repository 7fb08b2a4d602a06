"""The results of an experiment matrix: a row per system and collection, mean ± deviation over seeds."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aptool.evaluation.names import measure_title
from aptool.evaluation.seeds import Spread, mean_and_sd
from aptool.experiments.matrix import ExperimentMatrix
from aptool.experiments.paper import compare_with_paper, paper_cells, seed_cells
from aptool.experiments.trial import Result, by_system
from aptool.formats.atomic import atomic_file
from aptool.reporting.markup import markdown_table


class Summary(NamedTuple):
    """A system on a collection over all its seeds.

    Attributes:
        questions: how many the means are over.
        deviations: standard deviation over seeds, of a sample; 0 of a single seed.
        train_seconds: mean over seeds.
        score_seconds: mean over seeds.
    """

    collection: str
    system: str
    seeds: int
    questions: int
    means: dict[str, float]
    deviations: dict[str, float]
    train_seconds: float
    score_seconds: float


def summarize(results: Sequence[Result]) -> list[Summary]:
    """One summary for each system and collection, in the order in which they first come."""
    return [_summary(group) for group in by_system(results)]


def table_cells(summaries: Sequence[Summary], measures: Sequence[str]) -> list[list[str]]:
    """The summaries as rows of text, headings first."""
    titles = [measure_title(measure) for measure in measures]
    head = ["collection", "system", *titles, "questions", "seeds", "train s", "score s"]
    return [head, *map(_cells, summaries)]


def write_table(
    folder: Path,
    summaries: Sequence[Summary],
    results: Sequence[Result],
    matrix: ExperimentMatrix,
    command: str,
) -> None:
    """Writes ``table.md`` and ``table.json``, and ``paper.md`` where the paper has figures to compare with.

    Args:
        folder: where to.
        summaries: of the results.
        results: all of them, with run files below ``folder``.
        matrix: the experiments; where their collections are is written as well.
        command: the command line that ran the matrix.

    Raises:
        InputError: the folder cannot be written to.
    """
    comparisons = compare_with_paper(results)
    document: dict[str, Any] = {
        "command": command,
        "collections": {one.evaluated.name: {"path": str(one.evaluated.path)} for one in matrix.experiments},
        "lines": [summary._asdict() for summary in summaries],
        "results": [{**result._asdict(), "run": str(result.run.relative_to(folder))} for result in results],
        "beside_paper": [{**one._asdict(), "verdict": one.verdict} for one in comparisons],
    }
    _write(folder / "table.md", markdown_table(table_cells(summaries, matrix.measures), left=2))
    if comparisons:
        tables = [paper_cells(comparisons), seed_cells(results)]
        _write(folder / "paper.md", "\n".join(markdown_table(cells, left=2) for cells in tables))
    _write(folder / "table.json", json.dumps(document, indent=2) + "\n")


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
        train_seconds=mean_and_sd([result.seconds["train"] for result in group]).mean,
        score_seconds=mean_and_sd([result.seconds["score"] for result in group]).mean,
    )


def _cells(one: Summary) -> list[str]:
    figures = [Spread(mean, one.deviations[measure]).text(one.seeds) for measure, mean in one.means.items()]
    counts = [str(one.questions), str(one.seeds)]
    seconds = [f"{one.train_seconds:.1f}", f"{one.score_seconds:.1f}"]
    return [one.collection, one.system, *figures, *counts, *seconds]


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
