"""Charts of the tables of `reporting.curves`, as matplotlib figures for files and for the report.

A theme gives the colours. The theme for files has a transparent background and colours that are legible on
white and on black: Okabe and Ito's palette, which is safe for colour-blind readers. Systems also differ in
dashes and markers.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from aptool.errors import AptoolError
from aptool.reporting.points import logarithmic, name_points
from aptool.version import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Curves over fewer questions than this are not drawn: a single question changes them too much.
LEAST_QUESTIONS = 20


class Theme(NamedTuple):
    """Colours and sizes of a figure.

    Attributes:
        text: colour of text and axes.
        grid: colour of the grid lines.
        relevant: colour of the scores of relevant answers.
        other: colour of the scores of other candidates.
        colours: colours of lines; further lines repeat them with the next dashes.
        dashes: matplotlib line styles.
        markers: matplotlib markers, repeated.
        font_size: in points, 1/72 inch.
        line_width: in points.
    """

    text: str
    grid: str
    relevant: str
    other: str
    colours: Sequence[str]
    dashes: Sequence[Any]
    markers: Sequence[str]
    font_size: float
    line_width: float


class LineStyle(NamedTuple):
    """How the line of a system is drawn."""

    colour: str
    dashes: Any
    marker: str


FILE_THEME = Theme(
    text="#767676",
    grid="#76767640",
    relevant="#0072B2",
    other="#D55E00",
    # Okabe and Ito's colours with a contrast of at least 3:1 to white and to black; yellow, orange and sky
    # blue have less.
    colours=("#0072B2", "#D55E00", "#009E73", "#C770A2"),
    dashes=("-", (0, (5, 2)), (0, (1, 1.5))),
    markers=("o", "s", "^", "D", "v", "P"),
    font_size=10,
    line_width=1.8,
)
_FILE_SIZE = (6.4, 4.0)  # inches


def line_style(theme: Theme, number: int) -> LineStyle:
    """The style of the line with a number, from 0: all combinations of colours and dashes in turn."""
    return LineStyle(
        theme.colours[number % len(theme.colours)],
        theme.dashes[number // len(theme.colours) % len(theme.dashes)],
        theme.markers[number % len(theme.markers)],
    )


def plot_accuracy_by_length(data: pl.DataFrame, *, least_questions: int = LEAST_QUESTIONS) -> Figure:
    """Accuracy over the questions with answers up to a length (figures 3 and 4), one line per system.

    Args:
        data: table of `curves.accuracy_by_length`.
        least_questions: lengths with fewer questions are not drawn, unless no length has as many.
    """
    enough = data.filter(pl.col("questions") >= least_questions)
    with _figure(FILE_THEME, _FILE_SIZE) as (figure, (axes,)):
        _lines(axes, enough if len(enough) else data, "length", "accuracy", _styles(data))
        axes.set_xlabel("maximum length of the relevant answer, words")
        axes.set_ylabel("accuracy (P@1)")
        _legend(axes, _named_lines(axes))
    return figure


def plot_training(data: pl.DataFrame, *, measure: str | None = None) -> Figure:
    """Loss and a dev measure by epoch, one line per system; the best epoch on dev is marked.

    Args:
        data: table of `curves.training_curves`.
        measure: the column shown below the loss, such as ``dev_MAP``; by default the first dev measure.
    """
    measure = measure or next((name for name in data.columns if name.startswith("dev_")), None)
    rows, styles = 1 if measure is None else 2, _styles(data)
    height = _FILE_SIZE[1] * (1 if rows == 1 else 0.65 * rows)
    with _figure(FILE_THEME, (_FILE_SIZE[0], height), rows=rows) as (figure, panels):
        _lines(panels[0], data, "epoch", "loss", styles)
        panels[0].set_ylabel("mean training loss")
        panels[0].set_ylim(bottom=0)
        if measure is not None:
            _lines(panels[1], data, "epoch", measure, styles)
            panels[1].set_ylabel(f"{measure.removeprefix('dev_')} on dev")
            best = data.group_by("system", maintain_order=True).agg(pl.all().get(pl.col(measure).arg_max()))
            panels[1].scatter(
                best["epoch"], best[measure], s=90, facecolors="none", edgecolors=FILE_THEME.text, zorder=3
            )
        panels[-1].set_xlabel("epoch" if measure is None else "epoch (best on dev circled)")
        _whole_numbers(panels[-1])
        _legend(panels[0], _named_lines(panels[0]))
    return figure


def plot_costs(data: pl.DataFrame, measure: str, titles: Mapping[str, str]) -> Figure:
    """Accuracy against what it costs, one panel for each cost, a named point for each system.

    Args:
        data: rows of `costs.cost_table` of one collection.
        measure: its column.
        titles: what each column of costs is called.
    """
    drawn = [name for name in titles if data[name].is_not_null().any()]
    height = _FILE_SIZE[1] * (1 if len(drawn) == 1 else 0.85 * len(drawn))
    styles = {
        system: LineStyle(
            FILE_THEME.colours[number % len(FILE_THEME.colours)],
            "",
            FILE_THEME.markers[number // len(FILE_THEME.colours) % len(FILE_THEME.markers)],
        )
        for number, system in enumerate(data["system"])
    }
    size = (_FILE_SIZE[0] * 1.2, height)
    with _figure(FILE_THEME, size, rows=len(drawn), share_x=False) as (figure, panels):
        for name, axes in zip(drawn, panels, strict=True):
            _lines(axes, data, name, measure, styles)
            logarithmic(axes)
            axes.set_xlabel(titles[name])
            axes.set_ylabel(measure)
        figure.draw_without_rendering()  # lays the panels out: only then is it known which names would meet
        for name, axes in zip(drawn, panels, strict=True):
            points = data.drop_nulls(name).select("system", name, measure).rows()
            name_points(axes, points, FILE_THEME.text, FILE_THEME.font_size - 2, 72 / figure.dpi)
    return figure


def plot_scores(data: pl.DataFrame) -> Figure:
    """Distributions of the scores of relevant answers and of other candidates, one panel per system.

    Args:
        data: table of `curves.score_distribution`.
    """
    systems = data["system"].unique(maintain_order=True).to_list()
    rows = len(systems)
    height = _FILE_SIZE[1] * (1 if rows == 1 else 0.65 * rows)
    with _figure(FILE_THEME, (_FILE_SIZE[0], height), rows=rows, share_x=False) as (figure, panels):
        for system, axes in zip(systems, panels, strict=True):
            named = _histograms(axes, data.filter(pl.col("system") == system), FILE_THEME)
            axes.set_ylabel("share of candidates")
            axes.set_xlabel(f"score of {system}")
        _legend(panels[0], named)  # that of the last panel: all are drawn alike
    return figure


def line_chart(
    data: pl.DataFrame,
    x: str,
    y: str,
    styles: Mapping[str, LineStyle],
    *,
    theme: Theme,
    size: tuple[float, float],
    x_label: str,
    log: bool = False,
) -> Figure:
    """Lines over whole numbers, one per system, without a legend.

    The artists have the group ids ``series-0``, ``series-1``, ... in the order of ``styles``.

    Args:
        data: system (str), and the columns ``x`` and ``y``.
        x: column of the x axis.
        y: column of the y axis.
        styles: style of each system's line.
        theme: colours and sizes.
        size: width and height, inches.
        x_label: label of the x axis.
        log: whether the x axis is logarithmic, for any positive numbers.
    """
    with _figure(theme, size) as (figure, (axes,)):
        _lines(axes, data, x, y, styles)
        axes.set_xlabel(x_label, loc="right")
        if log:
            logarithmic(axes)
        else:
            _whole_numbers(axes)
    return figure


def histogram_chart(data: pl.DataFrame, *, theme: Theme, size: tuple[float, float]) -> Figure:
    """Distributions of the scores of one system, with ticks at the ends of the score axis alone.

    Args:
        data: rows of `curves.score_distribution` of one system.
        theme: colours and sizes.
        size: width and height, inches.
    """
    with _figure(theme, size) as (figure, (axes,)):
        _histograms(axes, data, theme)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        low, high = data["low"].item(0), data["high"].item(-1)
        axes.set_xlim(low, high)
        axes.set_xticks([low, high], [f"{low:.3g}", f"{high:.3g}"])
        first, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
    return figure


def check_installed() -> None:
    """Raises an `AptoolError` unless matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise AptoolError(f"charts need matplotlib: {install_command('report')}") from error


