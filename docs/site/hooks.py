"""Changes to built pages: links to files outside ``docs``, and the search in pages opened from a disk."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[(?P<text>[^\[\]]+)\]\((?P<path>\.\.?/[^)#\s]+)(?:#[^)\s]*)?\)")


# The theme would fetch this from elsewhere; ``worker.js`` takes its place.
FETCHED = '<script src="https://unpkg.com/iframe-worker/shim"></script>'


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace links to files outside ``docs``, which the site lacks, with the paths of the files.

    Raises:
        FileNotFoundError: the repository has no such file.
    """

    def replaced(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link["path"]))
        if path.startswith("docs/"):
            return link[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {link['path']}: no such file in the repository")
        text = link["text"]
        return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"

    return LINK.sub(replaced, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Puts ``worker.js`` into a page, where the theme has a script from elsewhere."""
    script = (ROOT / "docs" / "site" / "worker.js").read_text(encoding="utf-8")
    return output.replace(FETCHED, f"<script>\n{script}</script>")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page of what is not found."""
    return on_post_page(output_content)
