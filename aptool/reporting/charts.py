"""Charts of the report as template values: the figures of `reporting.plots` as inline SVG, and their data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import polars as pl
from markupsafe import Markup

from aptool.evaluation.texts import relevant_lengths
from aptool.formats.pools import read_answers
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.curves import (
    COSTS,
    accuracy_by_length,
    read_history,
    score_distribution,
    training_curves,
    was_trained,
    with_enough_questions,
)
from aptool.reporting.plots import (
    TEXT,
    LineStyle,
    line_styles,
    plot_accuracy_by_length,
    plot_costs,
    plot_small_scores,
    plot_training,
    svg,
)
from aptool.reporting.runs import CollectionResults, SystemResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 30


class _Picture(NamedTuple):
    """A figure, and the values that it draws: system, x, y and optionally questions."""

    figure: "Figure"
    points: pl.DataFrame
    title: str
    note: str
    x_label: str


def line_charts(results: CollectionResults, prefix: str) -> list[dict[str, Any]]:
    """The template values of accuracy by answer length and of training curves; ``prefix`` is that of ids."""
    styles = _styles(results)
    return [
        _line_chart(results, styles, f"{prefix}-chart{number}-", picture)
        for number, picture in enumerate(_lines(results, styles))
    ]


def cost_charts(results: CollectionResults, costs: pl.DataFrame, prefix: str) -> list[dict[str, Any]]:
    """The template values of each chart of accuracy against a cost, from rows of `curves.cost_table`."""
    main, styles, charts = results.measures[0], _styles(results), []
    for name, title in COSTS.items():
        data = costs.drop_nulls(name)
        if data[name].n_unique() > 1:
            figure = plot_costs(data, main, {name: title}, styles)
            points = data.select("system", x=name, y=main)
            note = "Mean over seeds; the axis of the cost is logarithmic."
            picture = _Picture(figure, points, f"{main} by {title}", note, title)
            table = [[system, _number(x), _cell(y)] for system, x, y in points.iter_rows()]
            drawn = _chart(picture, styles, f"{prefix}-{name}-")
            charts.append({**drawn, "key": [], "heads": ["system", title, main], "table": table})
    return charts


def histograms(results: CollectionResults, prefix: str) -> list[tuple[str, Markup]]:
    """The score distribution of the first seed of each system: name, SVG element."""
    qrels = read_qrels(results.collection.qrels(results.split))
    runs = {system.name: read_run(system.entries[0].run).frame for system in results.systems}
    shares = score_distribution(runs, qrels, bins=_BINS)
    charts = []
    for number, ((name,), frame) in enumerate(shares.partition_by("system", as_dict=True).items()):
        label = f"Scores of {name}: relevant answers and other candidates"
        element = inline_svg(plot_small_scores(frame), f"{prefix}-scores{number}-", "chart small", label)
        charts.append((str(name), Markup(element)))
    return charts


def swatch(style: LineStyle) -> Markup:
    """The line and the marker of a style as an ``<svg>`` element of a key."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.transforms import Affine2D

    marker = MarkerStyle(style.marker)
    # The y axis of SVG points down.
    shape = marker.get_path().transformed(marker.get_transform() + Affine2D().scale(9, -9))
    outline = " ".join(f"{x:.1f},{y:.1f}" for polygon in shape.to_polygons() for x, y in np.asarray(polygon))
    dashes = "" if style.dashes == "-" else " ".join(f"{2 * length:g}" for length in style.dashes[1])
    return Markup(
        f'<svg class="swatch-line" viewBox="-14 -6 28 12" aria-hidden="true" fill="{style.colour}">'
        f'<path d="M-14 0H14" stroke="{style.colour}" stroke-dasharray="{dashes or "none"}"/>'
        f'<polygon points="{outline}"/></svg>'
    )


def inline_svg(
    figure: "Figure",
    prefix: str,
    classes: str,
    label: str,
    lines: Mapping[int, tuple[str, Sequence[str]]] | None = None,
) -> str:
    """Render a figure as an ``<svg>`` element of the page, with the page's width and colour of text.

    All text is escaped by the XML writers of matplotlib and of this function. ``prefix`` is that of every
    id, ``label`` describes the figure for screen readers, and ``lines`` are the system and the tooltip of
    each point of the lines ``series-0``, ``series-1``, ...
    """
    root = ElementTree.fromstring(svg(figure, prefix))
    for parent in root.iter():
        parent.tag = _local(parent.tag)
        for name in [name for name in parent.attrib if name.startswith("{")]:
            parent.set(_local(name), parent.attrib.pop(name))
        if "style" in parent.attrib:
            parent.set("style", parent.attrib["style"].replace(TEXT, "var(--soft)"))
        # matplotlib's style sheet would apply to the whole page.
        for child in [child for child in parent if _local(child.tag) in ("style", "metadata")]:
            parent.remove(child)
    root.attrib = {"viewBox": root.attrib["viewBox"], "class": classes, "role": "img", "aria-label": label}
    groups = {element.get("id"): element for element in root.iter("g")}
    for number, (system, tooltips) in (lines or {}).items():
        group = groups[f"{prefix}series-{number}"]
        group.set("class", "series")
        group.set("data-series", system)
        for point, tooltip in zip(group.iter("use"), tooltips, strict=True):
            ElementTree.SubElement(point, "title").text = tooltip
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """A name without its XML namespace, as in HTML."""
    return name.rpartition("}")[2]


