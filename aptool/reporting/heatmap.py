"""Heat maps of an explanation: every word of both texts on a colour as strong as its weight."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from aptool.errors import InputError, counted, printable
from aptool.formats.atomic import output_file
from aptool.formats.outputs import Kind
from aptool.models.explain import Piece, pieces
from aptool.reporting.html import write_page
from aptool.reporting.plots import check_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from aptool.formats.location import PathOrUrl
    from aptool.models.explain import Explanation, TextWeights

_INK, _FAINT, _HEAT, _STRONGEST = "#1c1917", "#78716c", "#c2410c", 0.75
# A monospaced font that comes with matplotlib.
_FONT: dict[str, Any] = {"family": "DejaVu Sans Mono", "fontsize": 10, "va": "baseline", "parse_math": False}
_COLUMNS = 86  # characters per line
_WIDTH, _LINE, _CELL = 7.5, 0.26, 0.17  # inches
_DOTS_PER_INCH = 160
_MOST_WORDS = 5_000  # most programs do not display larger images
_MOST_LABELS = 80  # words on an axis of the alignment matrix


def write_explanation(path: PathOrUrl, explanation: Explanation, name: str, model: str) -> None:
    """Write the heat map of an explanation as an HTML page; ``name`` is that of the system."""
    values = {"explanation": explanation, "name": name, "model": printable(model), "pieces": pieces}
    write_page(path, Kind.HEAT_MAP, "explain.html", values)


def save_explanation(path: PathOrUrl, explanation: Explanation, name: str) -> None:
    """Write the heat map of an explanation as a PNG image with the system's name as caption."""
    words = len(explanation.question.spans) + len(explanation.answer.spans)
    if words > _MOST_WORDS:
        expected = f"at most {_MOST_WORDS:,} in an image; --html has no limit"
        raise InputError(path, problem=f"{words:,} words", expected=expected)
    figure = plot_explanation(explanation, name)
    with output_file(path, Kind.HEAT_MAP) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # such characters are drawn as boxes
        figure.savefig(temporary, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})


def plot_explanation(explanation: Explanation, name: str) -> Figure:
    """Draw both texts and, if there is one, the alignment matrix below them."""
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
        axes.text(0, top, f"{label}: {_summary(text)}", color=_FAINT, **_FONT)
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


def _summary(text: TextWeights) -> str:
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
        words = words if len(words) <= _MOST_LABELS else []
        axis.set_ticks(range(len(words)), labels=words, parse_math=False, rotation=turn)
    axes.tick_params(length=0, labelsize=6.5)
    panel.colorbar(image, ax=axes).ax.tick_params(length=0, labelsize=6.5)
