"""Our figures compared with the paper's, and the figures of every seed."""

from collections.abc import Sequence
from typing import NamedTuple

from aptool.evaluation.names import measure_title
from aptool.evaluation.paper import paper_figures, verdict
from aptool.evaluation.seeds import Spread, mean_and_sd
from aptool.experiments.trial import Result, by_system


class PaperComparison(NamedTuple):
    """A system's figure over its seeds and the paper's.

    Attributes:
        split: the split that our figure is on.
        paper_split: the split that the paper's figure is on.
        deviation: standard deviation over seeds, of a sample; 0 of a single seed.
        best: the figure of the best seed.
    """

    collection: str
    system: str
    split: str
    measure: str
    paper: float
    paper_split: str
    mean: float
    deviation: float
    best: float
    best_seed: int
    seeds: int

    @property
    def verdict(self) -> str:
        """``OK``, ``close`` or ``below``, as ``aptool.evaluation.paper.verdict`` has it."""
        return verdict(self.mean, self.paper)


def compare_with_paper(results: Sequence[Result]) -> list[PaperComparison]:
    """Compares each system, collection and measure that the paper has a figure for, in the results' order.

    A figure on dev is compared with the paper's on test, as ``paper_split`` shows: the paper has no other.
    """
    comparisons = []
    for group in by_system(results):
        first = group[0]
        paper_split = first.split if paper_figures(first.published, first.split) else "test"
        figures = paper_figures(first.published, paper_split)
        if figures is not None:
            comparisons += [
                _compare(group, measure, paper, paper_split)
                for measure, paper in figures.of_preset(first.preset).items()
                if measure in first.measures
            ]
    return comparisons


def paper_cells(comparisons: Sequence[PaperComparison]) -> list[list[str]]:
    """The comparisons as rows of text, headings first."""
    head = ["collection", "system", "measure", "paper", "ours", "best seed", ""]
    return [head, *(_cells(one) for one in comparisons)]


def seed_cells(results: Sequence[Result]) -> list[list[str]]:
    """Every trained system's figures, one column a seed, as rows of text, headings first."""
    trained = [result for result in results if result.preset is not None]
    seeds = sorted({result.seed for result in trained})
    rows = [["collection", "system", "measure", *(f"seed {seed}" for seed in seeds)]]
    for group in by_system(trained):
        of_seed = {result.seed: result for result in group}
        for measure in group[0].measures:
            figures = [f"{of_seed[seed].measures[measure]:.4f}" if seed in of_seed else "" for seed in seeds]
            rows.append([group[0].collection, group[0].system, measure_title(measure), *figures])
    return rows


def _compare(group: list[Result], measure: str, paper: float, paper_split: str) -> PaperComparison:
    first, best = group[0], max(group, key=lambda result: result.measures[measure])
    spread = mean_and_sd([result.measures[measure] for result in group])
    return PaperComparison(
        collection=first.collection,
        system=first.system,
        split=first.split,
        measure=measure,
        paper=paper,
        paper_split=paper_split,
        mean=spread.mean,
        deviation=spread.sd,
        best=best.measures[measure],
        best_seed=best.seed,
        seeds=len(group),
    )


def _cells(one: PaperComparison) -> list[str]:
    paper = f"{one.paper:.4f}" + ("" if one.split == one.paper_split else f" on {one.paper_split}")
    ours = Spread(one.mean, one.deviation).text(one.seeds)
    best = f"{one.best:.4f} (seed {one.best_seed})"
    return [one.collection, one.system, measure_title(one.measure), paper, ours, best, one.verdict]
