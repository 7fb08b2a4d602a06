"""Charts of the report as template values: lines by answer length, epoch and cost; distributions.

matplotlib draws them into inline SVG in the colours of the page, which are CSS variables.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
from markupsafe import Markup

from aptool.evaluation.texts import relevant_lengths
from aptool.formats.pools import read_answers
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.curves import (
    COSTS,
    LEAST_QUESTIONS,
    accuracy_by_length,
    read_history,
    score_distribution,
    training_curves,
    was_trained,
)
from aptool.reporting.plots import (
    Theme,
    draw_histograms,
    draw_lines,
    draw_panels,
    label_points,
    line_style,
    svg,
    use_least_range,
    use_logarithms,
    use_whole_numbers,
)
from aptool.reporting.runs import CollectionResults, SystemResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In small collections, accuracies over fewer than this share of the questions are left out.
_LEAST_SHARE = 0.05
_BINS = 30
# In inches; a point of 1/72 inch becomes a CSS pixel.
_SIZE, _SMALL_SIZE = (560 / 72, 300 / 72), (250 / 72, 110 / 72)
# The colours of the page's light theme and the CSS variables that replace them.
VARIABLES = {
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
_COLOURS = {variable: colour for colour, variable in VARIABLES.items()}
PAGE_THEME = Theme(
    text=_COLOURS["--soft"],
    grid=_COLOURS["--rule"],
    relevant=_COLOURS["--s0"],
    other=_COLOURS["--s7"],
    colours=[_COLOURS[f"--s{number}"] for number in range(8)],
    dashes=("-", (0, (5, 4))),
    font_size=12.5,
    line_width=2,
)


def line_charts(results: CollectionResults, prefix: str) -> list[dict[str, Any]]:
    """The template values of accuracy by answer length and of training curves; ``prefix`` is that of ids."""
    note = "Over the questions whose relevant answer has at most this many words; last point: all questions."
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
    # A line needs two points.
    drawn = [
        (points.filter(pl.col("x").n_unique().over("system") > 1), heading, note, x_label)
        for points, heading, note, x_label in charts
    ]
    return [
        _chart(results, f"{prefix}-chart{number}-", *chart)
        for number, chart in enumerate(drawn)
        if len(chart[0])
    ]


def cost_charts(results: CollectionResults, costs: pl.DataFrame, prefix: str) -> list[dict[str, Any]]:
    """The template values of each chart of accuracy against a cost, from rows of `curves.cost_table`."""
    main = results.measures[0]
    charts = []
    for name, title in COSTS.items():
        points = costs.select("system", x=name, y=main).drop_nulls("x")
        if points["x"].n_unique() > 1:
            heading = f"{main} by {title}"
            note = "Mean over seeds; the axis of the cost is logarithmic."
            slots = _slots(results, points["system"])
            lines = _tooltips(points, slots, title)
            element = inline_svg(
                cost_chart(points, slots, title), f"{prefix}-{name}-", "chart", heading, lines
            )
            table = [[system, _number(x), _cell(y)] for system, x, y in points.iter_rows()]
            drawn = {"title": heading, "note": note, "svg": Markup(element), "key": []}
            charts.append({**drawn, "heads": ["system", title, main], "table": table})
    return charts


def histograms(results: CollectionResults, prefix: str) -> list[tuple[str, Markup]]:
    """The score distribution of the first seed of each system: name, SVG element."""
    qrels = read_qrels(results.collection.qrels(results.split))
    runs = {system.name: read_run(system.entries[0].run).frame for system in results.systems}
    shares = score_distribution(runs, qrels, bins=_BINS)
    charts = []
    for number, ((name,), frame) in enumerate(shares.partition_by("system", as_dict=True).items()):
        label = f"Scores of {name}: relevant answers and other candidates"
        element = inline_svg(histogram(frame), f"{prefix}-scores{number}-", "chart small", label)
        charts.append((str(name), Markup(element)))
    return charts


def histogram(data: pl.DataFrame) -> "Figure":
    """Draw the score distributions of one system, with ticks only at the ends of the score axis."""
    with draw_panels(PAGE_THEME, _SMALL_SIZE) as (figure, (axes,)):
        draw_histograms(axes, data, PAGE_THEME)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        low, high = data["low"].item(0), data["high"].item(-1)
        axes.set_xlim(low, high)
        axes.set_xticks([low, high], [f"{low:.3g}", f"{high:.3g}"])
        first, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
    return figure


def line_chart(data: pl.DataFrame, slots: dict[str, int], x_label: str) -> "Figure":
    """Draw one line per system, without a legend; ``slots`` are the numbers of the line styles."""
    styles = {system: line_style(PAGE_THEME, slot) for system, slot in slots.items()}
    with draw_panels(PAGE_THEME, _SIZE) as (figure, (axes,)):
        draw_lines(axes, data, "x", "y", styles)
        axes.set_xlabel(x_label, loc="right")
        use_whole_numbers(axes)
        use_least_range(axes)
    return figure


def cost_chart(data: pl.DataFrame, slots: dict[str, int], x_label: str) -> "Figure":
    """Draw one labelled point per system on a logarithmic x axis; arguments as in `line_chart`."""
    styles = {system: line_style(PAGE_THEME, slot) for system, slot in slots.items()}
    with draw_panels(PAGE_THEME, _SIZE) as (figure, (axes,)):
        draw_lines(axes, data, "x", "y", styles, joined=False)
        axes.set_xlabel(x_label, loc="right")
        use_logarithms(axes)
        use_least_range(axes)
        figure.draw_without_rendering()  # `label_points` needs the layout
        label_points(axes, data.select("system", "x", "y").rows(), PAGE_THEME)
    return figure


def swatch(slot: int) -> Markup:
    """The line and the marker of a style as an ``<svg>`` element of a key."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.transforms import Affine2D

    marker = MarkerStyle(line_style(PAGE_THEME, slot).marker)
    # The y axis of SVG points down.
    shape = marker.get_path().transformed(marker.get_transform() + Affine2D().scale(9, -9))
    outline = " ".join(f"{x:.1f},{y:.1f}" for polygon in shape.to_polygons() for x, y in np.asarray(polygon))
    return Markup(
        '<svg class="swatch-line" viewBox="-14 -6 28 12" aria-hidden="true">'
        f'<path d="M-14 0H14"/><polygon points="{outline}"/></svg>'
    )


