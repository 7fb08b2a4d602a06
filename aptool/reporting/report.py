"""The report on a folder of runs: results, charts and rankings in one HTML file."""

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from aptool import __version__
from aptool.errors import UsageError
from aptool.evaluation.measures import measure_title
from aptool.evaluation.paper import paper_figures
from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
from aptool.formats.collection import Collection
from aptool.reporting.browse import BrowserSystem, browse
from aptool.reporting.charts import histograms, line_charts
from aptool.reporting.html import write_page
from aptool.reporting.packing import Block, blocks, pack
from aptool.reporting.results import CollectionResults, SystemResults, evaluate_systems
from aptool.reporting.runs import Runs

logger = logging.getLogger(__name__)

# Number of questions, and of texts, that are unpacked together.
QUESTIONS_PER_BLOCK, TEXTS_PER_BLOCK = 64, 256
MINUS = "\u2212"


class IntervalBar(NamedTuple):
    """A confidence interval drawn on a scale, as percentages of its width."""

    begin: float
    end: float
    value: float
    reference: float  # the baseline's value
    beyond: str  # ``left`` or ``right`` if the value is outside the scale, else empty


class Limits(NamedTuple):
    """How many questions and answers a report contains."""

    questions: int = 2500  # per collection
    depth: int = 10  # answers from the top of each ranking


