"""Tables of text as Markdown and as LaTeX, for papers and pages."""

import re
from collections.abc import Sequence

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
