"""The charts of the report as template values: lines by answer length, epoch and cost; distributions."""

from typing import Any

import polars as pl
from markupsafe import Markup

from aptool.formats.pools import read_answers
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.curves import (
    COSTS,
    accuracy_by_length,
    read_history,
    relevant_lengths,
    score_distribution,
    training_curves,
    was_trained,
)
from aptool.reporting.plots import (
    LEAST_QUESTIONS,
    Series,
    Theme,
    histogram_chart,
    inline_svg,
    line_chart,
    line_style,
)
from aptool.reporting.runs import CollectionResults

# In small collections, accuracies over fewer than this share of the questions are left out.
_LEAST_SHARE = 0.05
_BINS = 30
# In inches of 72 points; a point becomes a CSS pixel.
_SIZE, _SMALL_SIZE = (560 / 72, 300 / 72), (250 / 72, 110 / 72)
# The colours of the page's light theme and the CSS variables that replace them.
_VARIABLES = {
    "#635c55": "--soft",
    "#e6e1db": "--rule",
    "#b5390a": "--s0",
    "#2563a8": "--s1",
    "#3c7a4b": "--s2",
    "#7553a3": "--s3",
    "#97700a": "--s4",
    "#21807f": "--s5",
    "#a83a66": "--s6",
    "#7a726a": "--s7",
}
_COLOURS = {variable: colour for colour, variable in _VARIABLES.items()}
PAGE_THEME = Theme(
    text=_COLOURS["--soft"],
    grid=_COLOURS["--rule"],
    relevant=_COLOURS["--s0"],
    other=_COLOURS["--s7"],
    colours=[_COLOURS[f"--s{number}"] for number in range(8)],
    dashes=("-", (0, (5, 4))),
    markers=("o",),
    font_size=12.5,
    line_width=2,
)


def line_charts(results: CollectionResults, prefix: str) -> list[dict[str, Any]]:
    """The template values of accuracy by answer length and of training curves; ``prefix`` starts every id."""
    note = "Over the questions whose relevant answer has at most this many words."
    x_label = "maximum words"
    charts = [(_by_length(results), "P@1 by length of the relevant answer", note, x_label)]
    histories = _histories(results)
    if histories is not None:
        columns = [f"dev_{results.measures[0]}", *(name for name in histories.columns if name[:4] == "dev_")]
        dev = next((name for name in columns if name in histories.columns), None)
        if dev is not None:
            heading = f"{dev.removeprefix('dev_')} on dev by epoch"
            charts.append((_by_epoch(histories, dev), heading, "Mean over seeds.", "epoch"))
        note = "Mean over pairs and seeds. Different losses are not comparable."
        charts.append((_by_epoch(histories, "loss"), "Training loss by epoch", note, "epoch"))
    drawn = [chart for chart in charts if chart[0]["x"].n_unique() > 1]  # a single point is no line
    return [_chart(results, f"{prefix}-chart{number}-", *chart) for number, chart in enumerate(drawn)]


def cost_charts(results: CollectionResults, costs: pl.DataFrame, prefix: str) -> list[dict[str, Any]]:
    """The template values of each chart of accuracy against a cost.

    Args:
        results: the systems on a collection.
        costs: rows of `curves.cost_table` of the collection, by its main measure.
        prefix: prefix of the ids in the page.
    """
    main = results.measures[0]
    charts = []
    for name, title in COSTS.items():
        points = costs.select("system", x=name, y=main).drop_nulls("x")
        if points["x"].n_unique() > 1:
            heading = f"{main} by {title}"
            note = "Mean over seeds; the axis of the cost is logarithmic."
            chart = _chart(results, f"{prefix}-{name}-", points, heading, note, title, log=True)
            table = [[system, _number(x), _cell(y)] for system, x, y in points.iter_rows()]
            charts.append({**chart, "heads": ["system", title, main], "table": table})
    return charts


