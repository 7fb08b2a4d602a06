"""Plots of `reporting.curves` as PNG and SVG, each with its data beside it as CSV.

The background is transparent and text is of a grey that is as far from white as from black, so a plot reads
on a page of either kind. Systems differ in colour (those of Okabe and Ito, told apart by all kinds of colour
vision), in dashes and in markers.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from aptool.errors import AptoolError, UsageError
from aptool.formats.atomic import atomic_file, check_writable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg")

# Okabe and Ito's colours that stand out from white and from black at least three to one; yellow, orange and
# sky blue do not. Further systems repeat them with other dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C770A2")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")
# Text and axes.
GREY = "#767676"
_SIZE = (6.4, 4.0)
_DOTS_PER_INCH = 160
_ID = re.compile(r'\bid="|\bhref="#|url\(#')
# A curve begins where it rests on so many questions; before, one question more or less moves it too far.
_LEAST_QUESTIONS = 20


def plot_accuracy_by_length(data: pl.DataFrame, *, least_questions: int = _LEAST_QUESTIONS) -> Figure:
    """Accuracy over the answers up to a length (figures 3 and 4 of the paper), one line a system.

    Args:
        data: of `curves.accuracy_by_length`.
        least_questions: lengths with fewer questions are not drawn, unless no length has as many.
    """
    enough = data.filter(pl.col("questions") >= least_questions)
    with _figure(rows=1) as (figure, (axes,)):
        _lines(axes, enough if len(enough) else data, "length", "accuracy")
        axes.set_xlabel("words in the right answer, at most")
        axes.set_ylabel("accuracy (P@1)")
        _legend(axes, axes.get_lines())
    return figure


def plot_training(data: pl.DataFrame, *, measure: str | None = None) -> Figure:
    """Loss and a measure on dev by epoch, one line a system; the best epoch on dev is marked.

    Args:
        data: of `curves.training_curves`.
        measure: the column below the loss, such as ``dev_map``; by default the first of dev.
    """
    from matplotlib.ticker import MaxNLocator

    measure = measure or next((name for name in data.columns if name.startswith("dev_")), None)
    with _figure(rows=1 if measure is None else 2) as (figure, panels):
        _lines(panels[0], data, "epoch", "loss")
        panels[0].set_ylabel("mean training loss")
        panels[0].set_ylim(bottom=0)
        if measure is not None:
            _lines(panels[1], data, "epoch", measure)
            panels[1].set_ylabel(f"{measure.removeprefix('dev_')} on dev")
            best = data.group_by("system", maintain_order=True).agg(pl.all().get(pl.col(measure).arg_max()))
            panels[1].scatter(
                best["epoch"], best[measure], s=90, facecolors="none", edgecolors=GREY, zorder=3
            )
        panels[-1].set_xlabel("epoch" if measure is None else "epoch (best on dev circled)")
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(panels[0], panels[0].get_lines())
    return figure


def plot_scores(data: pl.DataFrame) -> Figure:
    """Distributions of the scores of right and of other candidates, one panel a system.

    Args:
        data: of `curves.score_distribution`.
    """
    systems = data["system"].unique(maintain_order=True).to_list()
    with _figure(rows=len(systems), share_x=False) as (figure, panels):
        for system, axes in zip(systems, panels, strict=True):
            own = data.filter(pl.col("system") == system)
            edges = [*own["low"], own["high"][-1]]
            for column, colour, hatch, label in (
                ("negatives", COLOURS[1], "", "other candidates"),
                ("positives", COLOURS[0], "//", "right answers"),
            ):
                axes.stairs(own[column], edges, color=colour, linewidth=1.5)
                axes.stairs(
                    own[column], edges, fill=True, facecolor=f"{colour}40", edgecolor=colour, hatch=hatch,
                    linewidth=0, label=label,
                )  # fmt: skip
            axes.set_ylabel("share of each")
            axes.set_xlabel(f"score of {system}")
        filled = [patch for patch in panels[0].patches if patch.get_fill()]
        _legend(panels[0], filled)
    return figure


def svg(figure: Figure, prefix: str = "") -> str:
    """The figure as an ``<svg>`` element to stand in a page; its text stays text.

    Args:
        figure: a plot.
        prefix: put before every id, so that several plots can stand in one page.
    """
    import matplotlib

    # Ids are made of a salt and the drawing, and the date is left out: equal plots are equal files.
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


def save_plot(figure: Figure, data: pl.DataFrame, path: str | Path) -> list[Path]:
    """Writes a plot and, under the same name, its data as CSV.

    Args:
        figure: the plot.
        data: what it shows.
        path: ``NAME.png`` or ``NAME.svg``, or ``NAME`` for both.

    Returns:
        The files, the data last.

    Raises:
        UsageError: the name has another ending.
        InputError: a file cannot be written.
    """
    pictures, table = plot_files(path)
    for picture in pictures:
        with atomic_file(picture) as temporary:
            if picture.suffix == ".svg":
                temporary.write_text(svg(figure), encoding="utf-8")
            else:
                figure.savefig(temporary, format="png", transparent=True, dpi=_DOTS_PER_INCH)
    with atomic_file(table) as temporary:
        data.write_csv(temporary)
    return [*pictures, table]


def plot_files(path: str | Path) -> tuple[list[Path], Path]:
    """The pictures and the table that `save_plot` writes; finds out whether it can.

    Raises:
        AptoolError: matplotlib is not installed.
        UsageError: the name has an ending other than those of `PICTURES`.
        InputError: a file cannot be written.
    """
    _check_installed()
    given = Path(path)
    if given.suffix in PICTURES:
        pictures, table = [given], given.with_suffix(".csv")
    elif given.suffix:
        raise UsageError(f"{path}: expected a name that ends in one of {', '.join(PICTURES)}, or in none")
    else:
        pictures = [given.with_name(given.name + suffix) for suffix in PICTURES]
        table = given.with_name(given.name + ".csv")
    for file in (*pictures, table):
        check_writable(file)
    return pictures, table


def _check_installed() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise AptoolError("plots need matplotlib: pip install 'aptool[report]'") from error


@contextmanager
def _figure(rows: int, share_x: bool = True) -> Iterator[tuple[Figure, list[Axes]]]:
    """An empty figure of panels below each other, and its style; no window system is touched.

    Raises:
        AptoolError: matplotlib is not installed.
    """
    _check_installed()
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "axes.edgecolor": GREY,
        "axes.labelcolor": GREY,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "font.family": "sans-serif",
        "grid.alpha": 0.25,
        "grid.color": GREY,
        "hatch.linewidth": 0.6,
        "legend.frameon": False,
        "legend.labelcolor": GREY,
        "text.color": GREY,
        # Names of systems are shown as they are, not read as formulas.
        "text.parse_math": False,
        "xtick.color": GREY,
        "ytick.color": GREY,
    }
    with matplotlib.rc_context(style):
        height = _SIZE[1] * (1 if rows == 1 else 0.65 * rows)
        figure = Figure(figsize=(_SIZE[0], height), layout="constrained")
        panels = figure.subplots(rows, 1, sharex=share_x, squeeze=False)
        yield figure, [row[0] for row in panels]
        figure.align_ylabels()


def _lines(axes: Axes, data: pl.DataFrame, x: str, y: str) -> None:
    for number, system in enumerate(data["system"].unique(maintain_order=True)):
        own = data.filter((pl.col("system") == system) & pl.col(y).is_not_null())
        axes.plot(
            own[x],
            own[y],
            label=system,
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            linewidth=1.8,
        )


def _legend(axes: Axes, handles: list[Any]) -> None:
    # Labels are handed over with their handles: matplotlib itself leaves out names like "_this".
    labels = [str(handle.get_label()) for handle in handles]
    axes.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.3, handlelength=2.6
    )
