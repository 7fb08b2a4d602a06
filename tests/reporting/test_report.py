"""``aptool report``: values match the run files, heat maps match the models, markup is safe."""

import base64
import json
import re
from xml.etree import ElementTree

import pytest
import torch
from report_page import Page
from report_runs import (
    NASTY,
    QUESTIONS,
    SYSTEMS,
    TRAINED,
    make_report,
    rankings,
    relevant_answers,
)

from aptool.models.model import load_model
from aptool.models.ragged import Ragged


@pytest.fixture(scope="module")
def page(report) -> str:
    return report.read_text(encoding="utf-8")


def test_accuracy_in_the_table_is_the_share_of_relevant_first_answers(page, made):
    relevant = relevant_answers(made.collection)
    table = Page(page).table("System", "P@1", "p")
    column = table[0].index("P@1")
    for row in table[1:]:
        name = row[0].split()[0]
        hits = [
            ranking[0] in relevant[question]
            for seed in (0, 1)
            for question, ranking in rankings(
                made.runs / "wikiqa" / name / f"seed{seed}" / "test.run"
            ).items()
        ]
        assert len(hits) == 2 * QUESTIONS
        shown = re.search(r"0\.\d{4}|1\.0000", row[column])[0]
        assert float(shown) == pytest.approx(sum(hits) / len(hits), abs=5e-5)
    assert {row[0].split()[0] for row in table[1:]} == set(SYSTEMS)


def test_trained_system_is_significantly_better_than_random_order(page, made):
    by_bm25 = Page(page).table("System", "P@1", "p")
    against_random = make_report(made, made.runs.parent / "random.html", "--baseline", "random")
    by_random = Page(against_random.read_text(encoding="utf-8")).table("System", "P@1", "p")
    rows = {row[0].split()[0]: row for row in by_random[1:]}

    assert rows["ap-cnn"][1].startswith("▲")
    assert rows["ap-cnn"][-1] == "< 0.001"
    assert rows["random"][-2:] == ["", ""]
    assert next(row for row in by_bm25[1:] if row[0].startswith("random"))[1].startswith("▼")


def average_precision(made, system: str) -> dict[str, float]:
    """The mean over the seeds of each question's average precision, from the run files."""
    relevant = relevant_answers(made.collection)
    sums: dict[str, float] = {}
    for seed in (0, 1):
        ranked = rankings(made.runs / "wikiqa" / system / f"seed{seed}" / "test.run")
        for question, answers in ranked.items():
            ranks = [rank for rank, answer in enumerate(answers, 1) if answer in relevant[question]]
            precisions = [found / rank for found, rank in enumerate(ranks, 1)]
            sums[question] = sums.get(question, 0) + sum(precisions) / len(relevant[question]) / 2
    return sums


def largest(changes: dict[str, float], count: int) -> list[str]:
    """The questions with the highest positive changes, ties in the order of the ids."""
    gained = {question: round(change, 9) for question, change in changes.items() if change > 1e-9}
    return sorted(gained, key=lambda question: (-gained[question], question.encode()))[:count]


@pytest.fixture(scope="module")
def against_random(made) -> Page:
    page = make_report(made, made.runs.parent / "shown.html", "--baseline", "random", "--depth", "2")
    return Page(page.read_text(encoding="utf-8"))


def best_trained(made) -> str:
    return max(TRAINED, key=lambda system: sum(average_precision(made, system).values()))


def test_shown_questions_have_the_largest_gains_and_losses(against_random, made):
    before, after = average_precision(made, "random"), average_precision(made, best_trained(made))
    gains = {question: after[question] - before[question] for question in before}
    losses = {question: -change for question, change in gains.items()}

    shown = [question["id"] for question in against_random.questions]
    assert shown == largest(gains, 10) + largest(losses, 10)
    assert len(shown) >= 10


def test_questions_have_the_first_and_the_relevant_answers_of_the_run_file(against_random, made):
    relevant = relevant_answers(made.collection)
    mine, other = (
        rankings(made.runs / "wikiqa" / system / "seed0" / "test.run")
        for system in (best_trained(made), "random")
    )
    for question in against_random.questions:
        name = question["id"]
        expected = [
            (str(rank), answer, f"random: {other[name].index(answer) + 1}", answer in relevant[name])
            for rank, answer in enumerate(mine[name], 1)
            if rank <= 2 or answer in relevant[name]
        ]
        shown = []
        for answer in question["answers"]:
            rank, _score, other_rank, answer_id = [cell for cell in answer["line"] if cell != "relevant"][:4]
            shown.append((rank, answer_id, other_rank, answer["relevant"]))
        assert shown == expected


