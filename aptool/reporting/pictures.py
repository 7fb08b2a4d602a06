"""The charts of a collection's part of the report: accuracy by length, training, distributions of scores."""

from typing import Any

import polars as pl
from markupsafe import Markup

from aptool.evaluation.measures import measure_title
from aptool.formats.pools import read_answers
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.charts import Line, histogram, line_chart, series
from aptool.reporting.comparison import ACCURACY, SideBySide
from aptool.reporting.curves import (
    accuracy_by_length,
    gold_lengths,
    read_history,
    score_distribution,
    training_curves,
    was_trained,
)

# A mean over fewer questions than this says little; in a small collection, over less than this share of it.
_FEWEST, _LEAST_SHARE = 20, 0.05
_BINS = 30


def charts(found: SideBySide) -> list[dict[str, Any]]:
    """What the template needs of each chart of lines."""
    note = "Over the questions whose right answer has at most so many words."
    wanted = [(_by_length(found), "P@1 by length of the right answer", note, "words at most")]
    histories = _histories(found)
    if histories is not None:
        columns = [f"dev_{found.measures[0]}", *(name for name in histories.columns if name[:4] == "dev_")]
        dev = next((name for name in columns if name in histories.columns), None)
        if dev is not None:
            note = "Mean over seeds. The best epoch is kept."
            title = f"{measure_title(dev.removeprefix('dev_'))} on dev while training"
            wanted.append((_by_epoch(histories, dev), title, note, "epoch"))
        note = "Mean over pairs and seeds. Systems with different losses do not compare."
        wanted.append((_by_epoch(histories, "loss"), "Loss while training", note, "epoch"))
    # A single point is no line.
    return [_chart(found, *chart) for chart in wanted if chart[0]["x"].n_unique() > 1]


def distributions(found: SideBySide) -> list[tuple[str, Markup]]:
    """(system, histogram) of the first seed of each system."""
    qrels = read_qrels(found.collection.qrels(found.split))
    runs = {system.name: read_run(system.entries[0].run).frame for system in found.systems}
    shares = score_distribution(runs, qrels, bins=_BINS)
    made = []
    for name, frame in shares.partition_by("system", as_dict=True).items():
        edges = [*frame["low"], frame["high"].item(-1)]
        label = f"Scores that {name[0]} gives to right and to other candidates"
        made.append((name[0], histogram(edges, list(frame["positives"]), list(frame["negatives"]), label)))
    return made


def slots(found: SideBySide) -> dict[str, int]:
    """The colour of each system: those that were trained come first, the best of them at their head."""
    main = found.measures[0]
    by_rank = sorted(found.systems, key=lambda system: (not system.configs, -system.means[main]))
    return {system.name: slot for slot, system in enumerate(by_rank)}


def _by_length(found: SideBySide) -> pl.DataFrame:
    """system, x, y, questions."""
    collection, split = found.collection, found.split
    answers = read_answers(collection.answers) if collection.answers else None
    lengths = gold_lengths([collection.pools(split)], read_qrels(collection.qrels(split)), answers)
    accuracy = {system.name: system.per_question for system in found.systems}
    points = accuracy_by_length(accuracy, lengths, measure=ACCURACY)
    enough = min(_FEWEST, _LEAST_SHARE * lengths.height)
    return points.filter(pl.col("questions") >= enough).rename({"length": "x", "accuracy": "y"})


def _histories(found: SideBySide) -> pl.DataFrame | None:
    parts = [
        training_curves({system.name: read_history(entry.model)})
        for system in found.systems
        for entry in system.entries
        if entry.model is not None and was_trained(entry.model)
    ]
    return pl.concat(parts, how="diagonal_relaxed") if parts else None


def _by_epoch(histories: pl.DataFrame, column: str) -> pl.DataFrame:
    """system, x, y."""
    means = histories.group_by("system", "epoch").agg(pl.col(column).mean().alias("y"))
    return means.drop_nulls("y").rename({"epoch": "x"}).sort("x")


def _chart(found: SideBySide, points: pl.DataFrame, title: str, note: str, x_label: str) -> dict[str, Any]:
    """A chart, its key and its figures, from system, x, y and perhaps questions."""
    colours = slots(found)
    of_system = {name[0]: frame for name, frame in points.partition_by("system", as_dict=True).items()}
    names = [system.name for system in found.systems if system.name in of_system]
    lines = [
        Line(
            name,
            colours[name],
            list(of_system[name].select("x", "y").iter_rows()),
            [_said(row, x_label) for row in of_system[name].iter_rows(named=True)],
        )
        for name in names
    ]
    svg = line_chart(lines, label=title, x_label=x_label, whole_x=True)
    # Lines that would hide the others are there, but not shown at first: order without reading, and fusions.
    trained = {system.name for system in found.systems if system.configs}
    first = trained | {found.baseline} if trained else set(names)
    wide = points.pivot("system", index="x", values="y", aggregate_function="first").sort("x")
    with_counts = "questions" in points.columns
    counts = dict(points.select("x", "questions").iter_rows()) if with_counts else {}
    table = [
        [f"{row['x']:,}", *([f"{counts[row['x']]:,}"] if counts else []), *(_figure(row[n]) for n in names)]
        for row in wide.iter_rows(named=True)
    ]
    return {
        "title": title,
        "note": note,
        "svg": svg,
        "key": [{"name": n, "kind": series(colours[n]), "on": n in first} for n in names],
        "heads": [x_label, *(["questions"] if with_counts else []), *names],
        "table": table,
    }


def _said(row: dict[str, Any], x_label: str) -> str:
    questions = f", {row['questions']:,} questions" if "questions" in row else ""
    return f"{row['system']}, {row['x']:,} {x_label}: {row['y']:.4f}{questions}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
