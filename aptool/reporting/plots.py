"""Charts of the tables of `reporting.curves`, drawn by matplotlib into PNG and SVG files.

`FILE_THEME` is legible on white and on black and safe for colour-blind readers (Okabe and Ito's palette on a
transparent background); systems also differ in dashes and markers.
"""

from __future__ import annotations

import io
import math
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from aptool import version
from aptool.errors import UsageError
from aptool.formats.atomic import check_output, output_file
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.outputs import Kind
from aptool.reporting.curves import LEAST_QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SUFFIXES = (".png", ".svg")
_DOTS_PER_INCH = 160
_FILE_SIZE = (6.4, 4.0)  # inches
_ID = re.compile(r'\bid="|\bhref="#|url\(#')
# Offsets of a label from its point, in points of 1/72 inch, in the order of preference.
LEAST_RANGE = 0.05  # of the axis of a measure
_LABEL_OFFSETS = ((6, 3), (-6, 3), (6, -10), (-6, -10), (6, 14), (-6, 14))


# Distinct in grey, without colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "<", ">", "h")


class Theme(NamedTuple):
    """Colours of a figure, and sizes in points of 1/72 inch."""

    text: str  # and axes
    grid: str
    relevant: str  # scores of relevant answers
    other: str  # scores of other candidates
    colours: Sequence[str]  # of lines
    dashes: Sequence[Any]
    font_size: float
    line_width: float


FILE_THEME = Theme(
    text="#767676",
    grid="#76767640",
    relevant="#0072B2",
    other="#D55E00",
    # The colours of the palette with a contrast of at least 3:1 to both white and black.
    colours=("#0072B2", "#D55E00", "#009E73", "#C770A2"),
    dashes=("-", (0, (5, 2)), (0, (1, 1.5))),
    font_size=10,
    line_width=1.8,
)


class LineStyle(NamedTuple):
    """Style of a system's line."""

    colour: str
    dashes: Any
    marker: str


