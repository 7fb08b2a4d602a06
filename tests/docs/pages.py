"""Code blocks of the docs."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<exact><!-- exact -->\n)?```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
ANY = "..."


class Block(NamedTuple):
    """A code block: its language, its text, the number of its first line, and if its output is compared."""

    language: str
    text: str
    line: int
    exact: bool = False

    def commands(self) -> list[tuple[str, str]]:
        """The commands of a ``console`` block, each with its output."""
        return [
            (command, output.strip("\n"))
            for command, _, output in (part.partition("\n") for part in self.text.split("$ ")[1:])
        ]


def has_output(shown: str, expected: str) -> bool:
    """Whether a command printed the expected lines in this order, where ``...`` stands for any text.

    Other lines, such as those of progress on a slow machine, may be between them.
    """
    patterns = [".*".join(map(re.escape, line.split(ANY))) for line in expected.splitlines() if line != ANY]
    lines = iter(shown.splitlines())
    return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in patterns)


def pages() -> list[str]:
    """Paths of README and of every page of the docs, relative to the root."""
    docs = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", *docs]


def blocks(page: str) -> list[Block]:
    """The code blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(match["language"], match["text"], text.count("\n", 0, match.start()) + 1, bool(match["exact"]))
        for match in FENCE.finditer(text)
    ]


def run_script(
    script: str, folder: Path, environment: Mapping[str, str], timeout: int
) -> subprocess.CompletedProcess[str]:
    """Run commands with bash in ``folder``; stop at the first failure."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=dict(environment),
    )