def test_weights_in_the_page_are_those_of_the_model(against_random, made):
    model = load_model(made.runs / "wikiqa" / best_trained(made) / "seed0" / "model")
    checked = 0
    for question in against_random.questions:
        first, best = question["answers"][0], next(a for a in question["answers"] if a["relevant"])
        for answer in (first, best):
            ids = [Ragged.of(model.tokenizer.encode([text])) for text in (question["text"], answer["text"])]
            with torch.no_grad():
                alone = model.ranker.pooling.attention(*(model.ranker.encoder(tokens) for tokens in ids))
            for weights, expected in zip(answer["heats"], alone, strict=True):
                assert weights == pytest.approx(expected[0].tolist(), abs=6e-5)
            checked += 1
    assert checked >= 20


def test_texts_and_ids_with_markup_are_shown_as_they_are(made):
    page = make_report(made, made.runs.parent / "all.html", "--baseline", "random", "--questions", "150")
    questions = {question["id"]: question for question in Page(page.read_text(encoding="utf-8")).questions}
    shown = questions.keys() & NASTY.keys()

    assert shown
    for name in shown:
        assert questions[name]["text"] == NASTY[name]
        assert {a["text"] for a in questions[name]["answers"] if a["relevant"]} == {NASTY[name]}
    assert "relevant, but not among the candidates: not-in-the-pool" in page.read_text(encoding="utf-8")


def test_page_has_no_external_resources_and_escapes_texts(page):
    parsed = Page(page)
    for tag, attributes in parsed.elements:
        assert attributes.get("src", "data:image/svg+xml").startswith("data:image/svg+xml")
        assert attributes.get("href", "#").startswith("#")
        assert tag not in ("link", "iframe", "object", "b" if attributes else "")
        assert not any(name.startswith("on") for name in attributes)
    assert ("meta", "default-src 'none'") in [
        (tag, attributes["content"].split(";")[0])
        for tag, attributes in parsed.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "script" not in {tag for tag, _ in parsed.elements}
    assert "<script" not in page


def test_page_has_the_provenance(page, made):
    manifest = json.loads((made.collection / "collection.json").read_text(encoding="utf-8"))
    config = json.loads(
        (made.runs / "wikiqa" / "ap-cnn" / "seed1" / "model" / "config.json").read_text(encoding="utf-8")
    )
    runs = Page(page).table("Run", "Seed", "Best epoch")
    row = next(row for row in runs if row[:2] == ["ap-cnn", "1"])

    assert manifest["files"]["test.qrels"] in page
    assert config["training"]["fingerprint"] in page
    assert config["versions"]["torch"] in page
    assert row[3] == str(config["training"]["best_epoch"])
    assert "aptool score" in page
    assert "aptool report" in page


def test_report_is_deterministic(page, made):
    again = make_report(made, made.runs.parent / "again.html")

    assert again.read_text(encoding="utf-8") == page


def test_page_has_at_most_the_requested_questions(made):
    more = ("--baseline", "random", "--questions", "1")
    short = make_report(made, made.runs.parent / "short.html", *more).read_text(encoding="utf-8")

    assert len(Page(short).questions) == 2  # a gain and a loss
    assert "Largest gains: 1 of " in short


def test_accuracy_against_costs_has_a_point_for_each_trained_system(made, page):
    from aptool.reporting.charts import COSTS

    lines = json.loads((made.runs / "table.json").read_text())["lines"]
    assert {line["system"] for line in lines if line["pairs_per_second"] is not None} == set(TRAINED)
    for column, title in COSTS.items():
        rows = {
            line["system"]: [line["system"], f"{line[column]:,.0f}", f"{line['means']['MAP']:.4f}"]
            for line in lines
            if line["system"] in TRAINED
        }
        table = Page(page).table("system", title, "MAP")
        column = table[0].index(title)
        # The parser adds the text after a table to its last cell.
        shown = [[row[0], row[column], row[-1].split()[0]] for row in table[1:]]
        assert sorted(shown) == sorted(rows.values())
    assert "MAP by cost" in page


def test_charts_are_images_in_the_page(page):
    parts = re.findall(r'<section class="part[^"]*" id="c0-(\w+)"', page)
    images = [attributes for tag, attributes in Page(page).elements if tag == "img"]
    drawn = [base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")) for image in images]

    assert parts == ["results", "charts", "questions", "provenance"]
    titles = ["P@1 by length of the relevant answer", "Training by epoch", "MAP by cost"]
    scores = {f"Scores of {name}" for name in (*TRAINED, "bm25")}
    assert [image["alt"] for image in images[:3]] == titles
    assert {image["alt"] for image in images[3:]} == scores
    assert all(ElementTree.fromstring(image).tag.endswith("svg") for image in drawn)
    # Lines of the trained systems and the baseline; others would hide them.
    shown = {name for name in SYSTEMS if f">{name}</text>".encode() in drawn[0]}
    assert shown == {*TRAINED, "bm25"}
