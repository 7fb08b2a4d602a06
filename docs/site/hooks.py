"""Changes to built pages: sections of the README, links to files outside ``docs``, search from a disk."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[(?P<text>[^\[\]]+)\]\((?P<path>\.\.?/[^)#\s]+)(?:#[^)\s]*)?\)")
CODE = re.compile(r"<code\b.*?</code>", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")

SECTION = re.compile(r"<!-- README: (?P<title>[^>]+) -->")

# The theme would fetch this from elsewhere; ``worker.js`` takes its place.
FETCHED = '<script src="https://unpkg.com/iframe-worker/shim"></script>'


def readme_section(title: str) -> str:
    """A section of README.md without its title, with links relative to ``docs``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, heading, rest = text.partition(f"\n## {title}\n")
    if not heading:
        raise ValueError(f"README.md: no section {title!r}")
    section = re.sub(r"\]\((?!https?://|docs/)", "](../", rest.partition("\n## ")[0].strip())
    return section.replace("](docs/", "](")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Insert sections of the README, and replace links to files outside ``docs``, which the site lacks.

    Raises:
        FileNotFoundError: the repository has no such file.
        ValueError: the README has no such section.
    """
    markdown = SECTION.sub(lambda match: readme_section(match["title"]), markdown)

    def replaced(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link["path"]))
        if path.startswith("docs/"):
            return link[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {link['path']}: no such file in the repository")
        text = link["text"]
        return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"

    return LINK.sub(replaced, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Marks options in code: browsers would break lines after their hyphens."""
    return CODE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def on_post_page(output: str, **_: Any) -> str:
    """Puts ``worker.js`` into a page, where the theme has a script from elsewhere."""
    script = (ROOT / "docs" / "site" / "worker.js").read_text(encoding="utf-8")
    return output.replace(FETCHED, f"<script>\n{script}</script>")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page of what is not found."""
    return on_post_page(output_content)