def histograms(results: CollectionResults, prefix: str) -> list[tuple[str, Markup]]:
    """The score distribution of the first seed of each system: name, SVG element."""
    qrels = read_qrels(results.collection.qrels(results.split))
    runs = {system.name: read_run(system.entries[0].run).frame for system in results.systems}
    shares = score_distribution(runs, qrels, bins=_BINS)
    charts = []
    for number, ((name,), frame) in enumerate(shares.partition_by("system", as_dict=True).items()):
        element = inline_svg(
            histogram_chart(frame, theme=PAGE_THEME, size=_SMALL_SIZE),
            f"{prefix}-scores{number}-",
            classes="chart small",
            label=f"Scores of {name}: relevant answers and other candidates",
            variables=_VARIABLES,
        )
        charts.append((str(name), Markup(element)))
    return charts


def _slots(results: CollectionResults) -> dict[str, int]:
    """Line style number of each system: trained systems first, by their main measure."""
    main = results.measures[0]
    by_rank = sorted(results.systems, key=lambda system: (not system.configs, -system.means[main]))
    return {system.name: slot for slot, system in enumerate(by_rank)}


def _classes(slot: int) -> str:
    """CSS classes of a line and of its key."""
    colours = len(PAGE_THEME.colours)
    return f"series s{slot % colours}" + (" dashed" if slot // colours % 2 else "")


def _by_length(results: CollectionResults) -> pl.DataFrame:
    """system, x, y, questions."""
    collection, split = results.collection, results.split
    answers = read_answers(collection.answers) if collection.answers else None
    lengths = relevant_lengths([collection.pools(split)], read_qrels(collection.qrels(split)), answers)
    accuracy = {system.name: system.per_question for system in results.systems}
    points = accuracy_by_length(accuracy, lengths)
    enough = min(LEAST_QUESTIONS, _LEAST_SHARE * lengths.height)
    return points.filter(pl.col("questions") >= enough).rename({"length": "x", "accuracy": "y"})


def _histories(results: CollectionResults) -> pl.DataFrame | None:
    parts = [
        training_curves({system.name: read_history(entry.model)})
        for system in results.systems
        for entry in system.entries
        if entry.model is not None and was_trained(entry.model)
    ]
    return pl.concat(parts, how="diagonal_relaxed") if parts else None


def _by_epoch(histories: pl.DataFrame, column: str) -> pl.DataFrame:
    """system, x, y."""
    means = histories.group_by("system", "epoch").agg(pl.col(column).mean().alias("y"))
    return means.drop_nulls("y").rename({"epoch": "x"}).sort("x")


def _chart(
    results: CollectionResults,
    prefix: str,
    points: pl.DataFrame,
    heading: str,
    note: str,
    x_label: str,
    *,
    log: bool = False,
) -> dict[str, Any]:
    """The template values of a chart of points: system, x, y and optionally questions."""
    slots, drawn = _slots(results), set(points["system"])
    names = [system.name for system in results.systems if system.name in drawn]
    styles = {name: line_style(PAGE_THEME, slots[name]) for name in names}
    series = [
        Series(
            name,
            _classes(slots[name]),
            [_tooltip(row, x_label) for row in points.filter(system=name).iter_rows(named=True)],
        )
        for name in names
    ]
    svg = inline_svg(
        line_chart(points, "x", "y", styles, theme=PAGE_THEME, size=_SIZE, x_label=x_label, log=log),
        prefix,
        classes="chart",
        label=heading,
        variables=_VARIABLES,
        series=series,
    )
    # Initially, only trained systems and the baseline are visible: fusions would hide them.
    trained = {system.name for system in results.systems if system.configs}
    shown = trained | {results.baseline} if trained else set(names)
    wide = points.pivot("system", index="x", values="y", aggregate_function="first").sort("x")
    with_counts = "questions" in points.columns
    counts = dict(points.select("x", "questions").iter_rows()) if with_counts else {}
    table = [
        [_number(row["x"]), *([f"{counts[row['x']]:,}"] if counts else []), *(_cell(row[n]) for n in names)]
        for row in wide.iter_rows(named=True)
    ]
    return {
        "title": heading,
        "note": note,
        "svg": Markup(svg),
        "key": [{"name": n, "kind": _classes(slots[n]), "on": n in shown} for n in names],
        "heads": [x_label, *(["questions"] if with_counts else []), *names],
        "table": table,
    }


def _tooltip(row: dict[str, Any], x_label: str) -> str:
    questions = f", {row['questions']:,} questions" if "questions" in row else ""
    return f"{row['system']}, {x_label} {_number(row['x'])}: {row['y']:.4f}{questions}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"
