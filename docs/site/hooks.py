"""Links of the pages: those to other files of the repository lead to its web page."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?P<path>\.\.?/[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replaces links out of ``docs`` by links to the repository.

    Raises:
        FileNotFoundError: the repository has no such file.
    """

    def replaced(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link["path"]))
        if path.startswith("docs/"):
            return link[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {link['path']}: no such file in the repository")
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({config['repo_url']}/{kind}/main/{path}{link['anchor'] or ''})"

    return LINK.sub(replaced, markdown)
