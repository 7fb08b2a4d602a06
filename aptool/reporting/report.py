"""The report on a folder of runs: results, charts and rankings in one HTML file."""

import json
import logging
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from aptool.environment import command
from aptool.errors import UsageError
from aptool.evaluation.significance import CONFIDENCE, PERMUTATIONS
from aptool.formats.atomic import check_apart, check_writable, files_of
from aptool.formats.location import Location
from aptool.formats.stores import store_of
from aptool.models.device import pick_device
from aptool.reporting.browse import Block, BrowserSystem, blocks, browse, pack
from aptool.reporting.charts import cost_charts, histograms, line_charts
from aptool.reporting.curves import cost_table
from aptool.reporting.html import environment, write_page
from aptool.reporting.plots import check_installed
from aptool.reporting.review import review
from aptool.reporting.runs import (
    CollectionResults,
    Runs,
    SystemResults,
    evaluate_systems,
    find_collections,
    read_runs,
)
from aptool.reporting.tables import (
    TEST_TITLES,
    plain_results,
    result_row,
    run_rows,
    significance_rows,
)
from aptool.version import __version__

logger = logging.getLogger(__name__)

# Questions, and texts, per compressed block of the page's data.
QUESTIONS_PER_BLOCK, TEXTS_PER_BLOCK = 64, 256


class Limits(NamedTuple):
    """The size of a report."""

    questions: int = 2500  # per collection
    depth: int = 10  # answers from the top of each ranking


def write_report(
    folder: Location,
    output: Location,
    *,
    collections: Mapping[str, Location],
    baseline: str | None,
    limits: Limits,
    device: str,
) -> None:
    """Write the report of a folder of runs.

    Args:
        folder: the output folder of ``aptool matrix``.
        output: the HTML file.
        collections: folders of collections by name; see `runs.find_collections`.
        baseline: the system to test the other systems against; None is BM25, else the first system.
        limits: the numbers of questions and answers in the report.
        device: the device that computes the heat maps: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
    """
    # Report missing packages and devices before the slow part.
    environment()
    check_installed()
    picked = pick_device(device)
    runs = read_runs(folder)
    check_writable(output)
    store, key = store_of(folder)
    check_apart(output, (folder / name for name in store.names(key) if not name.endswith(".html")))
    opened = find_collections(runs, collections)
    check_apart(output, files_of(*(collection.path for collection in opened.values())))
    names = {entry.system for entry in runs.entries}
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(sorted(names))}")
    sections = []
    for number, (name, collection) in enumerate(opened.items()):
        systems = runs.on(name)
        chosen = baseline if baseline in systems else None
        results = evaluate_systems(name, collection, systems, runs.measures, chosen)
        sections.append(_section(f"c{number}", results, runs, limits, picked))
    values = {
        "collections": sections,
        "systems": len(names),
        "version": __version__,
        "command": command(),
    }
    write_page(output, "report.html", values)


def _section(
    prefix: str, results: CollectionResults, runs: Runs, limits: Limits, device: torch.device
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
    compared = [system for system in results.systems if system.name != results.baseline]
    best = max(compared or results.systems, key=lambda system: system.means[results.measures[0]])
    rows = [result_row(system, results) for system in results.systems]
    split = results.collection.manifest["splits"][results.split]
    seeds = sorted({system.entries[0].seed for system in results.systems if len(system.entries) > 1})
    tests = [test for system in compared for test in significance_rows(system)]
    logger.info(f"{results.name}: questions a reviewer asks")
    answers = review(results)
    logger.info(f"{results.name}: charts")
    costs = cost_table(runs, results.measures[0]).filter(collection=results.name)
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
            ("review", "Questions a reviewer asks"),
            ("charts", "Charts"),
            ("scores", "Scores"),
            ("questions", "Questions"),
            ("provenance", "Provenance"),
        ],
        "questions": results.questions,
        "measures": list(results.measures),
        "baseline": results.baseline,
        "rows": rows,
        "plain_rows": plain_results(rows, results.measures),
        "test_titles": TEST_TITLES,
        "tests": tests,
        "permutations": PERMUTATIONS,
        "alpha": f"{1 - CONFIDENCE:.2g}",
        "answers": answers,
        "charts": line_charts(results, prefix) + cost_charts(results, costs, prefix),
        "distributions": histograms(results, prefix),
        "depth": limits.depth,
        "shown": len(browser.questions),
        "left_out": browser.left_out,
        "seeded": ", ".join(map(str, seeds)),
        "shown_systems": [system.name for system in results.systems],
        "first_system": best.name,
        "blocks": packed,
        "provenance": _provenance(results, runs),
        "runs": [row for system in results.systems for row in run_rows(system)],
        "commands": [line for system in results.systems for line in _commands(system, results)],
        "recipes": [
            (system.name, json.dumps(system.configs[0]["recipe"], indent=2))
            for system in results.systems
            if system.configs
        ],
    }


def _provenance(results: CollectionResults, runs: Runs) -> list[tuple[str, str, bool]]:
    """The origin of the results: (term, text, whether the text is code)."""
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


def _commands(system: SystemResults, results: CollectionResults) -> list[str]:
    lines = []
    for entry in system.entries:
        run = shlex.quote(str(entry.run))
        if entry.model is not None:
            pools = shlex.quote(str(results.collection.pools(results.split)))
            lines.append(f"aptool score {pools} --model {shlex.quote(str(entry.model))} --output {run}")
        lines.append(f"aptool eval {run} --qrels {shlex.quote(str(results.collection.qrels(results.split)))}")
    return lines