def line_style(theme: Theme, number: int) -> LineStyle:
    """The style of line ``number``, from 0. Further lines repeat the colours with the next dashes."""
    return LineStyle(
        theme.colours[number % len(theme.colours)],
        theme.dashes[number // len(theme.colours) % len(theme.dashes)],
        MARKERS[number % len(MARKERS)],
    )


def plot_accuracy_by_length(data: pl.DataFrame) -> Figure:
    """Draw a table of `curves.accuracy_by_length` (figures 3 and 4), one line per system.

    Lengths with fewer than `LEAST_QUESTIONS` questions are not drawn, unless no length has as many.
    """
    enough = data.filter(pl.col("questions") >= LEAST_QUESTIONS)
    with draw_panels(FILE_THEME, _FILE_SIZE) as (figure, (axes,)):
        lines = draw_lines(axes, enough if len(enough) else data, "length", "accuracy", _styles(data))
        axes.set_xlabel("maximum length of the relevant answer, words; last point: all questions")
        axes.set_ylabel("accuracy (P@1)")
        use_least_range(axes)
        _legend(axes, lines)
    return figure


def plot_training(data: pl.DataFrame, *, measure: str | None = None) -> Figure:
    """Draw loss and a dev measure by epoch, one line per system; the best epoch on dev is circled.

    ``data`` is a table of `curves.training_curves`, and ``measure`` its column (default: the first dev
    measure).
    """
    measure = measure or next((name for name in data.columns if name.startswith("dev_")), None)
    rows, styles = 1 if measure is None else 2, _styles(data)
    with draw_panels(FILE_THEME, _panels_size(rows, 0.65), rows=rows) as (figure, panels):
        lines = draw_lines(panels[0], data, "epoch", "loss", styles)
        panels[0].set_ylabel("mean training loss")
        panels[0].set_ylim(bottom=0)
        if measure is not None:
            draw_lines(panels[1], data, "epoch", measure, styles)
            panels[1].set_ylabel(f"{measure.removeprefix('dev_')} on dev")
            use_least_range(panels[1])
            best = data.group_by("system", maintain_order=True).agg(pl.all().get(pl.col(measure).arg_max()))
            panels[1].scatter(
                best["epoch"], best[measure], s=90, facecolors="none", edgecolors=FILE_THEME.text, zorder=3
            )
        panels[-1].set_xlabel("epoch" if measure is None else "epoch (best on dev circled)")
        use_whole_numbers(panels[-1])
        _legend(panels[0], lines)
    return figure


def plot_costs(data: pl.DataFrame, measure: str, titles: Mapping[str, str]) -> Figure:
    """Draw a measure against costs, one panel per cost and one labelled point per system.

    ``data`` has rows of `curves.cost_table` of one collection; ``titles`` are axis labels by column of
    costs.
    """
    drawn = [name for name in titles if data[name].is_not_null().any()]
    styles = _styles(data)
    width, height = _panels_size(len(drawn), 0.85)
    with draw_panels(FILE_THEME, (width * 1.2, height), rows=len(drawn), share_x=False) as (figure, panels):
        for name, axes in zip(drawn, panels, strict=True):
            draw_lines(axes, data, name, measure, styles, joined=False)
            use_logarithms(axes)
            use_least_range(axes)
            axes.set_xlabel(titles[name])
            axes.set_ylabel(measure)
        figure.draw_without_rendering()  # `label_points` needs the layout
        for name, axes in zip(drawn, panels, strict=True):
            label_points(axes, data.drop_nulls(name).select("system", name, measure).rows(), FILE_THEME)
    return figure


def plot_scores(data: pl.DataFrame) -> Figure:
    """Draw a table of `curves.score_distribution`, one panel per system."""
    systems = data["system"].unique(maintain_order=True).to_list()
    rows = len(systems)
    with draw_panels(FILE_THEME, _panels_size(rows, 0.65), rows=rows, share_x=False) as (figure, panels):
        for system, axes in zip(systems, panels, strict=True):
            handles = draw_histograms(axes, data.filter(pl.col("system") == system), FILE_THEME)
            axes.set_ylabel("share of candidates")
            axes.set_xlabel(f"score of {system}")
        _legend(panels[0], handles)  # the same in every panel
    return figure


def svg(figure: Figure, prefix: str = "") -> str:
    """Render a figure as an ``<svg>`` element with text as text; equal figures give equal strings.

    ``prefix`` is that of every id, so that several figures can be in one page.
    """
    import matplotlib

    # With a fixed salt and without a date, equal figures give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "aptool"}):
        file = io.StringIO()
        figure.savefig(
            file,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    element = file.getvalue()[file.getvalue().index("<svg") :]
    return re.sub(r"<[^>]*>", lambda tag: _ID.sub(rf"\g<0>{prefix}", tag[0]), element)


def save_plot(figure: Figure, data: pl.DataFrame, path: PathOrUrl) -> list[Location]:
    """Write a figure and, under the same name, its data as CSV; return the files, the data last.

    ``path`` is ``NAME.png`` or ``NAME.svg``, or ``NAME`` for both.
    """
    images, table = plot_files(path)
    for image in images:
        with output_file(image, Kind.PLOT) as temporary:
            if image.suffix == ".svg":
                temporary.write_text(svg(figure), encoding="utf-8")
            else:
                figure.savefig(temporary, format="png", transparent=True, dpi=_DOTS_PER_INCH)
    with output_file(table, Kind.PLOT) as temporary:
        data.write_csv(temporary)
    return [*images, table]


def plot_files(path: PathOrUrl) -> tuple[list[Location], Location]:
    """The images and the table that `save_plot` writes, after checks that it can write them."""
    check_installed()
    file = location(path)
    if file.name in ("", ".."):
        raise UsageError(f"{str(path)!r}: expected the name of a file")
    if file.suffix and file.suffix not in _SUFFIXES:
        raise UsageError(f"{path}: expected a name ending in one of {', '.join(_SUFFIXES)}, or no suffix")
    images = [file] if file.suffix else [file.with_suffix(suffix) for suffix in _SUFFIXES]
    table = file.with_suffix(".csv")
    for output in (*images, table):
        check_output(output, Kind.PLOT)
    return images, table


def check_installed() -> None:
    """Raise an `AptoolError` unless matplotlib is installed."""
    version.check_installed("matplotlib", purpose="a chart", extra="report")


@contextmanager
def draw_panels(
    theme: Theme, size: tuple[float, float], *, rows: int = 1, share_x: bool = True
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure with panels below each other, in the style of a theme."""
    check_installed()
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "axes.edgecolor": theme.text,
        "axes.labelcolor": theme.text,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "font.family": "sans-serif",
        "font.size": theme.font_size,
        "grid.color": theme.grid,
        "hatch.linewidth": 0.6,
        "legend.frameon": False,
        "legend.labelcolor": theme.text,
        "lines.linewidth": theme.line_width,
        "path.simplify": False,  # every point of a line has a marker
        "text.color": theme.text,
        "text.parse_math": False,  # names of systems are not formulas
        "xtick.color": theme.text,
        "ytick.color": theme.text,
        "xtick.labelsize": theme.font_size,
        "ytick.labelsize": theme.font_size,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, 1, sharex=share_x, squeeze=False)
        for axes in panels.flat:
            axes.set_axisbelow(True)
        yield figure, [row[0] for row in panels]
        figure.align_ylabels()


def _panels_size(rows: int, share: float) -> tuple[float, float]:
    """Size of a file's figure; of several panels, each has a share of the usual height."""
    width, height = _FILE_SIZE
    return width, height * (1 if rows == 1 else share * rows)


def _styles(data: pl.DataFrame) -> dict[str, LineStyle]:
    systems = data["system"].unique(maintain_order=True)
    return {system: line_style(FILE_THEME, number) for number, system in enumerate(systems)}


def draw_lines(
    axes: Axes,
    data: pl.DataFrame,
    x: str,
    y: str,
    styles: Mapping[str, LineStyle],
    *,
    joined: bool = True,
) -> dict[str, Any]:
    """Draw one line per system, or its points if not ``joined``; return the lines by system.

    The lines have the group ids ``series-0``, ``series-1``, ... in the order of ``styles``.
    """
    lines = {}
    for number, (system, style) in enumerate(styles.items()):
        points = data.filter((pl.col("system") == system) & pl.col(y).is_not_null())
        (lines[system],) = axes.plot(
            points[x],
            points[y],
            color=style.colour,
            linestyle=style.dashes if joined else "",
            marker=style.marker,
            markersize=5 if joined else 8,
            gid=f"series-{number}",
        )
    return lines


def draw_histograms(axes: Axes, data: pl.DataFrame, theme: Theme) -> dict[str, Any]:
    """Draw outlines of both distributions, the relevant answers hatched; return legend handles by label."""
    handles = {}
    edges = [*data["low"], data["high"].item(-1)]
    for column, colour, hatch, label in (
        ("others", theme.other, "", "other candidates"),
        ("relevant", theme.relevant, "//", "relevant answers"),
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


def use_whole_numbers(axes: Axes) -> None:
    """Label the x axis with whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def use_least_range(axes: Axes) -> None:
    """Widen the y axis of a measure, so that rounding does not fill the height of the picture."""
    low, high = axes.get_ylim()
    missing = LEAST_RANGE - (high - low)
    if missing > 0:
        axes.set_ylim(low - missing / 2, high + missing / 2)


def use_logarithms(axes: Axes) -> None:
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


def label_points(axes: Axes, points: Sequence[tuple[Any, ...]], theme: Theme) -> None:
    """Label points (label, x, y) from the highest down, each at the first offset that no label occupies.

    The layout of the figure must be final, as after `Figure.draw_without_rendering`.
    """
    from matplotlib.transforms import Bbox

    size, points_per_pixel = theme.font_size - 2, 72 / axes.figure.dpi
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
            color=theme.text,
        )


def _legend(axes: Axes, handles: Mapping[str, Any]) -> None:
    # Labels are passed explicitly: matplotlib leaves out labels that begin with an underscore.
    axes.legend(
        list(handles.values()),
        list(handles),
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=4,
        borderaxespad=0.3,
        handlelength=2.6,
    )
