"""Words of a text with their weights as HTML, for pages and notebooks."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple, Protocol

import numpy as np

# The colour of the report's heat maps (`base.css`), at the greatest weight.
_COLOUR = "214, 84, 24"


class WeightedText(Protocol):
    """A text and the weights of its words; see `explain.TextWeights`."""

    @property
    def text(self) -> str:
        """The text as given."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Begin and end of each word in the text."""

    @property
    def weights(self) -> np.ndarray:
        """(L,) of the first L words; the other words were truncated."""

    @property
    def intensities(self) -> np.ndarray:
        """(L,) from 0 for the least weight to 1 for the greatest."""

    @property
    def unknown(self) -> frozenset[int]:
        """Indices of the words without a vector or token of their own."""


class Piece(NamedTuple):
    """A word of a text on a page."""

    before: str  # the text between it and the previous word
    word: str
    weight: float | None  # None if the word was truncated
    strength: float  # of its background colour, from 0 to 1
    unknown: bool


def weights_html(title: str, texts: Mapping[str, WeightedText]) -> str:
    """Texts by their names, each word on a background as strong as its weight; no scripts."""
    lines = "".join(f"<p><b>{escape(name)}</b> {_heat(text)}</p>" for name, text in texts.items())
    return f"<div><p>{escape(title)}</p>{lines}</div>"


def _heat(text: WeightedText) -> str:
    """The words of a text; a tooltip has the weight of each."""
    return "".join(escape(piece.before) + _word(piece) for piece in pieces(text))


def _word(piece: Piece) -> str:
    if piece.weight is None:
        return f'<span style="opacity: 0.5" title="truncated">{escape(piece.word)}</span>'
    style = f"background: rgba({_COLOUR}, {0.75 * piece.strength:.3f})"
    style += "; text-decoration: underline dotted" if piece.unknown else ""
    return f'<span style="{style}" title="{piece.weight:.4f}">{escape(piece.word)}</span>'


def pieces(text: WeightedText) -> Iterator[Piece]:
    """The words of a text in order, with the text between them."""
    strengths, end = text.intensities, 0
    for place, (begin, stop) in enumerate(text.spans):
        read = place < len(text.weights)
        yield Piece(
            text.text[end:begin],
            text.text[begin:stop],
            float(text.weights[place]) if read else None,
            float(strengths[place]) if read else 0.0,
            place in text.unknown,
        )
        end = stop
