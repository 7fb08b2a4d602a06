"""HTML pages: self-contained files that load nothing.

The templates escape every text; styles and scripts are inline.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from aptool.errors import AptoolError, printable
from aptool.formats.atomic import atomic_file
from aptool.formats.location import PathOrUrl
from aptool.reporting.heatmap import Explanation, TextWeights
from aptool.reporting.markup import latex_table, markdown_table

if TYPE_CHECKING:
    from jinja2 import Environment


class Piece(NamedTuple):
    """A word of a text on a page."""

    before: str  # the text between it and the previous word
    word: str
    weight: float | None  # None if the word was truncated
    strength: float  # of its background colour, from 0 to 1
    unknown: bool


def write_explanation(path: PathOrUrl, explanation: Explanation, name: str, model: str) -> None:
    """Writes the page of an explanation.

    Args:
        path: the HTML file.
        explanation: the explanation.
        name: name of the system.
        model: path of the model folder.

    Raises:
        AptoolError: jinja2 is not installed.
        InputError: the file cannot be written.
    """
    write_page(path, "explain.html", {"explanation": explanation, "name": name, "model": printable(model)})


def write_page(path: PathOrUrl, template: str, values: dict[str, Any]) -> None:
    """Writes a page from a template of this package.

    Raises:
        AptoolError: jinja2 is not installed.
        InputError: the file cannot be written.
    """
    page = environment().get_template(template)
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(page.generate(values))


def environment() -> "Environment":
    """The templates of this package, which escape all values.

    Raises:
        AptoolError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise AptoolError("pages need jinja2: pip install 'aptool[report]'") from error
    loader = PackageLoader("aptool.reporting")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )

    def source(name: str) -> Markup:
        """The source of a style sheet or script of this package."""
        return Markup(loader.get_source(templates, name)[0].rstrip())

    templates.globals.update(
        source=source, pieces=pieces, markdown_table=markdown_table, latex_table=latex_table
    )
    return templates


def pieces(text: TextWeights) -> Iterator[Piece]:
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
