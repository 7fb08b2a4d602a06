"""Charts of the tables of `reporting.charts`, as matplotlib figures and as SVG.

Colours are legible on white and on black and safe for colour-blind readers (Okabe and Ito's palette on a
transparent background); systems also differ in dashes and markers.
"""

from __future__ import annotations

import io
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from aptool import version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (6.4, 4.0)  # inches
_FONT_SIZE = 10  # points of 1/72 inch
# Offsets of a label from its point, in points of 1/72 inch, in the order of preference.
_LABEL_OFFSETS = ((6, 3), (-6, 3), (6, -10), (-6, -10), (6, 14), (-6, 14))
_LEAST_RANGE = 0.05  # of the axis of a measure

TEXT, GRID = "#767676", "#76767640"
RELEVANT, OTHER = "#0072B2", "#D55E00"  # scores of relevant answers, and of other candidates
# The colours of the palette with a contrast of at least 3:1 to both white and black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C770A2")
DASHES: Sequence[Any] = ("-", (0, (5, 2)), (0, (1, 1.5)))
# Distinct in grey, without colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "<", ">", "h")


def plot_accuracy_by_length(data: pl.DataFrame) -> Figure:
    """Draw a table of `charts.accuracy_by_length` (figures 3 and 4), one line per system.

    The bands are the intervals, if the table has them.
    """
    label = "maximum length of the relevant answer, words"
    figure = _plot_lines(data, "length", label, {"accuracy": "accuracy (P@1)"})
    if "low" in data.columns:
        (axes,) = figure.axes
        systems = data.partition_by("system", maintain_order=True)
        for line, points in zip(axes.get_lines(), systems, strict=True):
            bounds = points["length"], points["low"], points["high"]
            axes.fill_between(*bounds, color=line.get_color(), alpha=0.15, linewidth=0)
    return figure


def plot_learning_curves(data: pl.DataFrame, panels: Mapping[str, str]) -> Figure:
    """Draw a measure by the number of training questions, one panel per collection and one line per system.

    ``data`` has the columns system, questions, and one per collection; ``panels`` are their axis labels.
    """
    figure = _plot_lines(data, "questions", "training questions", panels)
    _use_logarithms(figure.axes[-1])
    return figure


def plot_training(data: pl.DataFrame, columns: Sequence[str]) -> Figure:
    """Draw columns of a table of `charts.training_curves` by epoch, one panel per column.

    ``columns`` are ``loss`` and measures on dev, whose best epochs are circled.
    """
    labels = {name: f"{name.removeprefix('dev_')} on dev" for name in columns}
    if "loss" in labels:
        labels["loss"] = "mean training loss"
    circled = [name for name in columns if name != "loss"]
    figure = _plot_lines(data, "epoch", "epoch (best on dev circled)" if circled else "epoch", labels)
    for name, axes in zip(columns, figure.axes, strict=True):
        if name == "loss":
            axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # room for the marker of the highest loss
        else:
            by_system = data.drop_nulls(name).group_by("system", maintain_order=True)
            best = by_system.agg(pl.all().get(pl.col(name).arg_max()))
            axes.scatter(best["epoch"], best[name], s=90, facecolors="none", edgecolors=TEXT, zorder=3)
    return figure


def _plot_lines(data: pl.DataFrame, x: str, x_label: str, panels: Mapping[str, str]) -> Figure:
    """Draw one panel per column of ``panels``, whose values are labels, and one line per system."""
    with _draw_panels(_panels_size(len(panels), 0.65), rows=len(panels)) as (figure, all_axes):
        from matplotlib.ticker import MaxNLocator

        lines = [_draw_lines(axes, data, x, column) for column, axes in zip(panels, all_axes, strict=True)]
        for label, axes in zip(panels.values(), all_axes, strict=True):
            axes.set_ylabel(label)
            _use_least_range(axes)
        all_axes[-1].set_xlabel(x_label)
        all_axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(all_axes[0], lines[0])
    return figure


def plot_costs(data: pl.DataFrame, measure: str, titles: Mapping[str, str]) -> Figure:
    """Draw a measure against costs, one panel per cost and one labelled point per system.

    ``data`` has rows of `charts.cost_table` of one collection; ``titles`` are axis labels by column of costs.
    """
    drawn = [name for name in titles if data[name].is_not_null().any()]
    with _draw_panels(_panels_size(len(drawn), 0.75), rows=len(drawn), share_x=False) as (figure, panels):
        for name, axes in zip(drawn, panels, strict=True):
            _draw_lines(axes, data, name, measure, joined=False)
            _use_logarithms(axes)
            _use_least_range(axes)
            axes.set_xlabel(titles[name])
            axes.set_ylabel(measure)
        figure.draw_without_rendering()  # `_label_points` needs the layout
        for name, axes in zip(drawn, panels, strict=True):
            _label_points(axes, data.drop_nulls(name).select("system", name, measure).rows())
    return figure


def plot_scores(data: pl.DataFrame) -> Figure:
    """Draw a table of `charts.score_distribution`, one panel per system."""
    systems = data["system"].unique(maintain_order=True).to_list()
    rows = len(systems)
    with _draw_panels(_panels_size(rows, 0.65), rows=rows, share_x=False) as (figure, panels):
        for system, axes in zip(systems, panels, strict=True):
            handles = _draw_histograms(axes, data.filter(pl.col("system") == system))
            axes.set_ylabel("share of candidates")
            axes.set_xlabel(f"score of {system}")
        _legend(panels[0], handles)  # the same in every panel
    return figure


def svg(figure: Figure) -> str:
    """Render a figure as an ``<svg>`` element with text as text; equal figures give equal strings."""
    import matplotlib

    # With a fixed salt and without a date, equal figures give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "aptool"}):
        file = io.StringIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    return file.getvalue()[file.getvalue().index("<svg") :]


