"""Our figures compared with the paper's, and the figures of every seed."""

from collections.abc import Sequence
from typing import NamedTuple

from aptool.evaluation.paper import CITATIONS, TABLES, paper_figures, paper_names, verdict
from aptool.evaluation.power import Spread, mean_and_sd
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
    names = _paper_names(results)
    for group in by_system(results):
        first = group[0]
        paper_split = first.split if paper_figures(first.published, first.split) else "test"
        figures = paper_figures(first.published, paper_split)
        if figures is not None:
            comparisons += [
                _compare(group, measure, paper, paper_split)
                for measure, paper in figures.of_system(names.get(first.system)).items()
                if measure in first.measures
            ]
    return comparisons


def paper_tables(results: Sequence[Result]) -> list[tuple[str, list[list[str]]]]:
    """The paper's tables whole, with our figures on every split beside the paper's.

    Returns:
        The title and the rows of text, headings first, of each table that a collection of the results is in.
    """
    groups, names = by_system(results), _paper_names(results)
    tables = []
    for table in TABLES:
        own = [group for group in groups if group[0].published in table.collections]
        if own:
            splits = list(dict.fromkeys(group[0].split for group in own))
            columns = [(split, measure) for split in splits for measure in table.measures]
            head = [
                "system",
                *(f"paper, {split} {measure}" for split, measure in table.columns),
            ]
            head += [f"{split} {measure}" for split, measure in columns]
            ours = {
                name: [group for group in own if names.get(group[0].system) == name] for name in table.systems
            }
            rows = [_table_row(name, figures, ours[name], columns) for name, figures in table.systems.items()]
            tables.append((f"Table {table.number}: {table.title}", [head, *rows]))
    return tables


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
            rows.append([group[0].collection, group[0].system, measure, *figures])
    return rows


def _paper_names(results: Sequence[Result]) -> dict[str, str]:
    """The systems of the paper that those of the results stand for."""
    return paper_names((result.preset, result.system) for result in results)


def _table_row(
    name: str, figures: Sequence[float], groups: Sequence[list[Result]], columns: Sequence[tuple[str, str]]
) -> list[str]:
    """A system's row of a table of the paper: the paper's figures, then ours, empty where there is none."""
    cells = []
    for split, measure in columns:
        found = [
            [result.measures[measure] for result in group]
            for group in groups
            if group[0].split == split and measure in group[0].measures
        ]
        cells.append(" or ".join(mean_and_sd(values).text(len(values)) for values in found))
    return [CITATIONS.get(name, name), *(f"{figure:.4f}" for figure in figures), *cells]


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
    return [one.collection, one.system, one.measure, paper, ours, best, one.verdict]
