"""The report: everything that a folder of runs shows, in one file."""

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aptool import __version__
from aptool.errors import UsageError
from aptool.evaluation.measures import measure_title
from aptool.evaluation.paper import paper_figures
from aptool.evaluation.significance import PERMUTATIONS
from aptool.formats.collection import Collection
from aptool.reporting.browse import BrowserSystem, browse
from aptool.reporting.charts import interval_mark
from aptool.reporting.comparison import SideBySide, System, side_by_side
from aptool.reporting.html import write_page
from aptool.reporting.packing import Block, blocks, pack
from aptool.reporting.pictures import charts, distributions
from aptool.reporting.runs import Runs

logger = logging.getLogger(__name__)

# Questions, and texts, that are unpacked together.
QUESTIONS_PER_BLOCK, TEXTS_PER_BLOCK = 64, 256
SIGNIFICANT = 0.05
MINUS = "\u2212"


class Limits(NamedTuple):
    """How much of the questions a report carries."""

    questions: int = 2500  # of each collection
    depth: int = 10  # answers from the top of each ranking


def write_report(
    output: str | Path,
    runs: Runs,
    collections: Mapping[str, Collection],
    *,
    baseline: str | None = None,
    limits: Limits | None = None,
    command: str | None = None,
) -> None:
    """Writes the report of a folder of runs.

    Args:
        output: the HTML file.
        runs: see ``runs.read_runs``.
        collections: see ``runs.find_collections``.
        baseline: the system that the others are tested against; None for BM25, or else for the first.
        limits: how much of the questions it carries; None for the usual amount.
        command: how the report was asked for, to be said in it.

    Raises:
        AptoolError: jinja2 is not installed.
        UsageError: there is no such baseline.
        InputError: a file cannot be read or written.
    """
    names = {entry.system for entry in runs.entries}
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(sorted(names))}")
    sections = []
    for number, (name, collection) in enumerate(collections.items()):
        systems = runs.on(name)
        chosen = baseline if baseline in systems else None
        found = side_by_side(name, collection, systems, runs.measures, chosen)
        sections.append(_section(f"c{number}", found, runs, limits or Limits()))
    values = {
        "collections": sections,
        "systems": len(names),
        "version": __version__,
        "command": command,
    }
    write_page(output, "report.html", values)


def _section(prefix: str, found: SideBySide, runs: Runs, limits: Limits) -> dict[str, Any]:
    """What the templates show of one collection."""
    shown = [
        BrowserSystem(system.name, system.entries[0].seed, system.entries[0].run, system.entries[0].model)
        for system in found.systems
    ]
    browsable = browse(found.collection, found.split, shown, depth=limits.depth, limit=limits.questions)
    listing = {**browsable.listing, "per_block": QUESTIONS_PER_BLOCK, "per_text_block": TEXTS_PER_BLOCK}
    packed = [
        Block(f"{prefix}-listing", pack(listing)),
        *blocks(f"{prefix}-questions", browsable.questions, QUESTIONS_PER_BLOCK),
        *blocks(f"{prefix}-texts", browsable.texts, TEXTS_PER_BLOCK),
    ]
    others = [system for system in found.systems if system.name != found.baseline]
    best = max(others or found.systems, key=lambda system: system.means[found.measures[0]])
    paper = _beside_the_paper(found)
    split = found.collection.manifest["splits"][found.split]
    seeds = sorted({system.entries[0].seed for system in found.systems if len(system.entries) > 1})
    logger.info(f"{found.name}: charts")
    return {
        "prefix": prefix,
        "name": found.name,
        "facts": [
            f"split {found.split}",
            f"{split['questions']:,} questions",
            f"{split['candidates']:,} candidates",
            f"{split['positives']:,} right",
        ],
        "parts": [
            ("results", "Results"),
            *([("paper", "PaperRow the paper")] if paper else []),
            ("charts", "Charts"),
            ("scores", "Scores"),
            ("questions", "Questions"),
            ("made", "What was run"),
        ],
        "questions": found.questions,
        "measures": [measure_title(measure) for measure in found.measures],
        "baseline": found.baseline,
        "rows": [_row(system, found) for system in found.systems],
        "tests": [test for system in others for test in _tests(system)],
        "permutations": PERMUTATIONS,
        "published": paper,
        "charts": charts(found),
        "distributions": distributions(found),
        "depth": limits.depth,
        "shown": len(browsable.questions),
        "left_out": browsable.left_out,
        "seeded": ", ".join(map(str, seeds)),
        "shown_systems": [system.name for system in found.systems],
        "first_system": best.name,
        "blocks": packed,
        "made": _made(found, runs),
        "runs": [row for system in found.systems for row in _runs(system)],
        "commands": [line for system in found.systems for line in _commands(system, found)],
        "recipes": [
            (system.name, json.dumps(system.configs[0]["recipe"], indent=2))
            for system in found.systems
            if system.configs
        ],
    }


