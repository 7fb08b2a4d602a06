"""HTML pages: self-contained files that load nothing.

The templates escape every text; styles and scripts are inline.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aptool.errors import AptoolError, printable
from aptool.formats.atomic import atomic_file
from aptool.formats.location import PathOrUrl
from aptool.models.explain import Explanation, pieces
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


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        # After the end of a row a bracket would be an argument.
        "[": "{[}",
        "]": "{]}",
        # Signs that LaTeX has in formulas only.
        "−": "$-$",
        "Δ": r"$\Delta$",
        **{character: f"\\{character}" for character in "{}#$%&_"},
    }
)
# An underscore between letters or digits is no emphasis, nor are most other signs of Markdown within a word.
_MARKDOWN = re.compile(r"[\\`*<>|\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def markdown_table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table.

    Args:
        rows: rows of equal length; the first holds the column titles.
        left: number of leading columns that are aligned left; the others, figures, are aligned right.

    Returns:
        Lines that each end in a line break.
    """
    rule = ["---" if column < left else "---:" for column in range(len(rows[0]))]
    title, *body = [[_MARKDOWN.sub(r"\\\g<0>", _one_line(cell)) for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in [title, rule, *body])


def latex_table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A LaTeX table with the rules of the package booktabs; arguments and lines as in `markdown_table`."""
    columns = "l" * left + "r" * (len(rows[0]) - left)
    title, *body = [" & ".join(_one_line(cell).translate(_LATEX) for cell in row) + r" \\" for row in rows]
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", title, r"\midrule", *body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _one_line(cell: str) -> str:
    """The cell with line breaks and other unprintable characters as spaces."""
    return "".join(character if character.isprintable() else " " for character in cell)
