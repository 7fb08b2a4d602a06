"""The results of a table of experiments: a line a system and collection, mean ± deviation over seeds."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aptool.experiments.matrix import SHOWN, Matrix
from aptool.experiments.paper import beside, beside_cells, seed_cells
from aptool.experiments.runner import Result
from aptool.formats.atomic import atomic_file


class Line(NamedTuple):
    """A system on a collection over all its seeds."""

    collection: str
    system: str
    seeds: int
    questions: int
    means: dict[str, float]
    deviations: dict[str, float]  # of the sample; 0 with one seed
    train_seconds: float  # mean over seeds
    score_seconds: float


def summarise(results: Sequence[Result]) -> list[Line]:
    """One line for each system and collection, in the order in which they first come."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.collection, result.system), []).append(result)
    return [_line(group) for group in groups.values()]


def columns(measures: Sequence[str]) -> list[str]:
    """Headings of the table."""
    shown = [SHOWN.get(measure, measure) for measure in measures]
    return ["collection", "system", *shown, "questions", "seeds", "train s", "score s"]


def cells(line: Line) -> list[str]:
    """The line as text, one cell a heading."""
    figures = [_figure(line, measure) for measure in line.means]
    counts = [str(line.questions), str(line.seeds)]
    return [
        line.collection,
        line.system,
        *figures,
        *counts,
        f"{line.train_seconds:.1f}",
        f"{line.score_seconds:.1f}",
    ]


def markdown(lines: Sequence[Line], measures: Sequence[str]) -> str:
    """The table in Markdown, figures to the right."""
    return markdown_rows([columns(measures), *map(cells, lines)])


def markdown_rows(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table in Markdown, the first its head; figures, from the third column on, to the right."""
    rule = ["---", "---", *("---:" for _ in rows[0][2:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in [rows[0], rule, *rows[1:]])


def write_table(
    folder: Path, lines: Sequence[Line], results: Sequence[Result], matrix: Matrix, command: str
) -> None:
    """Writes ``table.md``, and ``table.json`` with where the collections are and the command that ran it."""
    compared = beside(results)
    with atomic_file(folder / "table.md") as temporary:
        temporary.write_text(markdown(lines, matrix.measures), encoding="utf-8")
    document: dict[str, Any] = {
        "command": command,
        "collections": {row.source.name: {"path": str(row.source.path)} for row in matrix.rows},
        "lines": [line._asdict() for line in lines],
        "results": [{**result._asdict(), "run": str(result.run.relative_to(folder))} for result in results],
        "beside_paper": [{**row._asdict(), "verdict": row.verdict} for row in compared],
    }
    if compared:
        with atomic_file(folder / "paper.md") as temporary:
            tables = [beside_cells(compared), seed_cells(results)]
            temporary.write_text("\n".join(map(markdown_rows, tables)), encoding="utf-8")
    with atomic_file(folder / "table.json") as temporary:
        temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def not_above_random(
    lines: Sequence[Line], trained: set[str], baseline: str | None, measure: str
) -> list[str]:
    """The trained systems whose mean is not above that of random order on the same collection."""
    random = {line.collection: line.means[measure] for line in lines if line.system == baseline}
    return [
        f"{line.system} on {line.collection}: {line.means[measure]:.4f}, random {random[line.collection]:.4f}"
        for line in lines
        if line.system in trained
        and line.collection in random
        and line.means[measure] <= random[line.collection]
    ]


def _line(group: list[Result]) -> Line:
    first = group[0]
    values = {measure: [result.measures[measure] for result in group] for measure in first.measures}
    return Line(
        collection=first.collection,
        system=first.system,
        seeds=len(group),
        questions=first.questions,
        means={measure: statistics.fmean(seen) for measure, seen in values.items()},
        deviations={
            measure: statistics.stdev(seen) if len(seen) > 1 else 0.0 for measure, seen in values.items()
        },
        train_seconds=statistics.fmean(result.seconds["train"] for result in group),
        score_seconds=statistics.fmean(result.seconds["score"] for result in group),
    )


def _figure(line: Line, measure: str) -> str:
    mean = f"{line.means[measure]:.4f}"
    return mean if line.seeds == 1 else f"{mean} ± {line.deviations[measure]:.4f}"