def _styles(results: CollectionResults) -> dict[str, LineStyle]:
    """The line style of each system: trained systems by their main measure, baseline, other systems.

    The systems that are visible at first come first, and so have different colours.
    """

    def order(system: SystemResults) -> tuple[bool, bool, float]:
        return not system.configs, system.name != results.baseline, -system.means[results.measures[0]]

    return line_styles(system.name for system in sorted(results.systems, key=order))


def _lines(results: CollectionResults, styles: Mapping[str, LineStyle]) -> Iterator[_Picture]:
    """The charts of lines that have a line."""
    lengths = _with_lines(_by_length(results), "length")
    if len(lengths):
        note = "Over the questions whose relevant answer has at most this many words."
        figure = plot_accuracy_by_length(lengths, styles)
        points = lengths.rename({"length": "x", "accuracy": "y"})
        yield _Picture(figure, points, "P@1 by length of the relevant answer", note, "maximum words")
    histories = _histories(results)
    if histories is None:
        return
    columns = [f"dev_{results.measures[0]}", *(name for name in histories.columns if name[:4] == "dev_")]
    dev = next((name for name in columns if name in histories.columns), None)
    titles = {} if dev is None else {dev: (f"{dev.removeprefix('dev_')} on dev by epoch", "Mean over seeds.")}
    note = "Mean over pairs and seeds. Different losses are not comparable."
    for column, (title, text) in {**titles, "loss": ("Training loss by epoch", note)}.items():
        means = histories.group_by("system", "epoch").agg(pl.col(column).mean()).drop_nulls(column)
        means = _with_lines(means.sort("epoch"), "epoch")
        if len(means):
            figure = plot_training(means, [column], styles)
            points = means.rename({"epoch": "x", column: "y"})
            yield _Picture(figure, points, title, text, "epoch")


def _with_lines(data: pl.DataFrame, x: str) -> pl.DataFrame:
    """The systems with the two points that a line needs."""
    return data.filter(pl.col(x).n_unique().over("system") > 1)


def _by_length(results: CollectionResults) -> pl.DataFrame:
    """The accuracy by answer length: system, length, questions, accuracy."""
    collection, split = results.collection, results.split
    answers = read_answers(collection.answers) if collection.answers else None
    lengths = relevant_lengths([collection.pools(split)], read_qrels(collection.qrels(split)), answers)
    accuracy = {system.name: system.per_question for system in results.systems}
    return with_enough_questions(accuracy_by_length(accuracy, lengths))


def _histories(results: CollectionResults) -> pl.DataFrame | None:
    """The training histories of all seeds; None without trained systems."""
    parts = [
        training_curves({system.name: read_history(entry.model)})
        for system in results.systems
        for entry in system.entries
        if entry.model is not None and was_trained(entry.model)
    ]
    return pl.concat(parts, how="diagonal_relaxed") if parts else None


def _line_chart(
    results: CollectionResults, styles: Mapping[str, LineStyle], prefix: str, picture: _Picture
) -> dict[str, Any]:
    """The template values of a chart of lines, with a key and a table of one column per system."""
    points = picture.points
    drawn = [system for system in styles if system in set(points["system"])]
    # Initially, only trained systems and the baseline are visible: fusions would hide them.
    trained = {system.name for system in results.systems if system.configs}
    shown = trained | {results.baseline} if trained else set(drawn)
    wide = points.pivot("system", index="x", values="y", aggregate_function="first").sort("x")
    with_counts = "questions" in points.columns
    counts = dict(points.select("x", "questions").iter_rows()) if with_counts else {}
    table = [
        [_number(row["x"]), *([f"{counts[row['x']]:,}"] if counts else []), *(_cell(row[n]) for n in drawn)]
        for row in wide.iter_rows(named=True)
    ]
    return {
        **_chart(picture, styles, prefix),
        "key": [{"name": name, "swatch": swatch(styles[name]), "on": name in shown} for name in drawn],
        "heads": [picture.x_label, *(["questions"] if with_counts else []), *drawn],
        "table": table,
    }


def _chart(picture: _Picture, styles: Mapping[str, LineStyle], prefix: str) -> dict[str, Any]:
    """The template values of a picture whose points have tooltips."""
    tooltips = {
        number: (system, [_tooltip(row, picture.x_label) for row in rows])
        for number, system in enumerate(styles)
        if (rows := picture.points.filter(system=system).to_dicts())
    }
    element = inline_svg(picture.figure, prefix, "chart", picture.title, tooltips)
    return {"title": picture.title, "note": picture.note, "svg": Markup(element)}


def _tooltip(row: dict[str, Any], x_label: str) -> str:
    questions = f", {row['questions']:,} questions" if "questions" in row else ""
    return f"{row['system']}, {x_label} {_number(row['x'])}: {row['y']:.4f}{questions}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"