def check_installed() -> None:
    """Raise an `AptoolError` unless matplotlib is installed."""
    version.check_installed("matplotlib", purpose="a chart", extra="report")


@contextmanager
def _draw_panels(
    size: tuple[float, float], *, rows: int = 1, share_x: bool = True
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure with panels below each other."""
    check_installed()
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "axes.edgecolor": TEXT,
        "axes.labelcolor": TEXT,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "font.family": "sans-serif",
        "font.size": _FONT_SIZE,
        "grid.color": GRID,
        "hatch.linewidth": 0.6,
        "legend.frameon": False,
        "legend.labelcolor": TEXT,
        "lines.linewidth": 1.8,
        "path.simplify": False,  # every point of a line has a marker
        "text.color": TEXT,
        "text.parse_math": False,  # names of systems are not formulas
        "xtick.color": TEXT,
        "ytick.color": TEXT,
        "xtick.labelsize": _FONT_SIZE,
        "ytick.labelsize": _FONT_SIZE,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, 1, sharex=share_x, squeeze=False)
        for axes in panels.flat:
            axes.set_axisbelow(True)
        yield figure, [row[0] for row in panels]
        figure.align_ylabels()


def _panels_size(rows: int, share: float) -> tuple[float, float]:
    """Size of a figure; of several panels, each has a share of the usual height."""
    width, height = _SIZE
    return width, height * (1 if rows == 1 else share * rows)


def _draw_lines(axes: Axes, data: pl.DataFrame, x: str, y: str, *, joined: bool = True) -> dict[str, Any]:
    """Draw one line per system, or its points if not ``joined``; return the lines by system.

    Further lines repeat the colours with the next dashes.
    """
    lines = {}
    for number, (system,) in enumerate(data.select(pl.col("system").unique(maintain_order=True)).iter_rows()):
        points = data.filter(pl.col("system") == system).drop_nulls(y)
        (lines[system],) = axes.plot(
            points[x],
            points[y],
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)] if joined else "",
            marker=MARKERS[number % len(MARKERS)],
            markersize=5 if joined else 8,
            gid=f"series-{number}",
        )
    return lines


def _draw_histograms(axes: Axes, data: pl.DataFrame) -> dict[str, Any]:
    """Draw outlines of both distributions, the relevant answers hatched; return legend handles by label."""
    handles = {}
    edges = [*data["low"], data["high"].item(-1)]
    for column, colour, hatch, label in (
        ("others", OTHER, "", "other candidates"),
        ("relevant", RELEVANT, "//", "relevant answers"),
    ):
        axes.stairs(data[column], edges, color=colour, linewidth=1.5)
        parts = [axes.stairs(data[column], edges, fill=True, color=f"{colour}40", linewidth=0)]
        if hatch:
            # A separate patch: in an SVG the hatching of a filled patch has no transparency.
            lines = axes.stairs(data[column], edges, fill=True, edgecolor=colour, hatch=hatch, linewidth=0)
            lines.set_facecolor("none")
            parts.append(lines)
        handles[label] = tuple(parts)
    return handles


def _use_least_range(axes: Axes) -> None:
    """Widen the y axis of a measure, so that rounding does not fill the height of the picture."""
    low, high = axes.get_ylim()
    missing = _LEAST_RANGE - (high - low)
    if missing > 0:
        axes.set_ylim(low - missing / 2, high + missing / 2)


def _use_logarithms(axes: Axes) -> None:
    """Make the x axis logarithmic, with round numbers as ticks over any range."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_xscale("log")
    axes.margins(x=0.15, y=0.1)  # room for labels at the points
    low, high = axes.get_xlim()
    decades = math.log10(high / low)
    ticks = LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)) if decades > 1 else MaxNLocator(5)
    axes.xaxis.set_major_locator(ticks)
    # matplotlib's own tick labels are formulas, which the style turns off.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def _short(value: float) -> str:
    """1500 as 1.5k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _label_points(axes: Axes, points: Sequence[tuple[Any, ...]]) -> None:
    """Label points (label, x, y) from the highest down, each at the first offset that no label occupies.

    The layout of the figure must be final, as after `Figure.draw_without_rendering`.
    """
    from matplotlib.transforms import Bbox

    size, points_per_pixel = _FONT_SIZE - 1, 72 / axes.figure.dpi
    occupied: list[Bbox] = []
    right = axes.bbox.x1 * points_per_pixel
    for label, x, y in sorted(points, key=lambda point: -point[2]):
        across, up = axes.transData.transform((x, y)) * points_per_pixel
        width = 0.55 * size * len(label)
        boxes = [
            Bbox.from_bounds(across + dx - (width if dx < 0 else 0), up + dy, width, size)
            for dx, dy in _LABEL_OFFSETS
        ]
        free = (
            number
            for number, box in enumerate(boxes)
            if box.x1 <= right and not any(map(box.overlaps, occupied))
        )
        chosen = next(free, 0)
        occupied.append(boxes[chosen])
        axes.annotate(
            label,
            (x, y),
            _LABEL_OFFSETS[chosen],
            textcoords="offset points",
            horizontalalignment="right" if _LABEL_OFFSETS[chosen][0] < 0 else "left",
            fontsize=size,
            color=TEXT,
        )


def _legend(axes: Axes, handles: Mapping[str, Any]) -> None:
    # Labels are passed explicitly: matplotlib leaves out labels that begin with an underscore.
    axes.legend(
        list(handles.values()),
        list(handles),
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=4 if len(handles) <= 4 else 3,  # three columns have room for longer labels
        borderaxespad=0.3,
        handlelength=2.6,
    )
