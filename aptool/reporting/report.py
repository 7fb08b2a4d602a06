"""The report on runs: results, charts and rankings in one HTML file."""

import json
import logging
import math
import shlex
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from aptool.data.importing import warn_of_added
from aptool.environment import command
from aptool.errors import UsageError
from aptool.evaluation.compare import verdict
from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
from aptool.outputs import check_apart, check_output
from aptool.paths import Location
from aptool.reporting.charts import cost_table, draw_charts
from aptool.reporting.html import environment, write_page
from aptool.reporting.plots import check_installed
from aptool.reporting.questions import Differences, largest_differences
from aptool.reporting.runs import CollectionResults, Runs, SystemResults, evaluate_systems
from aptool.version import __version__, install_command

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

MINUS = "\u2212"
_OF_TEST = ("Δ", "95% interval", "p", "p, Holm", "t-test p, Holm", "d", "Wins", "Ties", "Losses")
TEST_TITLES = ("System", "Measure", *_OF_TEST)


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
    for number, (name, judged) in enumerate(runs.questions.items()):
        systems = runs.on(name)
        chosen = baseline if baseline in systems else None
        results = evaluate_systems(name, judged, systems, runs.measures, chosen)
        differences = largest_differences(results, top=questions, depth=depth, device=picked)
        sections.append({"depth": depth, **_section(f"c{number}", results, runs, differences)})
    values = {
        "collections": sections,
        "systems": len(names),
        "version": __version__,
        "command": command(),
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


def _section(prefix: str, results: CollectionResults, runs: Runs, differences: Differences) -> dict[str, Any]:
    """The template values of one collection; ``prefix`` is the prefix of the ids in the page."""
    compared = [system for system in results.systems if system.name != results.baseline]
    best = max(compared or results.systems, key=lambda system: system.means[results.measures[0]])
    rows = [result_row(system, results) for system in results.systems]
    ticks = _ticks(results)
    tests = [test for system in compared for test in significance_rows(system)]
    warn_of_added(results.questions.qrels)
    logger.info(f"{results.name}: charts")
    costs = cost_table(runs, results.measures[0]).filter(collection=results.name)
    return {
        "prefix": prefix,
        "name": results.name,
        "counts": results.questions.counts,
        "parts": [
            ("results", "Results"),
            ("charts", "Charts"),
            ("questions", "Questions"),
            ("provenance", "Provenance"),
        ],
        "conclusion": conclusion(best, results),
        "questions": results.systems[0].per_question.height,
        "measures": list(results.measures),
        "baseline": results.baseline,
        "rows": rows,
        "ticks": [(100 * number / (len(ticks) - 1), f"{tick:g}") for number, tick in enumerate(ticks)],
        "plain_rows": plain_results(rows, results.measures),
        "test_titles": TEST_TITLES,
        "tests": tests,
        "permutations": PERMUTATIONS,
        "alpha": f"{1 - CONFIDENCE:.2g}",
        "charts": list(draw_charts(results, costs)),
        "seeded": any(len(system.entries) > 1 for system in results.systems),
        "differences": differences,
        "provenance": _provenance(results, runs),
        "runs": [row for system in results.systems for row in run_rows(system)],
        "commands": [line for system in results.systems for line in _commands(system, results)],
        "recipes": [
            (system.name, json.dumps(system.configs[0]["recipe"], indent=2))
            for system in results.systems
            if system.configs
        ],
    }


def conclusion(best: SystemResults, results: CollectionResults) -> list[str]:
    """The system with the highest main measure, and the test of the ``best`` system against the baseline."""
    main = results.measures[0]
    first = max(results.systems, key=lambda system: system.means[main])
    name = f"{first.name}, the baseline," if first.name == results.baseline else first.name
    sentences = [f"{name} has the highest {main}, {first.means[main]:.4f}."]
    if comparison := best.comparisons.get(main):
        sentences.append(f"{verdict(results.baseline, comparison)}.")
    return sentences


def _provenance(results: CollectionResults, runs: Runs) -> list[tuple[str, str, bool]]:
    """The origin of the results: (term, text, whether the text is code)."""
    versions: dict[str, dict[str, None]] = {}
    for system in results.systems:
        for config in system.configs:
            for name, version in config["versions"].items():
                versions.setdefault(name, {})[version] = None
    seeds = sorted({entry.seed for system in results.systems for entry in system.entries})
    lines = [*results.questions.origin, ("Seeds", ", ".join(map(str, seeds)), False)]
    if versions:
        text = "; ".join(f"{name} {', '.join(numbers)}" for name, numbers in versions.items())
        lines.append(("Trained with", text, False))
    lines.append(("Evaluated with", f"aptool {__version__}", False))
    if runs.command:
        lines.append(("Command", runs.command, True))
    return lines


def _commands(system: SystemResults, results: CollectionResults) -> list[str]:
    lines, qrels = [], shlex.quote(str(results.questions.qrels))
    for entry in system.entries:
        run = shlex.quote(str(entry.run))
        if entry.model is not None:
            pools = shlex.join(results.questions.pools)
            model, tag = shlex.quote(str(entry.model)), shlex.quote(system.name)
            lines.append(f"aptool score {pools} --model {model} --tag {tag} --output {run}")
        lines.append(f"aptool eval {run} --qrels {qrels}")
    return lines


class IntervalBar(NamedTuple):
    """A confidence interval on a scale, in percent of the scale's width."""

    begin: float
    end: float
    value: float
    reference: float  # the baseline's value


def result_row(system: SystemResults, results: CollectionResults) -> dict[str, Any]:
    """The row of a system in the table of results."""
    main = results.measures[0]
    reference = next(other for other in results.systems if other.name == results.baseline)
    ticks = _ticks(results)
    scale = ticks[0], ticks[-1]
    bar = interval_bar(system.intervals[main], system.means[main], scale, reference.means[main])
    comparison = system.comparisons.get(main)
    return {
        "name": system.name,
        "baseline": system.name == results.baseline,
        "cells": [_cell(system, measure, results) for measure in results.measures],
        "bar": bar,
        "better": _mark(system, main) == "▲",
        "difference": _signed(comparison.difference) if comparison else "",
        "p": _probability(comparison.p_holm) if comparison else "",
    }


def plain_results(rows: Sequence[dict[str, Any]], measures: Sequence[str]) -> list[list[str]]:
    """The rows of `result_row` as text, column titles first."""
    plain = [["System", *measures, f"Δ {measures[0]}", "p"]]
    for row in rows:
        cells = [
            f"{cell['value']} [{cell['interval']}]" + (f" ± {cell['deviation']}" if cell["deviation"] else "")
            for cell in row["cells"]
        ]
        plain.append([row["name"], *cells, row["difference"], row["p"]])
    return plain


def interval_bar(
    interval: tuple[float, float], value: float, scale: tuple[float, float], reference: float
) -> IntervalBar:
    """Place an interval, the mean and the baseline's mean on a scale (lowest value, highest value)."""
    low, high = scale
    return IntervalBar(*(100 * (x - low) / (high - low) for x in (*interval, value, reference)))


def scale_ticks(low: float, high: float) -> list[float]:
    """Three to five multiples of a round number, of which the first and the last enclose two values."""
    for power in count(-4):
        for digit in (1, 2, 5):
            step = digit * 10.0**power
            first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
            if last - first <= 4:
                return [round(number * step, 12) for number in range(first, max(last, first + 2) + 1)]
    raise AssertionError("a step encloses every range")


def _ticks(results: CollectionResults) -> list[float]:
    """The ticks of the scale of all intervals of the main measure."""
    intervals = [system.intervals[results.measures[0]] for system in results.systems]
    return scale_ticks(min(low for low, _ in intervals), max(high for _, high in intervals))


def _cell(system: SystemResults, measure: str, results: CollectionResults) -> dict[str, Any]:
    low, high = system.intervals[measure]
    return {
        "value": f"{system.means[measure]:.4f}",
        "deviation": f"{system.deviations[measure]:.4f}" if system.deviations[measure] else "",
        "interval": f"{low:.3f} – {high:.3f}",
        "mark": _mark(system, measure),
        "best": system.means[measure] == max(other.means[measure] for other in results.systems),
    }


def _mark(system: SystemResults, measure: str) -> str:
    comparison = system.comparisons.get(measure)
    if comparison is None or not comparison.significant:
        return ""
    return "▲" if comparison.difference > 0 else "▼"


def significance_rows(system: SystemResults) -> list[list[str]]:
    """The rows of a system in the table of all tests, one per measure."""
    rows = []
    for measure, comparison in system.comparisons.items():
        rows.append(
            [
                system.name,
                measure,
                _signed(comparison.difference),
                f"{_signed(comparison.low)} to {_signed(comparison.high)}",
                _probability(comparison.p),
                _probability(comparison.p_holm),
                _probability(comparison.t_test_p_holm),
                _signed(comparison.effect, 2),
                *(f"{count:,}" for count in (comparison.wins, comparison.ties, comparison.losses)),
            ]
        )
    return rows


def run_rows(system: SystemResults) -> list[list[str]]:
    """The rows of a system in the table of runs, one per seed."""
    rows = []
    for entry in system.entries:
        config = entry.config
        trained = config["training"] if config else None
        rows.append(
            [
                system.name,
                str(entry.seed),
                str(config["recipe"]["preset"]) if config else "",
                str(trained["best_epoch"]) if trained else "",
                f"{trained['collection']} {trained['fingerprint']}" if trained else "",
                _seconds(entry.seconds.get("train", 0.0)) if trained else "",
                _seconds(entry.seconds["score"]) if "score" in entry.seconds else "",
            ]
        )
    return rows


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _signed(value: float, digits: int = 4) -> str:
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return f"{'+' if value > 0 else MINUS}{text}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:,.1f} min"
