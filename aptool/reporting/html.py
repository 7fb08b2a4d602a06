"""Self-contained HTML pages from templates that escape every text, and tables in Markdown and LaTeX."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aptool.environment import require
from aptool.outputs import output_file
from aptool.paths import PathOrUrl

if TYPE_CHECKING:
    from jinja2 import Environment

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        # At the start of a row, LaTeX reads a bracket as an argument of the line break.
        "[": "{[}",
        "]": "{]}",
        # Characters that LaTeX has only in formulas.
        "−": "$-$",
        "Δ": r"$\Delta$",
        **{character: f"\\{character}" for character in "{}#$%&_"},
    }
)
# Characters that Markdown interprets; an underscore between letters or digits is not emphasis.
_MARKDOWN = re.compile(r"[\\`*<>|\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def write_page(path: PathOrUrl, template: str, values: dict[str, Any]) -> None:
    """Render a template of this package into a file."""
    page = environment().get_template(template)
    with output_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(page.generate(values))


def environment() -> "Environment":
    """The templates of this package; raise an `AptoolError` unless jinja2 is installed."""
    require("jinja2", purpose="a page", extra="report")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("aptool.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def markdown_table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Format rows of equal length, column titles first, as a Markdown table.

    ``left`` leading columns are aligned left, the others right.
    """
    rule = ["---" if column < left else "---:" for column in range(len(rows[0]))]
    title, *body = [[_MARKDOWN.sub(r"\\\g<0>", _one_line(cell)) for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in [title, rule, *body])


def latex_table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows, column titles first, as a LaTeX table with the rules of booktabs."""
    columns = "l" + "r" * (len(rows[0]) - 1)
    title, *body = [" & ".join(_one_line(cell).translate(_LATEX) for cell in row) + r" \\" for row in rows]
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", title, r"\midrule", *body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _one_line(cell: str) -> str:
    """Replace line breaks and other unprintable characters by spaces."""
    return "".join(character if character.isprintable() else " " for character in cell)
