"""The report in a browser: controls work, there are no requests, and texts are shown as plain text."""

import os
import re
import shutil
from collections.abc import Iterator

import pytest
from report_runs import (
    BREAKS,
    EMOJI,
    NASTY,
    QUESTIONS,
    RIGHT_TO_LEFT,
    SCRIPT,
    ReportRuns,
    rankings,
    relevant_answers,
)

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
        if options.get("java_script_enabled", True) and path == report:
            page.wait_for_selector(".browser[data-ready] .answers")
        requests.remove(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
    assert requests == []


@pytest.fixture
def page(visit) -> Iterator[Page]:
    return visit(viewport={"width": 1280, "height": 900})


def opened(page: Page) -> str:
    return page.locator(".open .question").inner_text()


def open_question(page: Page, text: str) -> None:
    page.get_by_label("Search questions").fill(text)
    page.locator(".row").first.click()
    page.wait_for_function("text => document.querySelector('.open .question').textContent === text", arg=text)


def count(page: Page, name: str) -> int:
    return int(page.locator(f".filters input[value={name}] ~ .count").inner_text())


def first_is_relevant(made: ReportRuns, system: str) -> dict[str, bool]:
    """For each question whether the first answer of seed 0 is relevant, from the run file."""
    relevant = relevant_answers(made.collection)
    ranked = rankings(made.runs / "wikiqa" / system / "seed0" / "test.run")
    return {question: answers[0] in relevant[question] for question, answers in ranked.items()}


def test_filters_show_the_questions_of_the_run_files(page, made):
    mine, other = first_is_relevant(made, "ap-cnn"), first_is_relevant(made, "bm25")
    page.get_by_label("System").select_option("ap-cnn")
    page.get_by_label("Against").select_option("bm25")
    expected = {
        "all": set(mine),
        "missed": {question for question in mine if not mine[question]},
        "gained": {question for question in mine if mine[question] and not other[question]},
        "lost": {question for question in mine if not mine[question] and other[question]},
    }
    assert 0 < len(expected["missed"]) < QUESTIONS
    for name, questions in expected.items():
        page.locator(".filters label", has=page.locator(f"[value={name}]")).click()
        assert count(page, name) == len(questions)
        if questions:
            page.locator(".list").focus()
            page.keyboard.press("Home")
            page.wait_for_timeout(50)
            assert page.locator(".open .about .mono").inner_text() in questions
        assert page.locator(".row").count() <= len(questions)


def test_exchanging_system_and_baseline_exchanges_gained_and_lost(page):
    page.get_by_label("System").select_option("qa-cnn")
    page.get_by_label("Against").select_option("random")
    before = count(page, "gained"), count(page, "lost")
    page.get_by_label("System").select_option("random")
    page.get_by_label("Against").select_option("qa-cnn")

    assert (count(page, "lost"), count(page, "gained")) == before


def test_search_matches_words_in_any_order_and_reports_no_match(page):
    page.get_by_label("Search questions").fill("RIVER 😀")
    assert page.locator(".row .text").all_inner_texts() == [EMOJI]

    page.get_by_label("Search questions").fill("no such question")
    assert page.locator(".row").count() == 0
    assert page.locator(".empty").is_visible()


def test_only_visible_rows_are_rendered(page):
    assert page.locator(".row").count() < 40
    assert page.locator(".row").first.get_attribute("aria-setsize") == str(QUESTIONS)
    page.locator(".list").evaluate("list => { list.scrollTop = list.scrollHeight }")
    page.locator(f".row[aria-posinset='{QUESTIONS}']").wait_for()

    assert page.locator(".row").count() < 40


def test_list_is_used_with_the_keyboard(page):
    page.locator(".list").focus()
    first = opened(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.locator(".row[aria-selected=true]")
    assert chosen.get_attribute("aria-posinset") == "2"
    assert page.locator(".list").get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.wait_for_function(
        "text => document.querySelector('.open .question').textContent !== text", arg=first
    )
    assert opened(page) == chosen.locator(".text").inner_text()

    page.keyboard.press("End")
    assert page.locator(".row[aria-selected=true]").get_attribute("aria-posinset") == str(QUESTIONS)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.className") == "open"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "listbox"


def test_heat_map_is_opened_and_read_with_the_keyboard(page):
    page.get_by_label("System").select_option("ap-cnn")
    button = page.locator(".open .plain", has_text="Heat map").first
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "heat"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    word = page.locator(".heat").first.locator(".w").nth(1)
    reading = page.locator(".reading").inner_text()

    assert "on" in word.get_attribute("class").split()
    assert reading.startswith(f"“{word.inner_text()}”")
    assert f"{float(word.get_attribute('data-weight')):.4f}" in reading
    assert page.locator(".heat").first.locator(".field").count() == 3  # a window of three words


def test_weights_on_the_page_sum_to_one_and_colour_follows_them(page):
    page.get_by_label("System").select_option("qa-cnn")
    page.locator(".open .plain", has_text="Heat map").first.click()
    for heat in page.locator(".heat").all():
        weights, strengths = heat.evaluate(
            "heat => [[...heat.querySelectorAll('.w')].map(word => Number(word.dataset.weight)),"
            " [...heat.querySelectorAll('.w')].map(word => Number(word.style.getPropertyValue('--s')))]"
        )
        assert sum(weights) == pytest.approx(1, abs=1e-6)
        assert sorted(range(len(weights)), key=lambda i: (weights[i], i)) == sorted(
            range(len(weights)), key=lambda i: (strengths[i], weights[i], i)
        )


@pytest.mark.parametrize("text", [SCRIPT, RIGHT_TO_LEFT, EMOJI, BREAKS])
def test_question_is_shown_as_plain_text(page, text):
    open_question(page, text)

    assert page.locator(".row .text").first.evaluate("row => row.textContent") == text
    assert page.locator(".open script, .open img, .open b img").count() == 0
    answers = page.locator(".answers .text").evaluate_all("all => all.map(one => one.textContent)")
    assert set(NASTY.values()) <= set(answers)
    # The relevant answer of each of these questions repeats the question.
    page.get_by_label("System").select_option("ap-cnn")
    for button in page.locator(".open .plain", has_text="Heat map").all():
        button.click()
    heats = page.locator(".heat").evaluate_all("all => all.map(one => one.textContent)")
    assert heats[0] == text
    assert text in heats[1::2]
    assert page.locator(".heat").first.get_attribute("dir") == "auto"
    assert not page.evaluate("'alerted' in window")


def test_right_to_left_text_runs_from_right_to_left(page):
    open_question(page, RIGHT_TO_LEFT)

    assert page.locator(".open .question").evaluate("one => getComputedStyle(one).direction") == "rtl"


def test_ids_are_shown_as_plain_text(page):
    page.get_by_label("Search questions").fill("img/src")
    page.locator(".row").first.click()
    page.wait_for_function("() => document.querySelector('.open .about').textContent.includes('img/src=x')")

    assert page.locator(".answers .mono").first.inner_text().startswith("<b>")


def test_relevant_answers_are_marked_and_missing_answers_are_named(page):
    open_question(page, EMOJI)
    tagged = page.locator(".answers > li", has=page.locator(".tag"))

    assert tagged.locator(".text").all_inner_texts() == [EMOJI]
    assert "not-in-the-pool" in page.locator(".open .note").inner_text()


@pytest.mark.parametrize(("name", "first"), [("Markdown", "| System | MAP |"), ("LaTeX", "\\begin{tabular}")])
def test_tables_are_copied(visit, name, first):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    buttons = page.get_by_role("button", name=f"Copy as {name}")
    buttons.first.focus()
    page.keyboard.press("Enter")
    page.get_by_text("Copied.").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")

    assert text.startswith(first)
    assert all(name in text for name in ("random", "bm25", "ap-cnn+bm25"))


def test_failed_copy_is_reported(visit):
    page = visit()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')) }")
    page.get_by_role("button", name="Copy as LaTeX").first.click()
    page.get_by_text("The browser does not let this page copy.").wait_for()


def test_a_table_that_is_cut_off_has_a_hint(visit):
    narrow = visit(viewport={"width": 700, "height": 800}).locator("#c0-results .frame").first
    broad = visit(viewport={"width": 1600, "height": 800}).locator("#c0-results .frame").first
    hint = "frame => getComputedStyle(frame, '::before').content"

    assert narrow.evaluate("frame => frame.scrollWidth > frame.clientWidth")
    assert "Scroll sideways" in narrow.evaluate(hint)
    assert broad.evaluate("frame => frame.scrollWidth <= frame.clientWidth")
    assert broad.evaluate(hint) == "none"


@pytest.mark.parametrize("width", [320, 400])
def test_no_column_is_off_the_screen_of_a_phone(visit, width):
    page = visit(viewport={"width": width, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")

    for frame in page.locator("main .frame").all():
        cells = frame.locator(":is(th, td):not(.picture)").evaluate_all(
            "cells => cells.map(c => [c.getBoundingClientRect().right, c.scrollWidth - c.clientWidth])"
        )
        assert all(right <= width and over <= 0 for right, over in cells), frame.inner_text()


def test_the_first_screen_of_a_phone_has_the_best_system_and_its_test(visit):
    page = visit(viewport={"width": 400, "height": 860})
    conclusion = page.locator(".conclusion").first
    rows = page.locator("#c0-results > .frame tbody tr").all()
    means = {row.locator("th").inner_text().split()[0]: row.locator("td").first.inner_text() for row in rows}
    best = max(means, key=lambda name: float(means[name].strip("▲▼ \n")))

    assert conclusion.evaluate("part => part.getBoundingClientRect().bottom") < 860
    assert conclusion.locator("b").inner_text().startswith(best)
    tested = r"(significantly (better|worse) than bm25, by 0\.\d{4}|do not differ significantly) \(p [=<]"
    assert re.search(tested, conclusion.inner_text())


def test_a_system_has_one_row_per_table_until_a_fold_is_opened(page):
    for table in page.locator("table.numbers:visible").all():
        if table.evaluate("table => table.closest('#c0-provenance')"):
            continue  # one row per seed
        names = table.locator("tbody th").all_inner_texts()
        assert len(names) == len(set(names))


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


@pytest.mark.parametrize("width", [320, 390, 768, 1600])
def test_page_is_not_wider_than_the_screen(visit, width):
    page = visit(viewport={"width": width, "height": 800}, has_touch=width < 700)
    page.locator(".open .plain", has_text="Heat map").first.click()

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_tapped_question_scrolls_into_view_on_a_phone(visit):
    page = visit(viewport={"width": 390, "height": 800}, has_touch=True)
    page.locator(".row").nth(1).tap()
    text = page.locator(".row").nth(1).locator(".text").inner_text()
    page.wait_for_function("text => document.querySelector('.open .question').textContent === text", arg=text)
    page.wait_for_function("() => document.querySelector('.open').getBoundingClientRect().top < 400")


def test_print_has_tables_and_the_open_question_without_controls(page):
    page.emulate_media(media="print")

    assert page.locator("table.numbers").first.is_visible()
    assert page.locator(".open .question").is_visible()
    assert not page.locator(".tools").is_visible()
    assert not page.locator(".list").is_visible()
    assert page.locator(".open").evaluate("open => getComputedStyle(open).overflowY") == "visible"


def test_no_column_is_cut_off_in_print(visit):
    page = visit(viewport={"width": 560, "height": 800})  # A4 has 688 pixels between the margins
    page.emulate_media(media="print")

    for frame in page.locator(".frame").all():
        assert frame.evaluate("frame => frame.scrollWidth - frame.clientWidth") <= 0, frame.inner_text()


def test_tables_and_charts_need_no_scripts(visit):
    page = visit(java_script_enabled=False)

    assert page.locator("table.numbers").first.is_visible()
    sizes = page.locator(".chart").evaluate_all("all => all.map((image) => image.naturalWidth)")
    assert len(sizes) > 3
    assert all(sizes)  # every image is drawn
    assert page.get_by_text("The list of questions needs JavaScript.").is_visible()
    assert not page.get_by_role("button", name="Copy as LaTeX").first.is_visible()


def test_explanation_page_works_in_the_browser(visit, made, tmp_path):
    from click.testing import CliRunner

    from aptool.cli.main import cli

    command = ["explain", "--model", str(made.runs / "wikiqa" / "ap-cnn" / "seed0" / "model"), "--matrix"]
    command += ["--question", EMOJI, "--answer", SCRIPT, "--html", str(tmp_path / "page.html")]
    CliRunner().invoke(cli, command, catch_exceptions=False, standalone_mode=False)
    page = visit(tmp_path / "page.html")
    page.locator(".heat").last.focus()
    page.keyboard.press("ArrowRight")

    assert page.locator(".heat").last.evaluate("heat => heat.textContent") == SCRIPT
    assert page.locator("h1").inner_text() == EMOJI
    assert page.locator(".reading").inner_text().startswith("“<”")
    assert page.locator(".matrix tbody tr").count() == page.locator(".heat").last.locator(".w").count()
