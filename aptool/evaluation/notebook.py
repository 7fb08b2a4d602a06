"""HTML tables for notebooks: small, escaped, without scripts."""

from collections.abc import Sequence
from html import escape


def html_table(rows: Sequence[Sequence[str]], caption: str, left: int = 1) -> str:
    """A table with its caption.

    Args:
        rows: rows of equal length; the first holds the column titles.
        caption: the text above the table.
        left: number of leading columns that are aligned left; the others, figures, are aligned right.
    """
    title, *body = (
        "".join(_cell(cell, "left" if column < left else "right", tag) for column, cell in enumerate(row))
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    )
    lines = "".join(f"<tr>{row}</tr>" for row in body)
    return (
        f'<table><caption style="text-align: left">{escape(caption)}</caption>'
        f"<thead><tr>{title}</tr></thead><tbody>{lines}</tbody></table>"
    )


def _cell(text: str, side: str, tag: str) -> str:
    return f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
