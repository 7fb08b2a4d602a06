"""The tables of the report as template values: results, significance tests, runs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from aptool.reporting.runs import CollectionResults, SystemResults

MINUS = "\u2212"
TEST_TITLES = (
    "System",
    "Measure",
    "Δ",
    "95% interval",
    "p",
    "p, Holm",
    "t-test p, Holm",
    "d",
    "Wins",
    "Ties",
    "Losses",
)


class IntervalBar(NamedTuple):
    """A confidence interval on a scale, in percent of the scale's width."""

    begin: float
    end: float
    value: float
    reference: float  # the baseline's value
    beyond: str  # ``left`` or ``right`` if the value is outside the scale, else empty


def result_row(system: SystemResults, results: CollectionResults) -> dict[str, Any]:
    """The row of a system in the table of results."""
    main = results.measures[0]
    reference = next(other for other in results.systems if other.name == results.baseline)
    # Significantly worse systems, such as a random order, would compress the scale.
    near = [other.intervals[main] for other in results.systems if _mark(other, main) != "▼"]
    scale = (min(low for low, _ in near), max(high for _, high in near))
    bar = interval_bar(system.intervals[main], system.means[main], scale, reference.means[main])
    comparison = system.comparisons.get(main)
    seeds = len(system.entries)
    preset = f"{system.preset}, " if system.preset not in (None, system.name) else ""
    role = (
        "baseline" if system.name == results.baseline else f"{preset}{seeds} seed{'s' if seeds > 1 else ''}"
    )
    return {
        "name": system.name,
        "note": role,
        "cells": [_cell(system, measure, results) for measure in results.measures],
        "bar": bar,
        "better": _mark(system, main) == "▲",
        "difference": _signed(comparison.difference) if comparison else "",
        "p": _probability(comparison.permutation_holm) if comparison else "",
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
    begin, end, dot, line = (
        100 * (min(max(x, low), high) - low) / ((high - low) or 1.0) for x in (*interval, value, reference)
    )
    beyond = "left" if value < low else "right" if value > high else ""
    return IntervalBar(begin, end, dot, line, beyond)


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
    if comparison is None or not comparison.significant():
        return ""
    return "▲" if comparison.difference > 0 else "▼"


def significance_rows(system: SystemResults) -> list[list[str]]:
    """The rows of a system in the table of all tests, one per measure."""
    rows = []
    for measure, comparison in system.comparisons.items():
        paired = comparison.paired
        low, high = paired.interval
        rows.append(
            [
                system.name,
                measure,
                _signed(paired.difference),
                f"{_signed(low)} to {_signed(high)}",
                _probability(paired.permutation.p),
                _probability(comparison.permutation_holm),
                _probability(comparison.t_holm),
                _signed(paired.effect, 2),
                *(f"{count:,}" for count in (paired.wins, paired.ties, paired.losses)),
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
                _seconds(entry.seconds.get("score", 0.0)),
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
