"""Points of a chart that have names, over a logarithmic axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

# Where a name may stand at its point, in points of 1/72 inch: above or below, to the right or the left.
_PLACES = ((5, 3), (-5, 3), (5, -9), (-5, -9))


def logarithmic(axes: Axes) -> None:
    """Makes the x axis of points logarithmic, with round numbers at its ticks however narrow it is."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_xscale("log")
    axes.margins(x=0.15, y=0.1)  # room for names at the points
    low, high = axes.get_xlim()
    decades = math.log10(high / low)
    ticks = LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)) if decades > 1 else MaxNLocator(5)
    axes.xaxis.set_major_locator(ticks)
    # Those of matplotlib for such an axis are formulas, which are turned off for the names of systems.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def name_points(
    axes: Axes, points: Sequence[tuple[Any, ...]], colour: str, size: float, points_per_pixel: float
) -> None:
    """Writes names at their points, from the highest, each at the first place where no other name stands.

    Args:
        axes: laid out, as what is near is measured on the page.
        points: (name, x, y) each.
        colour: of the names.
        size: of the names, in points, 1/72 inch.
        points_per_pixel: of the figure.
    """
    from matplotlib.transforms import Bbox

    taken: list[Bbox] = []
    for name, x, y in sorted(points, key=lambda point: -point[2]):
        across, up = axes.transData.transform((x, y)) * points_per_pixel
        width = 0.55 * size * len(name)
        boxes = [
            Bbox.from_bounds(across + dx - (width if dx < 0 else 0), up + dy, width, size)
            for dx, dy in _PLACES
        ]
        free = (number for number, box in enumerate(boxes) if not any(map(box.overlaps, taken)))
        place = next(free, 0)
        taken.append(boxes[place])
        axes.annotate(
            name,
            (x, y),
            _PLACES[place],
            textcoords="offset points",
            horizontalalignment="right" if _PLACES[place][0] < 0 else "left",
            fontsize=size,
            color=colour,
        )


def _short(value: float) -> str:
    """1500 as 1.5k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
