"""The report on runs: results, charts and rankings in one HTML file."""

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from aptool.data.importing import warn_of_added
from aptool.environment import __version__, command, install_command
from aptool.errors import UsageError
from aptool.evaluation.compare import Comparison, shown_p, verdict
from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS, Interval
from aptool.outputs import check_apart, check_output
from aptool.paths import Location
from aptool.reporting.charts import check_installed, draw_charts
from aptool.reporting.html import environment, write_page
from aptool.reporting.questions import Differences, largest_differences
from aptool.reporting.runs import CollectionResults, Runs, SystemResults, evaluate_systems

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

DETAILS = ("System", "Measure", "Mean", "95% interval", "Δ", "95% interval of Δ", "p", "p, Holm", "d")
COUNTS = ("Wins", "Ties", "Losses")


def write_report(
    runs: Runs,
    output: Location,
    *,
    baseline: str | None,
    questions: int,
    depth: int,
    device: str,
    overwrite: bool = False,
) -> None:
    """Write the report of runs into an HTML file.

    Args:
        runs: of `runs.read_runs` or `runs.runs_of_files`.
        output: the HTML file.
        baseline: the system to test the other systems against; None is BM25, else the first system.
        questions: number of questions with the largest gains, and as many with the largest losses.
        depth: number of answers from the top of the ranking of each of these questions.
        device: the device that computes the heat maps.
        overwrite: replace an existing file.
    """
    check_apart(output, [entry.run for entry in runs.entries])
    for asked in runs.questions.values():
        beside = [path for path in asked.qrels.parent.iterdir() if path.suffix != ".html"]
        check_apart(output, [*beside, asked.qrels, *asked.pools])
    check_output(output, overwrite=overwrite)
    names = {entry.system for entry in runs.entries}
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(sorted(names))}")
    # After the checks of paths, as PyTorch takes seconds to import, and before the slow part.
    environment()
    check_installed()
    picked = _device(device)
    sections = []
    for name, judged in runs.questions.items():
        systems = runs.on(name)
        chosen = baseline if baseline in systems else None
        results = evaluate_systems(name, judged, systems, runs.measures, chosen)
        differences = largest_differences(results, top=questions, depth=depth, device=picked)
        warn_of_added(judged.qrels)
        logger.info(f"{name}: charts")
        sections.append(_section(results, differences, runs.command))
    values = {
        "collections": sections,
        "systems": len(names),
        "depth": depth,
        "permutations": PERMUTATIONS,
        "alpha": f"{1 - CONFIDENCE:.2g}",
        "version": __version__,
        "command": command(),
        "mark": mark,
        "shown_p": shown_p,
    }
    write_page(output, "report.html", values)


def _device(name: str) -> "torch.device | None":
    """The device of the heat maps, which a report without PyTorch does not have."""
    try:
        from aptool.models.device import pick_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        logger.info(f"PyTorch is not installed: no heat maps ({install_command('torch')})")
        return None
    return pick_device(name)


def _section(results: CollectionResults, differences: Differences, command: str | None) -> dict[str, Any]:
    """The template values of one collection; ``command`` ran the matrix."""
    return {
        "results": results,
        "conclusion": conclusion(results),
        "scale": Scale.around([system.intervals[results.measures[0]] for system in results.systems]),
        "details": detail_rows(results),
        "charts": list(draw_charts(results)),
        "seeded": any(len(system.entries) > 1 for system in results.systems),
        "differences": differences,
        "provenance": _provenance(results, command),
        "runs": [["Run", "Seed", "Preset", "Best epoch", "Trained on"], *run_rows(results)],
    }


def conclusion(results: CollectionResults) -> list[str]:
    """The system with the highest main measure, and the test of the best system against the baseline."""

    def mean(system: SystemResults) -> float:
        return system.spreads[main].mean

    main = results.measures[0]
    first = max(results.systems, key=mean)
    name = f"{first.name}, the baseline," if first.name == results.baseline else first.name
    sentences = [f"{name} has the highest {main}, {mean(first):.4f}."]
    tested = [system for system in results.systems if main in system.comparisons]
    if tested:
        best = max(tested, key=mean)
        sentences.append(f"{verdict(results.baseline, best.comparisons[main])}.")
    return sentences


class Scale(NamedTuple):
    """The scale of the bars of intervals."""

    ticks: list[float]  # three to five round numbers

    @classmethod
    def around(cls, intervals: list[Interval]) -> "Scale":
        """The scale whose ends enclose all intervals."""
        from matplotlib.ticker import MaxNLocator

        low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
        ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, max(high, low + 2e-4))
        return cls([round(float(tick), 12) for tick in ticks])

    def percent(self, value: float) -> float:
        """The position of a value, in percent of the width."""
        low, high = self.ticks[0], self.ticks[-1]
        return 100 * (value - low) / (high - low)


def mark(comparison: Comparison | None) -> str:
    """The mark of a mean that is significantly better or worse than the baseline's."""
    if comparison is None or not comparison.significant:
        return ""
    return "▲" if comparison.difference > 0 else "▼"


def detail_rows(results: CollectionResults) -> list[list[str]]:
    """The intervals and the tests of all systems and measures, column titles first."""
    rows = [[*DETAILS, *COUNTS]]
    for system in results.systems:
        for measure in results.measures:
            mean = system.spreads[measure].text(len(system.entries))
            row = [system.name, measure, mean, "{:.4f} to {:.4f}".format(*system.intervals[measure])]
            comparison = system.comparisons.get(measure)
            if comparison is None:
                row += [""] * (len(rows[0]) - len(row))
            else:
                row += [f"{comparison.difference:+.4f}", f"{comparison.low:+.4f} to {comparison.high:+.4f}"]
                row += [shown_p(comparison.p), shown_p(comparison.p_holm)]
                row.append(f"{comparison.effect:+.2f}")
                row += [f"{count:,}" for count in (comparison.wins, comparison.ties, comparison.losses)]
            rows.append(row)
    return rows


def _provenance(results: CollectionResults, command: str | None) -> list[tuple[str, str]]:
    """The origin of the results: (term, text)."""
    versions: dict[str, dict[str, None]] = {}
    for system in results.systems:
        for config in system.configs:
            for name, version in config["versions"].items():
                versions.setdefault(name, {})[version] = None
    lines = list(results.questions.origin)
    if versions:
        text = "; ".join(f"{name} {', '.join(numbers)}" for name, numbers in versions.items())
        lines.append(("Trained with", text))
    lines.append(("Evaluated with", f"aptool {__version__}"))
    if command:
        lines.append(("Command", command))
    return lines


def run_rows(results: CollectionResults) -> list[list[str]]:
    """The rows of the table of runs, one per system and seed."""
    rows = []
    for system in results.systems:
        for entry in system.entries:
            row = [system.name, str(entry.seed), "", "", ""]
            if config := entry.config:
                trained = config["training"]
                row[2:] = [str(config["recipe"]["preset"]), str(trained["best_epoch"])]
                row.append(f"{trained['collection']} {trained['fingerprint']}")
            rows.append(row)
    return rows