def inline_svg(
    figure: "Figure",
    prefix: str,
    classes: str,
    label: str,
    lines: Sequence[tuple[str, int, Sequence[str]]] = (),
) -> str:
    """Render a figure as an ``<svg>`` element of the page, in the page's size and colours.

    All text is escaped by the XML writers of matplotlib and of this function. ``prefix`` is that of every
    id, ``label`` describes the figure for screen readers, and ``lines`` are system, number of the line
    style, and tooltip of each point, of the lines ``series-0``, ``series-1``, ...
    """
    root = ElementTree.fromstring(svg(figure, prefix))
    for parent in root.iter():
        parent.tag = _local(parent.tag)
        for name in [name for name in parent.attrib if name.startswith("{")]:
            parent.set(_local(name), parent.attrib.pop(name))
        if "style" in parent.attrib:
            for colour, variable in VARIABLES.items():
                parent.set("style", parent.attrib["style"].replace(colour, f"var({variable})"))
        # matplotlib's style sheet would apply to the whole page.
        for child in [child for child in parent if _local(child.tag) in ("style", "metadata")]:
            parent.remove(child)
    root.attrib = {"viewBox": root.attrib["viewBox"], "class": classes, "role": "img", "aria-label": label}
    groups = {element.get("id"): element for element in root.iter("g")}
    for number, (system, slot, tooltips) in enumerate(lines):
        group = groups[f"{prefix}series-{number}"]
        group.set("class", _classes(slot))
        group.set("data-series", system)
        for point, tooltip in zip(group.iter("use"), tooltips, strict=True):
            ElementTree.SubElement(point, "title").text = tooltip
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """A name without its XML namespace, as in HTML."""
    return name.rpartition("}")[2]