def _row(system: System, found: SideBySide) -> dict[str, Any]:
    """A line of the table of results."""
    main = found.measures[0]
    reference = next(other for other in found.systems if other.name == found.baseline)
    # What is clearly worse than the baseline, such as random order, would leave the others no room.
    near = [other.intervals[main] for other in found.systems if _mark(other, main) != "▼"]
    scale = (min(low for low, _ in near), max(high for _, high in near))
    picture = interval_mark(system.intervals[main], system.means[main], scale, reference.means[main])
    against = system.against.get(main)
    seeds = len(system.entries)
    preset = f"{system.preset}, " if system.preset not in (None, system.name) else ""
    role = "baseline" if system.name == found.baseline else f"{preset}{seeds} seed{'s' if seeds > 1 else ''}"
    return {
        "name": system.name,
        "note": role,
        "cells": [_cell(system, measure, found) for measure in found.measures],
        "picture": picture,
        "better": _mark(system, main) == "▲",
        "difference": _signed(against.paired.difference) if against else "",
        "p": probability(against.permutation_holm) if against else "",
    }


def _cell(system: System, measure: str, found: SideBySide) -> dict[str, Any]:
    low, high = system.intervals[measure]
    return {
        "value": f"{system.means[measure]:.4f}",
        "deviation": f"{system.deviations[measure]:.4f}" if system.deviations[measure] else "",
        "interval": f"{low:.3f} – {high:.3f}",
        "mark": _mark(system, measure),
        "best": system.means[measure] == max(other.means[measure] for other in found.systems),
    }


def _mark(system: System, measure: str) -> str:
    against = system.against.get(measure)
    if against is None or against.permutation_holm >= SIGNIFICANT:
        return ""
    return "▲" if against.paired.difference > 0 else "▼"


def _tests(system: System) -> list[list[str]]:
    """Lines of the table of all tests."""
    lines = []
    for measure, against in system.against.items():
        one = against.paired
        low, high = one.interval
        lines.append(
            [
                system.name,
                measure_title(measure),
                _signed(one.difference),
                f"{_signed(low)} to {_signed(high)}",
                probability(one.permutation.p),
                probability(against.permutation_holm),
                probability(against.t_holm),
                _signed(one.effect, 2),
                *(f"{count:,}" for count in (one.wins, one.ties, one.losses)),
            ]
        )
    return lines


def _beside_the_paper(found: SideBySide) -> dict[str, Any] | None:
    """The paper's figures with ours of the same systems, if the paper has the collection."""
    figures = paper_figures(found.collection.name, found.split)
    measures = [measure for measure in figures.measures if measure in found.measures] if figures else []
    if figures is None or not measures:
        return None
    rows = []
    for name, values in {**figures.others, **figures.systems}.items():
        theirs = dict(zip(figures.measures, values, strict=True))
        ours: list[System | None] = [
            system
            for system in found.systems
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


def _made(found: SideBySide, runs: Runs) -> list[tuple[str, str, bool]]:
    """What the results depend on: (term, text, whether it is code)."""
    versions: dict[str, dict[str, None]] = {}
    for system in found.systems:
        for config in system.configs:
            for name, version in config["versions"].items():
                versions.setdefault(name, {})[version] = None
    seeds = sorted({entry.seed for system in found.systems for entry in system.entries})
    lines = [
        ("Collection", str(found.collection.path), True),
        ("Its fingerprint", found.collection.fingerprint, True),
        ("Its source", str(found.collection.manifest["source"]), False),
        ("Seeds", ", ".join(map(str, seeds)), False),
    ]
    if versions:
        text = "; ".join(f"{name} {', '.join(numbers)}" for name, numbers in versions.items())
        lines.append(("Trained with", text, False))
    lines.append(("Evaluated with", f"aptool {__version__}", False))
    if runs.command:
        lines.append(("Command", runs.command, True))
    qrels = found.collection.qrels(found.split).name
    lines.append((f"SHA-256 of {qrels}", found.collection.manifest["files"].get(qrels, "not recorded"), True))
    return lines


def _runs(system: System) -> list[list[str]]:
    """A line a seed."""
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


def _commands(system: System, found: SideBySide) -> list[str]:
    lines = []
    for entry in system.entries:
        run = shlex.quote(str(entry.run))
        if entry.model is not None:
            pools = shlex.quote(str(found.collection.pools(found.split)))
            lines.append(f"aptool score {pools} --model {shlex.quote(str(entry.model))} --output {run}")
        lines.append(f"aptool eval {run} --qrels {shlex.quote(str(found.collection.qrels(found.split)))}")
    return lines


def probability(p: float) -> str:
    """A p value as it is printed."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _signed(value: float, digits: int = 4) -> str:
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return f"{'+' if value > 0 else MINUS}{text}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:,.1f} min"