@contextmanager
def _figure(
    theme: Theme, size: tuple[float, float], *, rows: int = 1, share_x: bool = True
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with panels below each other, in the style of a theme; no window system is used.

    Raises:
        AptoolError: matplotlib is not installed.
    """
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
        # A marker is drawn for every point of a line, however many there are.
        "path.simplify": False,
        "text.color": theme.text,
        # Names of systems are shown as they are, not as formulas.
        "text.parse_math": False,
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


def _styles(data: pl.DataFrame) -> dict[str, LineStyle]:
    systems = data["system"].unique(maintain_order=True)
    return {system: line_style(FILE_THEME, number) for number, system in enumerate(systems)}


def _lines(axes: Axes, data: pl.DataFrame, x: str, y: str, styles: Mapping[str, LineStyle]) -> None:
    for number, (system, style) in enumerate(styles.items()):
        own = data.filter((pl.col("system") == system) & pl.col(y).is_not_null())
        axes.plot(
            own[x],
            own[y],
            label=system,
            color=style.colour,
            linestyle=style.dashes,
            marker=style.marker,
            markersize=4,
            gid=f"series-{number}",
        )


def _histograms(axes: Axes, data: pl.DataFrame, theme: Theme) -> dict[str, Any]:
    """Outlines of both distributions, the relevant answers hatched; returns what a legend shows, by name."""
    named = {}
    edges = [*data["low"], data["high"].item(-1)]
    for column, colour, hatch, label in (
        ("others", theme.other, "", "other candidates"),
        ("relevant", theme.relevant, "//", "relevant answers"),
    ):
        axes.stairs(data[column], edges, color=colour, linewidth=1.5)
        parts = [axes.stairs(data[column], edges, fill=True, color=f"{colour}40", linewidth=0)]
        if hatch:
            # Lines by themselves: in an SVG the pattern of a filled patch has no transparency.
            lines = axes.stairs(data[column], edges, fill=True, edgecolor=colour, hatch=hatch, linewidth=0)
            lines.set_facecolor("none")
            parts.append(lines)
        named[label] = tuple(parts)
    return named


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _named_lines(axes: Axes) -> dict[str, Any]:
    return {str(line.get_label()): line for line in axes.get_lines()}


def _legend(axes: Axes, named: Mapping[str, Any]) -> None:
    # Labels are passed explicitly: matplotlib leaves out labels that begin with an underscore.
    handles, labels = list(named.values()), list(named)
    axes.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.3, handlelength=2.6
    )
