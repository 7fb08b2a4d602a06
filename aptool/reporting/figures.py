"""Output of matplotlib figures: PNG and SVG files with their data, SVG elements for a page, and heat maps."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from aptool.errors import InputError, UsageError, counted, printable
from aptool.formats.atomic import atomic_file, check_writable
from aptool.formats.location import Location, PathOrUrl, location
from aptool.models.explain import Piece, pieces
from aptool.reporting.plots import check_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from aptool.models.explain import Explanation, TextWeights

SUFFIXES = (".png", ".svg")
_DOTS_PER_INCH = 160
_ID = re.compile(r'\bid="|\bhref="#|url\(#')

# Heat maps: colours, characters per line, and inches. The font is monospaced and comes with matplotlib.
_INK, _FAINT, _HEAT, _STRONGEST = "#1c1917", "#78716c", "#c2410c", 0.75
_FONT: dict[str, Any] = {"family": "DejaVu Sans Mono", "fontsize": 10, "va": "baseline", "parse_math": False}
_COLUMNS, _WIDTH, _LINE, _CELL = 86, 7.5, 0.26, 0.17
_MOST_WORDS = 5_000  # larger images are not displayed by most programs
_MOST_NAMES = 80  # words on an axis of the alignment matrix


class Series(NamedTuple):
    """A line of a chart in a page.

    Attributes:
        name: name of the system.
        classes: CSS classes of the line.
        titles: tooltip of each point.
    """

    name: str
    classes: str
    titles: Sequence[str]


def svg(figure: Figure, prefix: str = "") -> str:
    """The figure as an ``<svg>`` element with its text as text; equal figures give equal strings.

    Args:
        figure: a figure.
        prefix: put before every id, so that several figures can be in one page.
    """
    import matplotlib

    # Ids are hashes of a salt and the drawing, and there is no date: equal figures give equal files.
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


def inline_svg(
    figure: Figure,
    prefix: str,
    *,
    classes: str,
    label: str,
    variables: Mapping[str, str],
    series: Sequence[Series] = (),
) -> str:
    """The figure as an ``<svg>`` element of an HTML page, which follows the page's size and colours.

    All text is escaped by the XML writers of matplotlib and of this function.

    Args:
        figure: a figure.
        prefix: put before every id.
        classes: CSS classes of the element.
        label: description of the figure for screen readers.
        variables: CSS variables by the colours of the figure (``#rrggbb``, lower case) that they replace.
        series: of the lines with the group ids ``series-0``, ``series-1``, ...; each line's group gets the
            classes, the name as ``data-series``, and a tooltip at every point.
    """
    root = ElementTree.fromstring(svg(figure, prefix))
    for parent in root.iter():
        parent.tag = _local(parent.tag)
        for name in [name for name in parent.attrib if name.startswith("{")]:
            parent.set(_local(name), parent.attrib.pop(name))
        if "style" in parent.attrib:
            parent.set("style", _with_variables(parent.attrib["style"], variables))
        # matplotlib's style sheet would apply to the whole page.
        for child in [child for child in parent if _local(child.tag) in ("style", "metadata")]:
            parent.remove(child)
    root.attrib = {"viewBox": root.attrib["viewBox"], "class": classes, "role": "img", "aria-label": label}
    groups = {element.get("id"): element for element in root.iter("g")}
    for number, one in enumerate(series):
        group = groups[f"{prefix}series-{number}"]
        group.set("class", one.classes)
        group.set("data-series", one.name)
        for point, title in zip(group.iter("use"), one.titles, strict=True):
            ElementTree.SubElement(point, "title").text = title
    return ElementTree.tostring(root, encoding="unicode")


def save_plot(figure: Figure, data: pl.DataFrame, path: PathOrUrl) -> list[Location]:
    """Writes a figure and, under the same name, its data as CSV.

    Args:
        figure: the figure.
        data: the data shown.
        path: ``NAME.png`` or ``NAME.svg``, or ``NAME`` for both.

    Returns:
        The files, the data last.

    Raises:
        UsageError: the name has another suffix.
        InputError: a file cannot be written, or the name of the table is that of a table with other columns.
    """
    pictures, table = plot_files(path)
    _check_same_table(table, data.columns)
    for picture in pictures:
        with atomic_file(picture) as temporary:
            if picture.suffix == ".svg":
                temporary.write_text(svg(figure), encoding="utf-8")
            else:
                figure.savefig(temporary, format="png", transparent=True, dpi=_DOTS_PER_INCH)
    with atomic_file(table) as temporary:
        data.write_csv(temporary)
    return [*pictures, table]


def plot_files(path: PathOrUrl) -> tuple[list[Location], Location]:
    """The images and the table that `save_plot` writes; checks that they can be written.

    Raises:
        AptoolError: matplotlib is not installed.
        UsageError: the name has a suffix other than `SUFFIXES`.
        InputError: a file cannot be written.
    """
    check_installed()
    given = location(path)
    if given.name in ("", ".."):
        raise UsageError(f"{str(path)!r}: expected the name of a file")
    if given.suffix in SUFFIXES:
        pictures, table = [given], given.with_suffix(".csv")
    elif given.suffix:
        raise UsageError(f"{path}: expected a name ending in one of {', '.join(SUFFIXES)}, or no suffix")
    else:
        pictures = [given.with_name(given.name + suffix) for suffix in SUFFIXES]
        table = given.with_name(given.name + ".csv")
    for file in (*pictures, table):
        check_writable(file)
    return pictures, table


def save_explanation(path: PathOrUrl, explanation: Explanation, name: str) -> None:
    """Writes the heat map of an explanation as a PNG image.

    Args:
        path: the PNG file.
        explanation: weights, score and optionally the alignment matrix.
        name: name of the system, for the caption.

    Raises:
        AptoolError: matplotlib is not installed.
        InputError: the texts have too many words, or the file cannot be written.
    """
    words = len(explanation.question.spans) + len(explanation.answer.spans)
    if words > _MOST_WORDS:
        expected = f"at most {_MOST_WORDS:,} in an image; --html has no limit"
        raise InputError(path, problem=f"{words:,} words", expected=expected)
    figure = plot_explanation(explanation, name)
    with atomic_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # such characters are drawn as boxes
        figure.savefig(temporary, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})


def plot_explanation(explanation: Explanation, name: str) -> Figure:
    """Both texts, each word on a background as strong as its weight; below, the alignment matrix if any."""
    check_installed()
    from matplotlib.figure import Figure

    texts = {"question": explanation.question, "answer": explanation.answer}
    words = {label: list(_positions(text)) for label, text in texts.items()}
    lines = 2 + sum(3 + of_text[-1].line for of_text in words.values())
    heights = [_LINE * lines]
    if explanation.alignment is not None:
        heights.append(min(1.6 + _CELL * len(explanation.alignment), 10))
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained", facecolor="white")
    panels = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    axes = panels[0].add_axes((0.02, 0, 0.96, 1))
    axes.set(xlim=(0, _COLUMNS), ylim=(lines, 0))
    axes.axis("off")
    caption = f"{name}, score {explanation.score:.4f}, {explanation.weights_name}"
    axes.text(0, 1, caption, color=_FAINT, **_FONT)
    top = 2.5
    for label, text in texts.items():
        axes.text(0, top, f"{label}: {_extent(text)}", color=_FAINT, **_FONT)
        for word in words[label]:
            _draw_word(axes, word, top + 1 + word.line)
        top += 2.5 + words[label][-1].line
    if explanation.alignment is not None:
        _draw_matrix(panels[1], explanation, explanation.alignment)
    return figure


class _Position(NamedTuple):
    """A word in a heat map, by lines and characters."""

    line: int
    column: int
    word: str
    piece: Piece


def _positions(text: TextWeights) -> Iterator[_Position]:
    """The words of a text; lines wrap after `_COLUMNS` characters."""
    line = column = 0
    for piece in pieces(text):
        word = printable(" ".join(piece.word.split())) or "(no word)"
        word = word if len(word) <= _COLUMNS else f"{word[: _COLUMNS - 1]}…"
        column += bool(column) and any(map(str.isspace, piece.before))
        if column + len(word) > _COLUMNS:
            line, column = line + 1, 0
        yield _Position(line, column, word, piece)
        column += len(word)


def _draw_word(axes: Axes, position: _Position, height: float) -> None:
    _, column, word, piece = position
    box = {"facecolor": _HEAT, "alpha": _STRONGEST * piece.strength, "linewidth": 0, "pad": 0.5}
    colour = _FAINT if piece.weight is None else _INK
    axes.text(column, height, word, color=colour, bbox=box, **_FONT)
    if piece.unknown:
        ends, below = (column, column + len(word)), (height + 0.15, height + 0.15)
        axes.plot(ends, below, color=_INK, linewidth=0.8, linestyle=":")


def _extent(text: TextWeights) -> str:
    """Number of words and range of the weights."""
    truncated = f", {text.truncated} more truncated" if text.truncated else ""
    unknown = ", dotted: not in the vocabulary" if text.unknown else ""
    least, greatest = text.weights.min(), text.weights.max()
    return f"{counted(len(text.weights), 'word')}{truncated}, {least:.3f} to {greatest:.3f}{unknown}"


def _draw_matrix(panel: SubFigure, explanation: Explanation, matrix: np.ndarray) -> None:
    axes = panel.subplots()
    limit = float(abs(matrix).max()) or 1.0
    image = axes.imshow(
        matrix, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    for axis, text, turn in ((axes.yaxis, explanation.question, 0), (axes.xaxis, explanation.answer, 90)):
        words = [printable(word)[:18] for word in text.words[: len(text.weights)]]
        words = words if len(words) <= _MOST_NAMES else []
        axis.set_ticks(range(len(words)), labels=words, parse_math=False, rotation=turn)
    axes.tick_params(length=0, labelsize=6.5)
    panel.colorbar(image, ax=axes).ax.tick_params(length=0, labelsize=6.5)


def _check_same_table(path: Location, columns: list[str]) -> None:
    """Checks that a table is not another one, of which nobody said that it is to be replaced."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        header = file.readline().decode(errors="replace").strip()
    if header != ",".join(columns):
        expected = f"no file, or an earlier table of this plot: {','.join(columns)}"
        raise InputError(path, place="line 1", value=header, expected=expected)


def _local(name: str) -> str:
    """A name without its namespace, as in HTML."""
    return name.rpartition("}")[2]


def _with_variables(style: str, variables: Mapping[str, str]) -> str:
    for colour, variable in variables.items():
        style = style.replace(colour, f"var({variable})")
    return style
