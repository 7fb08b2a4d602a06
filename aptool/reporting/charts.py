"""Charts as SVG that stands in a page: its colours are the page's, by day and by night.

A chart is drawn for 560 units of width, in which the page's letters have their own size.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 560, 300
# Colours that the page defines; more lines than that repeat them, dashed.
COLOURS = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 44
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_BOTTOM = 250, 110, 22


class Line(NamedTuple):
    """A named line: points (x, y) by growing x, each with what is said of it when it is pointed at."""

    name: str
    slot: int  # decides its colour
    points: Sequence[tuple[float, float]]
    titles: Sequence[str]


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str,
    whole_x: bool = False,
) -> Markup:
    """Lines over a grid.

    Args:
        lines: at least one, with at least one point each.
        label: what the chart is, for those who do not see it.
        x_label: below the axis.
        whole_x: ticks of x are whole numbers.
    """
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_ticks, y_ticks = ticks(min(xs), max(xs), 7, whole=whole_x), ticks(min(ys), max(ys), 5)
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1e-9)
    y_low, y_high = y_ticks[0], y_ticks[-1]
    digits = max(0, -math.floor(math.log10(y_ticks[1] - y_ticks[0]) + 1e-9))

    def across(x: float) -> float:
        return _LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return HEIGHT - _BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - _BOTTOM - _TOP)

    parts = [_open("chart", WIDTH, HEIGHT, label)]
    for y in y_ticks:
        parts.append(_tag("line", "grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=down(y), y2=down(y)))
        parts.append(_text(f"{y:.{digits}f}", _LEFT - 8, down(y) + 4, "end"))
    for x in x_ticks:
        if x_low <= x <= x_high:
            parts.append(_text(f"{x:g}", across(x), HEIGHT - _BOTTOM + 18, "middle"))
    parts.append(_text(x_label, WIDTH - _RIGHT, HEIGHT - 4, "end", "name"))
    for line in lines:
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in line.points)
        dots = [
            Markup('<circle cx="{}" cy="{}" r="2.5"><title>{}</title></circle>').format(
                f"{across(x):.1f}", f"{down(y):.1f}", title
            )
            for (x, y), title in zip(line.points, line.titles, strict=True)
        ]
        parts.append(
            Markup('<g class="{}" data-series="{}"><polyline points="{}"/>{}</g>').format(
                series(line.slot), line.name, path, Markup("").join(dots)
            )
        )
    return Markup("\n").join([*parts, Markup("</svg>")])


def histogram(
    edges: Sequence[float], positive: Sequence[float], negative: Sequence[float], label: str
) -> Markup:
    """Two distributions over one axis, the shares of each in its bins.

    Args:
        edges: (bins + 1,) growing.
        positive: (bins,) shares that sum to one.
        negative: (bins,) the same.
        label: what the chart is, for those who do not see it.
    """
    top = max(*positive, *negative) or 1.0
    low, high = edges[0], edges[-1]

    def across(x: float) -> float:
        return 2 + (x - low) / ((high - low) or 1.0) * (_SMALL_WIDTH - 4)

    def outline(shares: Sequence[float]) -> str:
        base = _SMALL_HEIGHT - _SMALL_BOTTOM
        steps = [f"{across(edges[0]):.1f},{base}"]
        for left, right, share in zip(edges, edges[1:], shares, strict=False):
            y = base - share / top * (base - 6)
            steps += [f"{across(left):.1f},{y:.1f}", f"{across(right):.1f},{y:.1f}"]
        return " ".join([*steps, f"{across(edges[-1]):.1f},{base}"])

    base = _SMALL_HEIGHT - _SMALL_BOTTOM
    parts = [
        _open("chart small", _SMALL_WIDTH, _SMALL_HEIGHT, label),
        _tag("polygon", "negative", points=outline(negative)),
        _tag("polygon", "positive", points=outline(positive)),
        _tag("line", "axis", x1=2, x2=_SMALL_WIDTH - 2, y1=base, y2=base),
        _text(_plain(low, high - low), 2, _SMALL_HEIGHT - 6, "start"),
        _text(_plain(high, high - low), _SMALL_WIDTH - 2, _SMALL_HEIGHT - 6, "end"),
    ]
    return Markup("\n").join([*parts, Markup("</svg>")])


def interval_mark(
    interval: tuple[float, float], value: float, scale: tuple[float, float], reference: float
) -> Markup:
    """A dot between the ends of its interval, or an arrow to where it would be.

    Args:
        interval: its ends.
        value: the dot.
        scale: what the left and the right edge stand for, the same for all rows of a table.
        reference: where a thin line stands, such as the baseline's value.
    """
    low, high = scale
    begin, end, dot, line = (
        4 + (min(max(x, low), high) - low) / ((high - low) or 1.0) * 132
        for x in (*interval, value, reference)
    )
    parts = [
        Markup('<svg class="interval" viewBox="0 0 140 20" width="140" height="20" aria-hidden="true">'),
        _tag("line", "reference", x1=line, x2=line, y1=0, y2=20),
    ]
    if low <= value <= high:
        parts.append(_tag("line", "range", x1=begin, x2=end, y1=10, y2=10))
        parts.append(_tag("circle", "value", cx=dot, cy=10, r=3.5))
    else:
        arrow = "1,10 8,6 8,14" if value < low else "139,10 132,6 132,14"
        parts.append(_tag("polygon", "beyond", points=arrow))
    return Markup("").join([*parts, Markup("</svg>")])


def series(slot: int) -> str:
    """The class of a line and of its key."""
    return f"series s{slot % COLOURS}" + (" dashed" if slot >= COLOURS else "")


def ticks(low: float, high: float, about: int, *, whole: bool = False) -> list[float]:
    """Round numbers from ``low`` or below to ``high`` or above, about so many: 1, 2 or 5 times 10^n apart."""
    if high - low < 1e-9:
        low, high = (low, low + 1) if whole else (low - 0.05, high + 0.05)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    step = max(1.0, round(step)) if whole else step
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _plain(value: float, span: float) -> str:
    """A number with the digits that tell apart parts of a span."""
    digits = max(0, 2 - math.floor(math.log10(span))) if span else 2
    return f"{value:.{digits}f}".replace("-", "\u2212")


def _open(kind: str, width: int, height: int, label: str) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        kind, width, height, label
    )


def _tag(name: str, kind: str, **attributes: float | str) -> Markup:
    shown = {
        key: value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        for key, value in attributes.items()
    }
    pairs = Markup("").join(Markup(' {}="{}"').format(key, value) for key, value in shown.items())
    return Markup('<{} class="{}"{}/>').format(name, kind, pairs)


def _text(text: str, x: float, y: float, anchor: str, kind: str = "tick") -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        kind, f"{x:.1f}", f"{y:.1f}", anchor, text
    )
