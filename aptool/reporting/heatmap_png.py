"""A heat map as a PNG image: the words of both texts, with their weights as background colour."""

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import atomic_file
from aptool.formats.location import PathOrUrl
from aptool.reporting.heatmap import Explanation, TextWeights
from aptool.version import install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, HEAT = "#1c1917", "#78716c", "#c2410c"
WEIGHTS = {
    "attention": "attention weight",
    "max_pooling": "share of the features",
    "matches": "share of the matches",
}

# Inches and points.
_WIDTH, _MARGIN, _TEXT, _LABEL = 7.5, 0.3, 11.0, 8.5
_LINE, _GAP, _SPACE = 0.26, 0.16, 0.055
_STRONGEST = 0.75  # opacity of the greatest weight
_DPI = 150
# Characters that no installed font has are drawn as boxes.
_NO_GLYPH = r"Glyph .* missing"
# More words make an image that nothing displays.
_MOST_WORDS = 5_000
# Larger matrices are drawn without words on the axes.
_NAMED_ROWS, _NAMED_COLUMNS = 60, 80


def write_png(path: PathOrUrl, explanation: Explanation, name: str) -> None:
    """Writes the image of an explanation, with its alignment matrix G if it has one.

    Args:
        path: the PNG file.
        explanation: the weights, the score and perhaps G.
        name: name of the system, for the caption.

    Raises:
        AptoolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    words = len(explanation.question.spans) + len(explanation.answer.spans)
    if words > _MOST_WORDS:
        expected = f"at most {_MOST_WORDS:,} in an image; --html has no limit"
        raise InputError(path, problem=f"{words:,} words", expected=expected)
    figure = draw(explanation, name)
    with atomic_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NO_GLYPH)
        figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})


def draw(explanation: Explanation, name: str) -> "Figure":
    """The image as a matplotlib figure.

    Raises:
        AptoolError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AptoolError(f"images need matplotlib: {install_command('report')}") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NO_GLYPH)
        figure = Figure(figsize=(_WIDTH, 1), dpi=_DPI, facecolor="white")
        FigureCanvasAgg(figure)
        measure = _Measure(figure)
        texts = [("question", explanation.question), ("answer", explanation.answer)]
        laid_out = [(label, text, _lines(text, measure)) for label, text in texts]
        height = sum(_GAP + _LINE * (1 + words[-1].line) for _, _, words in laid_out) + 2 * _LINE
        matrix = 0.0 if explanation.alignment is None else _matrix_height(explanation.alignment)
        figure.set_size_inches(_WIDTH, height + matrix)
        axes = figure.add_axes((0, matrix / (height + matrix), 1, height / (height + matrix)))
        axes.set_xlim(0, _WIDTH)
        axes.set_ylim(height, 0)
        axes.axis("off")
        top = 1.2 * _LINE
        caption = f"score {explanation.score:.4f} · {name} · {WEIGHTS[explanation.kind]}"
        _text(axes, _MARGIN, top, caption, _LABEL, FAINT)
        for label, text, words in laid_out:
            top += _LINE + _GAP
            _text(axes, _MARGIN, top, _heading(label, text), _LABEL, FAINT)
            for word in words:
                _word(axes, text, word, top + _LINE * word.line)
            top += _LINE * words[-1].line
        if explanation.alignment is not None:
            _matrix(figure, explanation, explanation.alignment, matrix)
    return figure


class _Measure:
    """Measures the width of a text on a figure, in inches."""

    def __init__(self, figure: "Figure") -> None:
        from matplotlib.font_manager import FontProperties

        self._renderer: Any = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        self._font = FontProperties(size=_TEXT)
        self._dpi = figure.dpi

    def __call__(self, text: str) -> float:
        width, _, _ = self._renderer.get_text_width_height_descent(text, self._font, False)
        return float(width / self._dpi)


class _Placed(NamedTuple):
    """A word in the image: inches from the margin, lines counted from 1."""

    word: int
    begin: float
    end: float
    line: int
    space_before: bool
    space_after: bool


