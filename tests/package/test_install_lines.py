"""Installation commands in the README and the docs: from a copy, before the first release."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# `.[extra]` and `aptool[extra]`, in quotation marks.
REQUIREMENT = re.compile(r"""pip install ([^\n`]*?)["']([\w./-]*)\[([\w,-]+)\]["']""")


def test_pages_install_existing_extras_from_a_copy():
    """An editable installation is always from a copy."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
    lines = [(name, *match) for name, text in texts.items() for match in REQUIREMENT.findall(text)]

    assert len(lines) > 5
    assert [line for line in lines if "-e" not in line[1].split() and line[2] != "."] == []
    assert not [line for line in lines if not set(line[3].split(",")) <= EXTRAS]
    assert not [name for name, text in texts.items() if re.search(r"pip install aptool\b", text)]
