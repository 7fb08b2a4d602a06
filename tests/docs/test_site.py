"""The documentation site: strict build, complete reference, no network access, responsive layout."""

import html
import re
import shutil
import subprocess
import sys

import pytest
from pages import ROOT, blocks

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
    names = [name for name in aptool.__all__ if not name.startswith("_")]
    assert not [name for name in names if f'.{name}"' not in library]


def test_every_option_of_training_is_described_with_its_default(site):
    from aptool.config import TrainingOptions

    described = text_of(site / "reference" / "options.html")

    assert not [name for name in TrainingOptions.__dataclass_fields__ if name not in described]
    assert "Number of passes over the training questions" in described


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


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


def test_the_search_works_in_pages_opened_from_a_disk(site, browser):
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())

    query = page.locator("input[name=query]")
    query.click()
    query.press_sequentially("permutation", delay=20)

    page.locator('.md-search-result__item a[href*="evaluate"]').first.wait_for(state="attached")


def test_the_reference_has_public_members_and_examples_with_their_lines(site):
    page = (site / "reference" / "library.html").read_text(encoding="utf-8")
    shown = text_of(site / "reference" / "library.html")

    assert "__reduce__" not in page
    assert "<blockquote" not in page  # of an example that was read as Markdown
    names = [name for name in aptool.__all__ if not name.startswith("_")]
    assert shown.count(">>> ") >= len(names)


def test_the_home_page_has_the_sections_of_the_readme(site):
    shown = text_of(site / "index.html")

    for block in blocks("README.md"):
        assert " ".join(block.text.split()) in " ".join(shown.split())
