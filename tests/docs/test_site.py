"""The documentation site: strict build, complete reference, no network access, responsive layout."""

import html
import re
import subprocess
import sys

import pytest
from pages import ROOT

import aptool
from aptool.cli.main import LazyGroup

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the group docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr
    return folder


def text_of(path):
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8")))


def test_every_command_and_public_name_is_in_the_reference(site):
    commands = text_of(site / "reference" / "commands.html")
    library = (site / "reference" / "library.html").read_text(encoding="utf-8")

    assert not [name for name in LazyGroup.entries if f"aptool {name}" not in commands]
    names = [name for name in dir(aptool) if not name.startswith("_")]
    assert not [name for name in names if f'.{name}"' not in library]


def test_every_equation_of_the_paper_has_its_code(site):
    page = (site / "equations.html").read_text(encoding="utf-8")
    shown = text_of(site / "equations.html")

    typeset = re.findall(r'id="equation-(\d+)"><math ', page)
    assert typeset == [str(number) for number in range(1, 19)]
    assert "G = (Q @ self.U) @ A.transpose(1, 2)" in shown
    assert "margin - scores[:, 0] + scores[:, 1:].amax(1)" in shown


def test_pages_fetch_nothing_from_elsewhere(site):
    fetched = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="https?:[^"]+"|<link[^>]*\shref="https?:[^"]+"')
    allowed = re.compile(r'rel="(?:canonical|prev|next|edit)"')
    for page in site.rglob("*.html"):
        tags = fetched.finditer(page.read_text(encoding="utf-8"))
        assert not [tag[0] for tag in tags if not allowed.search(tag[0])], page


def test_the_reference_has_public_members_and_examples_with_their_lines(site):
    page = (site / "reference" / "library.html").read_text(encoding="utf-8")
    shown = text_of(site / "reference" / "library.html")

    assert "__reduce__" not in page
    assert "<blockquote" not in page  # of an example that was read as Markdown
    names = [name for name in dir(aptool) if not name.startswith("_")]
    assert shown.count(">>> ") >= len(names)