def write_report(
    output: str | Path,
    runs: Runs,
    collections: Mapping[str, Collection],
    *,
    baseline: str | None = None,
    limits: Limits | None = None,
    command: str | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Writes the report of a folder of runs.

    Args:
        output: the HTML file.
        runs: the folder of runs, see `runs.read_runs`.
        collections: the collections, see `runs.find_collections`.
        baseline: the system that the others are tested against; None for BM25 if it was run, otherwise the
            first system.
        limits: how many questions and answers the report contains; None for the defaults.
        command: the command line, to be shown in the report.
        device: device that computes the heat maps.

    Raises:
        AptoolError: jinja2 or matplotlib is not installed.
        UsageError: the baseline is not among the systems.
        InputError: a file cannot be read or written.
    """
    names = {entry.system for entry in runs.entries}
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(sorted(names))}")
    sections = []
    for number, (name, collection) in enumerate(collections.items()):
        systems = runs.on(name)
        chosen = baseline if baseline in systems else None
        results = evaluate_systems(name, collection, systems, runs.measures, chosen)
        sections.append(_section(f"c{number}", results, runs, limits or Limits(), device))
    values = {
        "collections": sections,
        "systems": len(names),
        "version": __version__,
        "command": command,
    }
    write_page(output, "report.html", values)


def _section(
    prefix: str, results: CollectionResults, runs: Runs, limits: Limits, device: torch.device | str
) -> dict[str, Any]:
    """The template values of one collection."""
    browsed = [
        BrowserSystem(system.name, system.entries[0].seed, system.entries[0].run, system.entries[0].model)
        for system in results.systems
    ]
    browser = browse(
        results.collection,
        results.split,
        browsed,
        depth=limits.depth,
        limit=limits.questions,
        device=device,
    )
    listing = {**browser.listing, "per_block": QUESTIONS_PER_BLOCK, "per_text_block": TEXTS_PER_BLOCK}
    packed = [
        Block(f"{prefix}-listing", pack(listing)),
        *blocks(f"{prefix}-questions", browser.questions, QUESTIONS_PER_BLOCK),
        *blocks(f"{prefix}-texts", browser.texts, TEXTS_PER_BLOCK),
    ]
    others = [system for system in results.systems if system.name != results.baseline]
    best = max(others or results.systems, key=lambda system: system.means[results.measures[0]])
    paper = _paper(results)
    split = results.collection.manifest["splits"][results.split]
    seeds = sorted({system.entries[0].seed for system in results.systems if len(system.entries) > 1})
    logger.info(f"{results.name}: charts")
    return {
        "prefix": prefix,
        "name": results.name,
        "facts": [
            f"split {results.split}",
            f"{split['questions']:,} questions",
            f"{split['candidates']:,} candidates",
            f"{split['positives']:,} relevant",
        ],
        "parts": [
            ("results", "Results"),
            *([("paper", "Comparison with the paper")] if paper else []),
            ("charts", "Charts"),
            ("scores", "Scores"),
            ("questions", "Questions"),
            ("provenance", "Provenance"),
        ],
        "questions": results.questions,
        "measures": [measure_title(measure) for measure in results.measures],
        "baseline": results.baseline,
        "rows": [_row(system, results) for system in results.systems],
        "tests": [test for system in others for test in _tests(system)],
        "permutations": PERMUTATIONS,
        "alpha": f"{1 - CONFIDENCE:.2g}",
        "published": paper,
        "charts": line_charts(results, prefix),
        "distributions": histograms(results, prefix),
        "depth": limits.depth,
        "shown": len(browser.questions),
        "left_out": browser.left_out,
        "seeded": ", ".join(map(str, seeds)),
        "shown_systems": [system.name for system in results.systems],
        "first_system": best.name,
        "blocks": packed,
        "provenance": _provenance(results, runs),
        "runs": [row for system in results.systems for row in _runs(system)],
        "commands": [line for system in results.systems for line in _commands(system, results)],
        "recipes": [
            (system.name, json.dumps(system.configs[0]["recipe"], indent=2))
            for system in results.systems
            if system.configs
        ],
    }


def _row(system: SystemResults, results: CollectionResults) -> dict[str, Any]:
    """A row of the table of results."""
    main = results.measures[0]
    reference = next(other for other in results.systems if other.name == results.baseline)
    # Systems that are significantly worse, such as a random order, would compress the scale of the others.
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
        "p": probability(comparison.permutation_holm) if comparison else "",
    }


def interval_bar(
    interval: tuple[float, float], value: float, scale: tuple[float, float], reference: float
) -> IntervalBar:
    """Places an interval on a scale.

    Args:
        interval: the bounds of the interval.
        value: the mean.
        scale: the values at the left and the right end, the same for all rows of a table.
        reference: the baseline's mean.
    """
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


def _tests(system: SystemResults) -> list[list[str]]:
    """Rows of the table of all tests."""
    lines = []
    for measure, comparison in system.comparisons.items():
        one = comparison.paired
        low, high = one.interval
        lines.append(
            [
                system.name,
                measure_title(measure),
                _signed(one.difference),
                f"{_signed(low)} to {_signed(high)}",
                probability(one.permutation.p),
                probability(comparison.permutation_holm),
                probability(comparison.t_holm),
                _signed(one.effect, 2),
                *(f"{count:,}" for count in (one.wins, one.ties, one.losses)),
            ]
        )
    return lines


def _paper(results: CollectionResults) -> dict[str, Any] | None:
    """The paper's figures and ours of the same systems, if the paper has results on the collection."""
    figures = paper_figures(results.collection.name, results.split)
    measures = [measure for measure in figures.measures if measure in results.measures] if figures else []
    if figures is None or not measures:
        return None
    rows = []
    for name, values in {**figures.others, **figures.systems}.items():
        theirs = dict(zip(figures.measures, values, strict=True))
        ours: list[SystemResults | None] = [
            system
            for system in results.systems
            if system.preset is not None and system.preset.removesuffix("-paper") == name
        ]
        for system in ours or [None]:
            cells = []
            for measure in measures:
                mean = None if system is None else system.means[measure]
                difference = "" if mean is None else _signed(mean - theirs[measure])
                cells.append((f"{theirs[measure]:.4f}", "" if mean is None else f"{mean:.4f}", difference))
            rows.append({"name": name if system is None else system.name, "cells": cells})
    titles = [measure_title(measure) for measure in measures]
    return {"title": figures.title, "questions": figures.questions, "measures": titles, "rows": rows}


def _provenance(results: CollectionResults, runs: Runs) -> list[tuple[str, str, bool]]:
    """Where the results come from: (term, text, whether it is code)."""
    versions: dict[str, dict[str, None]] = {}
    for system in results.systems:
        for config in system.configs:
            for name, version in config["versions"].items():
                versions.setdefault(name, {})[version] = None
    seeds = sorted({entry.seed for system in results.systems for entry in system.entries})
    lines = [
        ("Collection", str(results.collection.path), True),
        ("Fingerprint", results.collection.fingerprint, True),
        ("Source", str(results.collection.manifest["source"]), False),
        ("Seeds", ", ".join(map(str, seeds)), False),
    ]
    if versions:
        text = "; ".join(f"{name} {', '.join(numbers)}" for name, numbers in versions.items())
        lines.append(("Trained with", text, False))
    lines.append(("Evaluated with", f"aptool {__version__}", False))
    if runs.command:
        lines.append(("Command", runs.command, True))
    qrels = results.collection.qrels(results.split).name
    lines.append(
        (f"SHA-256 of {qrels}", results.collection.manifest["files"].get(qrels, "not recorded"), True)
    )
    return lines


def _runs(system: SystemResults) -> list[list[str]]:
    """One row per seed."""
    lines = []
    for entry in system.entries:
        config = entry.config
        trained = config["training"] if config else None
        lines.append(
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
    return lines


def _commands(system: SystemResults, results: CollectionResults) -> list[str]:
    lines = []
    for entry in system.entries:
        run = shlex.quote(str(entry.run))
        if entry.model is not None:
            pools = shlex.quote(str(results.collection.pools(results.split)))
            lines.append(f"aptool score {pools} --model {shlex.quote(str(entry.model))} --output {run}")
        lines.append(f"aptool eval {run} --qrels {shlex.quote(str(results.collection.qrels(results.split)))}")
    return lines


def probability(p: float) -> str:
    """A p-value as text."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _signed(value: float, digits: int = 4) -> str:
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return f"{'+' if value > 0 else MINUS}{text}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:,.1f} min"
