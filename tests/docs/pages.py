"""The pages of the docs, cut into their blocks of code."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code: its language, its text, and the line of the page that it begins on."""

    language: str
    text: str
    line: int


def pages() -> list[str]:
    """README and every page of the docs, as paths from the root."""
    docs = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
    return ["README.md", *docs]


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(found["language"], found["text"], text.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(text)
    ]


def run_script(
    script: str, folder: Path, environment: Mapping[str, str], timeout: int
) -> subprocess.CompletedProcess[str]:
    """Runs commands with bash in ``folder``; the first one that fails ends them."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=dict(environment),
    )
