"""HTML pages: self-contained files that load nothing.

The templates escape every text; styles and scripts are inline.
"""

from typing import TYPE_CHECKING, Any

from aptool.errors import AptoolError, printable
from aptool.formats.atomic import atomic_file
from aptool.formats.location import PathOrUrl
from aptool.models.explain import Explanation
from aptool.models.notebook import pieces
from aptool.reporting.markup import latex_table, markdown_table
from aptool.version import install_command

if TYPE_CHECKING:
    from jinja2 import Environment


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
        raise AptoolError(f"pages need jinja2: {install_command('report')}") from error
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
