"""Check before a release that all versions agree: ``make release VERSION=0.3.0``."""

import re
import subprocess
import sys
from pathlib import Path

from aptool.environment import __version__, install_command

ROOT = Path(__file__).parents[1]


def problems(version: str) -> list[str]:
    """Reasons why this commit cannot be the release ``version``."""
    reasons = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        reasons.append(f"VERSION={version!r}: expected three numbers, such as 0.3.0")
    if version != __version__:
        reasons.append(f"aptool/environment.py: {__version__}; expected {version}")
    if "aptool[" not in install_command("torch"):
        reasons.append("aptool/environment.py: install_command installs from a copy; expected from PyPI")
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    expected = [f"version: {version}"]
    if dated := re.fullmatch(re.escape(version) + r", (\d{4}-\d{2}-\d{2})", headings[0]):
        expected.append(f"date-released: {dated[1]}")
    else:
        reasons.append(
            f"CHANGELOG.md: {headings[0]!r}; expected '{version}, YYYY-MM-DD' as the first heading"
        )
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    reasons += [f"CITATION.cff: expected the line {line!r}" for line in expected if line not in citation]
    for page in ("README.md", "docs/start.md", "docs/install.md", "docs/results/paper.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        if found := re.findall(r"no.* on PyPI|install [^`\n]*\"\.\[", text):
            reasons.append(f"{page}: {found[0]!r}; expected an installation from PyPI")
    if _git("tag", "--list", f"v{version}"):
        reasons.append(f"the tag v{version} exists")
    if changed := _git("status", "--porcelain"):
        reasons.append(f"files are not committed: {', '.join(line[3:] for line in changed.splitlines())}")
    return reasons


def _git(*arguments: str) -> str:
    """The output of a git command in this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit("\n".join(problems(sys.argv[1])) or None)  # an empty text would be a failure