def _lines(text: TextWeights, measure: _Measure) -> list[_Placed]:
    """Lays out every word, wrapping lines at the margin."""
    ends = [0, *(end for _, end in text.spans)]
    begins = [*(begin for begin, _ in text.spans), len(text.text)]
    gaps = [any(map(str.isspace, text.text[end:begin])) for end, begin in zip(ends, begins, strict=True)]
    gaps[0] = gaps[-1] = True
    placed = []
    x, line = 0.0, 1
    for word in range(len(text.spans)):
        width = measure(_shown(text, word))
        x += _SPACE if gaps[word] and x else 0.0
        if x and x + width > _WIDTH - 2 * _MARGIN:
            x, line = 0.0, line + 1
        placed.append(_Placed(word, x, x + width, line, gaps[word], gaps[word + 1]))
        x += width
    return placed


def _word(axes: "Axes", text: TextWeights, placed: _Placed, baseline: float) -> None:
    from matplotlib.patches import Rectangle

    begin, end = _MARGIN + placed.begin, _MARGIN + placed.end
    read = placed.word < len(text.weights)
    if read:
        left = begin - (0.4 * _SPACE if placed.space_before else 0)
        right = end + (0.4 * _SPACE if placed.space_after else 0)
        strength = _STRONGEST * float(text.intensities[placed.word])
        box = Rectangle((left, baseline - 0.17), right - left, 0.23, color=HEAT, alpha=strength, linewidth=0)
        axes.add_patch(box)
    _text(axes, begin, baseline, _shown(text, placed.word), _TEXT, INK if read else FAINT)
    if placed.word in text.unknown:
        dots = (0, (1, 1.5))
        axes.plot([begin, end], [baseline + 0.04] * 2, color=INK, linewidth=0.8, linestyle=dots)


def _shown(text: TextWeights, word: int) -> str:
    begin, end = text.spans[word]
    return " ".join(text.text[begin:end].split()) or "(no word)"


def _text(axes: "Axes", x: float, y: float, text: str, size: float, colour: str) -> None:
    # A $ in a text is a dollar sign, not the beginning of a formula.
    axes.text(x, y, text, fontsize=size, color=colour, va="baseline", parse_math=False)


def _heading(label: str, text: TextWeights) -> str:
    least, greatest = text.weights.min(), text.weights.max()
    truncated = f", {text.truncated} more truncated" if text.truncated else ""
    unknown = ", dotted: not in the vocabulary" if text.unknown else ""
    return f"{label} · {len(text.weights)} words{truncated} · {least:.3f} to {greatest:.3f}{unknown}"


def _matrix_height(alignment: np.ndarray) -> float:
    rows, columns = alignment.shape
    return float(np.clip(0.17 * rows, 0.5, 9.0) + _below(columns) + _GAP)


def _below(columns: int) -> float:
    """Space for the words below the columns."""
    return 1.1 if columns <= _NAMED_COLUMNS else 0.3


def _matrix(figure: "Figure", explanation: Explanation, alignment: np.ndarray, room: float) -> None:
    rows, columns = alignment.shape
    width, height = figure.get_size_inches()
    below = _below(columns)
    box = (1.1 / width, below / height, 1 - 1.3 / width, (room - below - _GAP) / height)
    axes = figure.add_axes(box)
    limit = float(np.abs(alignment).max()) or 1.0
    image = axes.imshow(
        alignment, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    _names(axes, explanation.question, rows, _NAMED_ROWS, vertical=False)
    _names(axes, explanation.answer, columns, _NAMED_COLUMNS, vertical=True)
    axes.tick_params(length=0, labelsize=6.5, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=6.5, length=0, colors=INK)
    bar.ax.set_title("G", fontsize=_LABEL, color=INK)


def _names(axes: "Axes", text: TextWeights, count: int, most: int, *, vertical: bool) -> None:
    axis = axes.xaxis if vertical else axes.yaxis
    if count > most:
        axis.set_ticks([])
        return
    names = [_shown(text, word)[:18] for word in range(count)]
    axis.set_ticks(range(count), labels=names, parse_math=False, rotation=90 if vertical else 0)
