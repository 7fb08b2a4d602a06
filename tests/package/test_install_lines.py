"""Installation commands in errors, README and docs, before and after a release."""

import re
import tomllib
from pathlib import Path

import pytest

from aptool import version
from aptool.version import RELEASED, install_command

ROOT = Path(__file__).parents[2]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
)
FOLDERS = ("aptool", "bench", "docs", "examples", "jobs", "schemas", ".github")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# `.[extra]` and `aptool[extra]`, in quotation marks.
REQUIREMENT = re.compile(r"""pip install ([^\n`]*?)["']([\w./-]*)\[([\w,-]+)\]["']""")


def texts():
    """The texts of the project by path, without its tests."""
    files = [path for path in ROOT.iterdir() if path.suffix in (".md", ".toml", ".cff", ".yml")]
    files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    kinds = (".cff", ".ipynb", ".json", ".md", ".py", ".toml", ".yaml", ".yml", "")
    for path in files:
        if path.suffix in kinds and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_command_changes_with_the_release(monkeypatch):
    monkeypatch.setattr(version, "RELEASED", False)
    before = install_command("hub")
    monkeypatch.setattr(version, "RELEASED", True)

    assert before == '`python -m pip install ".[hub]"` in a copy of the aptool repository'
    assert install_command("hub") == '`python -m pip install "aptool[hub]"`'


def test_pages_install_from_a_copy_before_the_release():
    """An editable installation is always from a copy."""
    target = "aptool" if RELEASED else "."
    lines = [(path.name, *match) for path in PAGES for match in REQUIREMENT.findall(path.read_text("utf-8"))]

    assert len(lines) >= 10
    assert [line for line in lines if "-e" not in line[1].split() and line[2] != target] == []
    assert not [line for line in lines if not set(line[3].split(",")) <= EXTRAS]
    if not RELEASED:
        assert not [path for path in PAGES if re.search(r"pip install aptool\b", path.read_text("utf-8"))]


def test_errors_contain_the_command_of_an_extra():
    literal = re.compile(r"pip install [^\n]*(\.|aptool)\[")
    names = [name for name, text in texts() if name.startswith("aptool/") and literal.search(text)]

    assert names == ["aptool/version.py"]


@pytest.mark.skipif(RELEASED, reason="a released project has an address")
def test_no_github_address_before_the_release():
    assert [
        name for name, text in texts() if re.search(r"github\.(com|io)/aptool|aptool\.github", text)
    ] == []