def _slots(results: CollectionResults, drawn: Iterable[str]) -> dict[str, int]:
    """Line style number of each drawn system: trained systems by their main measure, baseline, other systems.

    The systems that are visible at first have the first numbers, and so different colours.
    """
    main, names = results.measures[0], set(drawn)

    def order(system: SystemResults) -> tuple[bool, bool, float]:
        return not system.configs, system.name != results.baseline, -system.means[main]

    numbers = {system.name: slot for slot, system in enumerate(sorted(results.systems, key=order))}
    return {system.name: numbers[system.name] for system in results.systems if system.name in names}


def _classes(slot: int) -> str:
    """CSS classes of a line and of its key."""
    colours = len(PAGE_THEME.colours)
    return f"series s{slot % colours}" + (" dashed" if slot // colours % 2 else "")


def _by_length(results: CollectionResults) -> pl.DataFrame:
    """The accuracy by answer length as points: system, x, y, questions."""
    collection, split = results.collection, results.split
    answers = read_answers(collection.answers) if collection.answers else None
    lengths = relevant_lengths([collection.pools(split)], read_qrels(collection.qrels(split)), answers)
    accuracy = {system.name: system.per_question for system in results.systems}
    points = accuracy_by_length(accuracy, lengths)
    enough = min(LEAST_QUESTIONS, _LEAST_SHARE * lengths.height)
    return points.filter(pl.col("questions") >= enough).rename({"length": "x", "accuracy": "y"})


def _histories(results: CollectionResults) -> pl.DataFrame | None:
    """The training histories of all seeds; None without trained systems."""
    parts = [
        training_curves({system.name: read_history(entry.model)})
        for system in results.systems
        for entry in system.entries
        if entry.model is not None and was_trained(entry.model)
    ]
    return pl.concat(parts, how="diagonal_relaxed") if parts else None


def _by_epoch(histories: pl.DataFrame, column: str) -> pl.DataFrame:
    """The points of a line chart: system, epoch (x) and the mean of a column over the seeds (y)."""
    means = histories.group_by("system", "epoch").agg(pl.col(column).mean().alias("y"))
    return means.drop_nulls("y").rename({"epoch": "x"}).sort("x")


def _chart(
    results: CollectionResults,
    prefix: str,
    points: pl.DataFrame,
    heading: str,
    note: str,
    x_label: str,
) -> dict[str, Any]:
    """The template values of a chart of lines: system, x, y and optionally questions."""
    drawn = set(points["system"])
    slots = _slots(results, drawn)
    lines = _tooltips(points, slots, x_label)
    element = inline_svg(line_chart(points, slots, x_label), prefix, "chart", heading, lines)
    # Initially, only trained systems and the baseline are visible: fusions would hide them.
    trained = {system.name for system in results.systems if system.configs}
    shown = trained | {results.baseline} if trained else drawn
    wide = points.pivot("system", index="x", values="y", aggregate_function="first").sort("x")
    with_counts = "questions" in points.columns
    counts = dict(points.select("x", "questions").iter_rows()) if with_counts else {}
    table = [
        [_number(row["x"]), *([f"{counts[row['x']]:,}"] if counts else []), *(_cell(row[n]) for n in slots)]
        for row in wide.iter_rows(named=True)
    ]
    return {
        "title": heading,
        "note": note,
        "svg": Markup(element),
        "key": [
            {"name": name, "kind": _classes(slot), "swatch": swatch(slot), "on": name in shown}
            for name, slot in slots.items()
        ],
        "heads": [x_label, *(["questions"] if with_counts else []), *slots],
        "table": table,
    }


def _tooltips(
    points: pl.DataFrame, slots: dict[str, int], x_label: str
) -> list[tuple[str, int, Sequence[str]]]:
    """The lines of `inline_svg`: system, number of the line style, and tooltip of each point."""
    rows = {name: points.filter(system=name).iter_rows(named=True) for name in slots}
    return [(name, slots[name], [_tooltip(row, x_label) for row in rows[name]]) for name in slots]


def _tooltip(row: dict[str, Any], x_label: str) -> str:
    questions = f", {row['questions']:,} questions" if "questions" in row else ""
    return f"{row['system']}, {x_label} {_number(row['x'])}: {row['y']:.4f}{questions}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"
