"""Charts of the report, drawn by matplotlib: accuracy by answer length, and training by epoch.

Colours are legible on white and on black and safe for colour-blind readers (Okabe and Ito's palette on a
transparent background); systems also differ in dashes and markers.
"""

from __future__ import annotations

import io
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from aptool.data.runs import Qrels
from aptool.errors import InputError, first_line
from aptool.evaluation.measures import averages, in_groups, mean_intervals
from aptool.evaluation.texts import length_groups
from aptool.reporting.runs import ACCURACY, CollectionResults, SystemResults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from aptool.paths import Location

# Results over fewer questions are not shown: a single question changes them too much.
LEAST_QUESTIONS = 20
_LEAST_SHARE = 0.05  # of all questions, where that is fewer
HISTORY = "training/history.jsonl"

_SIZE = (6.4, 4.0)  # inches
_FONT_SIZE = 10  # points of 1/72 inch
_LEAST_RANGE = 0.05  # of the axis of a measure
TEXT, GRID = "#767676", "#76767640"
# The colours of the palette with a contrast of at least 3:1 to both white and black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C770A2")
DASHES: Sequence[Any] = ("-", (0, (5, 2)), (0, (1, 1.5)))
# Distinct in grey, without colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "<", ">", "h")


class Chart(NamedTuple):
    """A chart in the report."""

    title: str
    note: str
    image: str  # data URL of an SVG file


def draw_charts(results: CollectionResults) -> Iterator[Chart]:
    """Draw the charts of a collection that have data.

    The charts show the trained systems and the baseline. Fusions would hide their lines.
    """
    main = results.measures[0]
    trained = [system for system in results.systems if system.configs]
    shown = sorted(trained or results.systems, key=lambda system: -system.spreads[main].mean)
    if trained:
        baselines = (system for system in results.systems if not system.configs)
        shown += [system for system in baselines if system.name == results.baseline]
    if results.questions.pools is not None:
        groups = length_groups(results.questions.pools, Qrels.load(results.questions.qrels))
        accuracy = accuracy_by_length({system.name: system.per_question for system in shown}, groups)
        if len(accuracy):
            note = "Over the questions whose relevant answer has at most this many words, with 95% intervals."
            yield Chart(
                "P@1 by length of the relevant answer", note, _data_url(plot_accuracy_by_length(accuracy))
            )
    curves = training_curves(trained, main)
    if len(curves):
        yield Chart("Training by epoch", "Means over seeds.", _data_url(plot_training(curves, main)))


def accuracy_by_length(accuracy: Mapping[str, pl.DataFrame], groups: pl.DataFrame) -> pl.DataFrame:
    """Accuracy by the maximum length of the relevant answer (figures 3 and 4 of the paper).

    ``accuracy`` has question_id and `ACCURACY` of each system, and ``groups`` is a table of
    `texts.length_groups`. Returns system, length (the maximum), questions (their number), accuracy, low, high
    (its 95% interval), for the lengths with at least `LEAST_QUESTIONS` or 5% of the questions.
    """
    least = min(LEAST_QUESTIONS, _LEAST_SHARE * groups["question_id"].n_unique())
    lengths = dict(groups.select("group", "position").unique().iter_rows())
    rows = [
        (system, lengths[name], group.height, averages(group)[ACCURACY], *mean_intervals(group)[ACCURACY])
        for system, frame in accuracy.items()
        for name, group in in_groups(frame.select("question_id", ACCURACY), groups).items()
        if group.height >= least
    ]
    numbers = dict.fromkeys(("accuracy", "low", "high"), pl.Float64)
    schema = {"system": pl.String, "length": pl.Int64, "questions": pl.Int64, **numbers}
    return pl.DataFrame(rows, schema=schema, orient="row")


def training_curves(systems: Sequence[SystemResults], measure: str) -> pl.DataFrame:
    """The measure on dev after each epoch, as mean over seeds: system, epoch, the measure."""
    curves = pl.DataFrame(schema={"system": pl.String, "epoch": pl.Int64, measure: pl.Float64})
    histories = [
        read_history(entry.model / HISTORY, measure).select(pl.lit(system.name).alias("system"), pl.all())
        for system in systems
        for entry in system.entries
        if entry.model is not None and (entry.model / HISTORY).is_file()
    ]
    means = pl.concat([curves, *histories]).group_by("system", "epoch", maintain_order=True)
    return means.agg(pl.col(measure).mean()).sort("epoch", maintain_order=True)


def read_history(path: Location, measure: str) -> pl.DataFrame:
    """Read a measure on dev from the history of a training: epoch, the measure.

    There is no row for an epoch without the measure.
    """
    schema: dict[str, Any] = {"epoch": pl.Int64, "dev": pl.Struct({measure: pl.Float64})}
    try:
        frame = pl.read_ndjson(path.read_bytes(), schema=schema)
    except pl.exceptions.PolarsError as error:
        expected = "one JSON object per epoch, with 'epoch' and 'dev'"
        raise InputError(path, problem=first_line(error), expected=expected) from error
    return frame.select("epoch", pl.col("dev").struct.field(measure)).drop_nulls()


def plot_accuracy_by_length(data: pl.DataFrame) -> Figure:
    """Draw a table of `accuracy_by_length`, one line per system; bands are intervals."""
    label = "maximum length of the relevant answer, words"
    figure = _plot_lines(data, ("length", label), ("accuracy", "accuracy (P@1)"))
    if "low" in data.columns:
        (axes,) = figure.axes
        systems = data.partition_by("system", maintain_order=True)
        for line, points in zip(axes.get_lines(), systems, strict=True):
            bounds = points["length"], points["low"], points["high"]
            axes.fill_between(*bounds, color=line.get_color(), alpha=0.15, linewidth=0)
    return figure


def plot_training(data: pl.DataFrame, measure: str) -> Figure:
    """Draw a table of `training_curves`, one line per system, with circles around the best epochs."""
    figure = _plot_lines(data, ("epoch", "epoch (best on dev circled)"), (measure, f"{measure} on dev"))
    best = data.group_by("system", maintain_order=True).agg(pl.all().get(pl.col(measure).arg_max()))
    figure.axes[0].scatter(best["epoch"], best[measure], s=90, facecolors="none", edgecolors=TEXT, zorder=3)
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


def _data_url(figure: Figure) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg(figure).encode()).decode()}"


def _plot_lines(data: pl.DataFrame, x: tuple[str, str], y: tuple[str, str]) -> Figure:
    """Draw one line per system; ``x`` and ``y`` are a column and the label of its axis.

    Further lines repeat the colours with the next dashes.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

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
    (x_column, x_label), (y_column, y_label) = x, y
    with matplotlib.rc_context(style):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        axes.set_axisbelow(True)
        systems = data.partition_by("system", maintain_order=True)
        for number, points in enumerate(systems):
            axes.plot(
                points[x_column],
                points[y_column],
                color=COLOURS[number % len(COLOURS)],
                linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
                marker=MARKERS[number % len(MARKERS)],
                markersize=5,
                gid=f"series-{number}",
            )
        low, high = axes.get_ylim()
        missing = _LEAST_RANGE - (high - low)
        if missing > 0:  # rounding does not fill the height of the picture
            axes.set_ylim(low - missing / 2, high + missing / 2)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        # Labels are passed explicitly: matplotlib leaves out labels that begin with an underscore.
        axes.legend(
            axes.get_lines(),
            [points["system"][0] for points in systems],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=4 if len(systems) <= 4 else 3,  # three columns have room for longer labels
            borderaxespad=0.3,
            handlelength=2.6,
        )
    return figure
