"""A heat map as a picture: the words of both texts on a ground as strong as their weights."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aptool.errors import AptoolError
from aptool.formats.atomic import atomic_file
from aptool.reporting.heatmap import HeatMap, Side

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, HEAT = "#1c1917", "#78716c", "#c2410c"
WEIGHTS = {"attention": "attention weight", "maxima": "share of features won"}

# Inches and points.
_WIDTH, _MARGIN, _TEXT, _LABEL = 7.5, 0.3, 11.0, 8.5
_LINE, _GAP, _SPACE = 0.26, 0.16, 0.055
_STRONGEST = 0.75  # opacity of the greatest weight
_DPI = 150
# A script that no font at hand has is drawn as boxes.
_NO_GLYPH = r"Glyph .* missing"
# A matrix of more words than this is drawn without their names.
_NAMED_ROWS, _NAMED_COLUMNS = 60, 80


def write_png(path: str | Path, found: HeatMap, name: str) -> None:
    """Writes the picture of a heat map, with its matrix G if it holds one.

    Args:
        path: the PNG.
        found: what to draw.
        name: of the system, for the caption.

    Raises:
        AptoolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    figure = draw(found, name)
    with atomic_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NO_GLYPH)
        figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})


def draw(found: HeatMap, name: str) -> "Figure":
    """The picture as a matplotlib figure.

    Raises:
        AptoolError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AptoolError("pictures need matplotlib: pip install 'aptool[report]'") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NO_GLYPH)
        figure = Figure(figsize=(_WIDTH, 1), dpi=_DPI, facecolor="white")
        FigureCanvasAgg(figure)
        measure = _Measure(figure)
        sides = [("question", found.question), ("answer", found.answer)]
        laid = [(label, side, _lines(side, measure)) for label, side in sides]
        texts = sum(_GAP + _LINE * (1 + words[-1].line) for _, _, words in laid) + 2 * _LINE
        matrix = 0.0 if found.alignment is None else _matrix_height(found.alignment)
        figure.set_size_inches(_WIDTH, texts + matrix)
        axes = figure.add_axes((0, matrix / (texts + matrix), 1, texts / (texts + matrix)))
        axes.set_xlim(0, _WIDTH)
        axes.set_ylim(texts, 0)
        axes.axis("off")
        top = 1.2 * _LINE
        caption = f"score {found.score:.4f} · {name} · {WEIGHTS[found.kind]}"
        _text(axes, _MARGIN, top, caption, _LABEL, FAINT)
        for label, side, words in laid:
            top += _LINE + _GAP
            _text(axes, _MARGIN, top, _heading(label, side), _LABEL, FAINT)
            for word in words:
                _word(axes, side, word, top + _LINE * word.line)
            top += _LINE * words[-1].line
        if found.alignment is not None:
            _matrix(figure, found, found.alignment, matrix)
    return figure


class _Measure:
    """How wide a text is on this figure, in inches."""

    def __init__(self, figure: "Figure") -> None:
        from matplotlib.font_manager import FontProperties

        self._renderer: Any = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        self._font = FontProperties(size=_TEXT)
        self._dpi = figure.dpi

    def __call__(self, text: str) -> float:
        width, _, _ = self._renderer.get_text_width_height_descent(text, self._font, False)
        return float(width / self._dpi)


class _Placed(NamedTuple):
    """A word on the page: inches from the margin, lines counted from 1."""

    word: int
    begin: float
    end: float
    line: int
    space_before: bool
    space_after: bool


def _lines(side: Side, measure: _Measure) -> list[_Placed]:
    """Every word, wrapped at the margin."""
    ends = [0, *(end for _, end in side.spans)]
    begins = [*(begin for begin, _ in side.spans), len(side.text)]
    gaps = [any(map(str.isspace, side.text[end:begin])) for end, begin in zip(ends, begins, strict=True)]
    gaps[0] = gaps[-1] = True
    placed = []
    x, line = 0.0, 1
    for word in range(len(side.spans)):
        width = measure(_shown(side, word))
        x += _SPACE if gaps[word] and x else 0.0
        if x and x + width > _WIDTH - 2 * _MARGIN:
            x, line = 0.0, line + 1
        placed.append(_Placed(word, x, x + width, line, gaps[word], gaps[word + 1]))
        x += width
    return placed


def _word(axes: "Axes", side: Side, placed: _Placed, baseline: float) -> None:
    from matplotlib.patches import Rectangle

    begin, end = _MARGIN + placed.begin, _MARGIN + placed.end
    read = placed.word < len(side.weights)
    if read:
        left = begin - (0.4 * _SPACE if placed.space_before else 0)
        right = end + (0.4 * _SPACE if placed.space_after else 0)
        strength = _STRONGEST * float(side.intensities[placed.word])
        box = Rectangle((left, baseline - 0.17), right - left, 0.23, color=HEAT, alpha=strength, linewidth=0)
        axes.add_patch(box)
    _text(axes, begin, baseline, _shown(side, placed.word), _TEXT, INK if read else FAINT)
    if placed.word in side.unknown:
        dots = (0, (1, 1.5))
        axes.plot([begin, end], [baseline + 0.04] * 2, color=INK, linewidth=0.8, linestyle=dots)


def _shown(side: Side, word: int) -> str:
    begin, end = side.spans[word]
    return " ".join(side.text[begin:end].split()) or "(no word)"


def _text(axes: "Axes", x: float, y: float, text: str, size: float, colour: str) -> None:
    # A $ in a text is a dollar and not the begin of a formula.
    axes.text(x, y, text, fontsize=size, color=colour, va="baseline", parse_math=False)


def _heading(label: str, side: Side) -> str:
    least, greatest = side.weights.min(), side.weights.max()
    cut = f", {side.cut} more not read" if side.cut else ""
    unknown = ", dotted: not in the vocabulary" if side.unknown else ""
    return f"{label} · {len(side.weights)} words{cut} · {least:.3f} to {greatest:.3f}{unknown}"


def _matrix_height(alignment: np.ndarray) -> float:
    rows, columns = alignment.shape
    return float(np.clip(0.17 * rows, 0.5, 9.0) + _below(columns) + _GAP)


def _below(columns: int) -> float:
    """Room for the names of the columns."""
    return 1.1 if columns <= _NAMED_COLUMNS else 0.3


def _matrix(figure: "Figure", found: HeatMap, alignment: np.ndarray, room: float) -> None:
    rows, columns = alignment.shape
    width, height = figure.get_size_inches()
    below = _below(columns)
    box = (1.1 / width, below / height, 1 - 1.3 / width, (room - below - _GAP) / height)
    axes = figure.add_axes(box)
    limit = float(np.abs(alignment).max()) or 1.0
    image = axes.imshow(
        alignment, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    _names(axes, found.question, rows, _NAMED_ROWS, vertical=False)
    _names(axes, found.answer, columns, _NAMED_COLUMNS, vertical=True)
    axes.tick_params(length=0, labelsize=6.5, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=6.5, length=0, colors=INK)
    bar.ax.set_title("G", fontsize=_LABEL, color=INK)


def _names(axes: "Axes", side: Side, count: int, most: int, *, vertical: bool) -> None:
    axis = axes.xaxis if vertical else axes.yaxis
    if count > most:
        axis.set_ticks([])
        return
    names = [_shown(side, word)[:18] for word in range(count)]
    axis.set_ticks(range(count), labels=names, parse_math=False, rotation=90 if vertical else 0)
