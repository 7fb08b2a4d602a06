"""Pages: one self-contained file each, which loads nothing and says nothing to anyone.

Every text is escaped by the templates; styles and scripts stand in the page.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aptool.errors import AptoolError
from aptool.formats.atomic import atomic_file
from aptool.reporting.heatmap import HeatMap, Side

if TYPE_CHECKING:
    from jinja2 import Environment


class Piece(NamedTuple):
    """A word of a text on a page."""

    before: str  # what stands between it and the word before
    word: str
    weight: float | None  # None where the word was cut
    strength: float  # of its ground, from 0 to 1
    unknown: bool


def write_explanation(path: str | Path, found: HeatMap, name: str, model: str) -> None:
    """Writes the page of one heat map.

    Args:
        path: the HTML file.
        found: what to show.
        name: of the system.
        model: where it is.

    Raises:
        AptoolError: jinja2 is not installed.
        InputError: the file cannot be written.
    """
    write_page(path, "explain.html", {"found": found, "name": name, "model": model})


def write_page(path: str | Path, template: str, values: dict[str, Any]) -> None:
    """Writes a page from a template of this package.

    Raises:
        AptoolError: jinja2 is not installed.
        InputError: the file cannot be written.
    """
    page = environment().get_template(template)
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(page.generate(values))


def environment() -> "Environment":
    """The templates of this package, escaping everything that is put into them.

    Raises:
        AptoolError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise AptoolError("pages need jinja2: pip install 'aptool[report]'") from error
    loader = PackageLoader("aptool.reporting")
    found = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )

    def source(name: str) -> Markup:
        """A style sheet or a script of this package, as it is."""
        return Markup(loader.get_source(found, name)[0].rstrip())

    found.globals.update(source=source, pieces=pieces)
    return found


def pieces(side: Side) -> Iterator[Piece]:
    """The words of a text in their order, with what stands between them."""
    strengths, end = side.intensities, 0
    for place, (begin, stop) in enumerate(side.spans):
        read = place < len(side.weights)
        yield Piece(
            side.text[end:begin],
            side.text[begin:stop],
            float(side.weights[place]) if read else None,
            float(strengths[place]) if read else 0.0,
            place in side.unknown,
        )
        end = stop
