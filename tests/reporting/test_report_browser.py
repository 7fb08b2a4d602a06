"""The report in a browser: no requests, readable in both colour schemes, on paper and on phones."""

import os
import shutil

import pytest
from click.testing import CliRunner
from report_runs import EMOJI, SCRIPT

from aptool.cli.main import cli

CHROMIUM = os.environ.get("APTOOL_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytest.importorskip("playwright", reason="playwright is not installed")
if not os.access(CHROMIUM, os.X_OK):
    pytest.skip("no Chromium here: apt-get install chromium", allow_module_level=True)

from playwright.sync_api import Page, sync_playwright  # noqa: E402


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, report):
    """Open a page; after the test, fail on console messages and on requests."""
    contexts, problems, requests = [], [], []

    def open_page(path=report, **options) -> Page:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        requests.remove(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
    assert requests == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_light_and_dark_mode(visit, scheme):
    page = visit(color_scheme=scheme)
    lightness = page.evaluate(
        """() => ['backgroundColor', 'color'].map(name => {
            const [r, g, b] = getComputedStyle(document.body)[name].match(/[\\d.]+/g).map(Number);
            return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
        })"""
    )
    ground, ink = lightness

    assert (ground > 0.9 and ink < 0.2) if scheme == "light" else (ground < 0.2 and ink > 0.8)


@pytest.mark.parametrize("width", [320, 1280])
def test_page_is_not_wider_than_the_screen(visit, width):
    page = visit(viewport={"width": width, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")

    assert page.locator(".heat").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_column_is_cut_off_in_print(visit):
    page = visit(viewport={"width": 560, "height": 800})  # A4 has 688 pixels between the margins
    page.emulate_media(media="print")

    for frame in page.locator(".frame").all():
        assert frame.evaluate("frame => frame.scrollWidth - frame.clientWidth") <= 0, frame.inner_text()


def test_charts_and_questions_are_shown(visit):
    page = visit()

    sizes = page.locator(".chart").evaluate_all("all => all.map((image) => image.naturalWidth)")
    assert len(sizes) == 2
    assert all(sizes)  # every image is drawn
    page.locator(".question > summary").first.click()
    assert page.locator(".question .text").first.is_visible()
    hebrew = page.locator(".answers .text", has_text="הנהר").first
    assert hebrew.evaluate("text => getComputedStyle(text).direction") == "rtl"


def test_words_of_an_explanation_have_colours(visit, made, tmp_path):
    command = ["explain", "--model", str(made.runs / "wikiqa" / "ap-cnn" / "seed0" / "model")]
    command += ["--question", EMOJI, "--answer", SCRIPT, "--html", str(tmp_path / "page.html")]
    CliRunner().invoke(cli, command, catch_exceptions=False, standalone_mode=False)
    page = visit(tmp_path / "page.html")
    words = page.locator(".heat").last.locator(".w")
    colours = words.evaluate_all("all => all.map(word => getComputedStyle(word).backgroundColor)")

    assert page.locator(".heat").last.evaluate("heat => heat.textContent") == SCRIPT
    assert page.locator("h1").inner_text() == EMOJI
    assert len(set(colours)) > 1
