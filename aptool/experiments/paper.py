"""Our figures beside the paper's, and every seed's by itself."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from aptool.experiments.matrix import SHOWN
from aptool.experiments.runner import Result
from aptool.reporting.published import published

# A mean that is short of the paper's figure by no more than this is close to it.
CLOSE = 0.01


class PaperRow(NamedTuple):
    """A system's figure over its seeds and the paper's."""

    collection: str
    system: str
    split: str  # that ours is on
    measure: str
    paper: float
    paper_split: str  # that the paper's is on: it has figures for test alone
    mean: float
    deviation: float  # of the sample; 0 with one seed
    best: float
    best_seed: int
    seeds: int

    @property
    def verdict(self) -> str:
        """``OK``: the paper's figure is reached; ``close``: all but .01 of it; else ``below``."""
        if self.mean >= self.paper:
            return "OK"
        return "close" if self.mean >= self.paper - CLOSE else "below"


def beside(results: Sequence[Result]) -> list[PaperRow]:
    """A row for each system, collection and measure that the paper has a figure for, in the results' order.

    A dev split stands beside the paper's figure on test, which ``paper_split`` says: it has no other.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.collection, result.system), []).append(result)
    rows = []
    for group in groups.values():
        first = group[0]
        paper_split = first.split if published(first.published, first.split) else "test"
        figures = published(first.published, paper_split)
        name = (first.preset or "").removesuffix("-paper")
        if figures is None or name not in figures.systems:
            continue
        for measure, paper in zip(figures.measures, figures.systems[name], strict=True):
            if measure in first.measures:
                rows.append(_row(group, measure, paper, paper_split))
    return rows


def beside_cells(rows: Sequence[PaperRow]) -> list[list[str]]:
    """The rows as text, headings first."""
    head = ["collection", "system", "measure", "paper", "ours", "best seed", ""]
    return [head, *(_cells(row) for row in rows)]


def seed_cells(results: Sequence[Result]) -> list[list[str]]:
    """Every trained system's figures seed by seed as text, headings first."""
    trained = [result for result in results if result.preset is not None]
    seeds = sorted({result.seed for result in trained})
    head = ["collection", "system", "measure", *(f"seed {seed}" for seed in seeds)]
    groups: dict[tuple[str, str], dict[int, Result]] = {}
    for result in trained:
        groups.setdefault((result.collection, result.system), {})[result.seed] = result
    rows = [head]
    for (collection, system), by_seed in groups.items():
        for measure in next(iter(by_seed.values())).measures:
            figures = [f"{by_seed[seed].measures[measure]:.4f}" if seed in by_seed else "" for seed in seeds]
            rows.append([collection, system, SHOWN.get(measure, measure), *figures])
    return rows


def _row(group: list[Result], measure: str, paper: float, paper_split: str) -> PaperRow:
    first, figures = group[0], [result.measures[measure] for result in group]
    best = max(group, key=lambda result: result.measures[measure])
    return PaperRow(
        collection=first.collection,
        system=first.system,
        split=first.split,
        measure=measure,
        paper=paper,
        paper_split=paper_split,
        mean=statistics.fmean(figures),
        deviation=statistics.stdev(figures) if len(figures) > 1 else 0.0,
        best=best.measures[measure],
        best_seed=best.seed,
        seeds=len(group),
    )


def _cells(row: PaperRow) -> list[str]:
    paper = f"{row.paper:.4f}" + ("" if row.split == row.paper_split else f" on {row.paper_split}")
    ours = f"{row.mean:.4f}" + (f" ± {row.deviation:.4f}" if row.seeds > 1 else "")
    best = f"{row.best:.4f} (seed {row.best_seed})"
    measure = SHOWN.get(row.measure, row.measure)
    return [row.collection, row.system, measure, paper, ours, best, row.verdict]
