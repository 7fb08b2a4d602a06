"""``aptool report``: values match the run files, heat maps match the models, markup is safe."""

import base64
import json
import re
from xml.etree import ElementTree

import pytest
import torch
from report_page import Page
from report_runs import NASTY, QUESTIONS, SYSTEMS, TRAINED, make_report, rankings, relevant_answers

from aptool.evaluation.significance import Interval
from aptool.models.model import load_model
from aptool.models.ragged import Ragged
from aptool.reporting.report import DEPTH, Scale
from aptool.reporting.runs import RunEntry


@pytest.fixture(scope="module")
def page(report) -> str:
    return report.read_text(encoding="utf-8")


def test_table_of_results(page, against_random, made):
    relevant = relevant_answers(made.collection)
    table = Page(page).table("System", "P@1", "p")
    column = table[0].index("P@1")
    for row in table[1:]:
        runs = [made.runs / "wikiqa" / row[0].split()[0] / f"seed{seed}" / "test.run" for seed in (0, 1)]
        hits = [
            ranking[0] in relevant[question] for run in runs for question, ranking in rankings(run).items()
        ]
        shown = re.search(r"0\.\d{4}|1\.0000", row[column])[0]
        assert float(shown) == pytest.approx(sum(hits) / (2 * QUESTIONS), abs=5e-5)
    assert {row[0].split()[0] for row in table[1:]} == set(SYSTEMS)
    rows = {row[0].split()[0]: row for row in against_random.table("System", "P@1", "p")[1:]}
    assert rows["ap-cnn"][1].startswith("▲")
    assert float(rows["ap-cnn"][-1].lstrip("<")) < 0.001
    assert rows["random"][-2:] == ["", ""]
    assert next(row for row in table[1:] if row[0].startswith("random"))[1].startswith("▼")


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


def by_change(changes: dict[str, float]) -> list[str]:
    """The questions with positive changes, the highest first, ties in the order of the ids."""
    gained = {question: round(change, 9) for question, change in changes.items() if change > 1e-9}
    return sorted(gained, key=lambda question: (-gained[question], question.encode()))


@pytest.fixture(scope="module")
def against_random(made) -> Page:
    options = ("--baseline", "random", "--questions", str(QUESTIONS))
    page = make_report(made, made.runs.parent / "shown.html", *options)
    return Page(page.read_text(encoding="utf-8"))


def best_trained(made) -> str:
    return max(TRAINED, key=lambda system: sum(average_precision(made, system).values()))


def test_shown_questions_have_the_largest_gains_and_losses(against_random, page, made):
    before, after = average_precision(made, "random"), average_precision(made, best_trained(made))
    gains = {question: after[question] - before[question] for question in before}
    losses = {question: -change for question, change in gains.items()}

    shown = [question["id"] for question in against_random.questions]
    assert shown == by_change(gains) + by_change(losses)
    assert 0 < len(Page(page).questions) <= 20  # of BM25


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
            if rank <= DEPTH or answer in relevant[name]
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


def test_texts_and_ids_with_markup_are_shown_as_they_are(against_random):
    questions = {question["id"]: question for question in against_random.questions}
    shown = questions.keys() & NASTY.keys()

    assert shown
    for name in shown:
        assert questions[name]["text"] == NASTY[name]
        assert {a["text"] for a in questions[name]["answers"] if a["relevant"]} == {NASTY[name]}
        assert questions[name]["missing"] == ["not-in-the-pool"]


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
    assert "aptool report" in page


def test_a_fine_tuned_network_has_the_configuration_of_its_training(tmp_path):
    """Its file is that of transformers, with an entry."""
    (tmp_path / "config.json").write_text('{"model_type": "bert", "aptool": {"versions": {"torch": "2"}}}')

    assert RunEntry("c", "s", 0, tmp_path / "x.run", tmp_path).config["versions"] == {"torch": "2"}


def test_charts_are_images_in_the_page(page):
    images = [attributes for tag, attributes in Page(page).elements if tag == "img"]
    drawn = [base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")) for image in images]

    assert [image["alt"] for image in images] == ["P@1 by length of the relevant answer", "Training by epoch"]
    assert all(ElementTree.fromstring(image).tag.endswith("svg") for image in drawn)
    # Lines of the trained systems and the baseline; others would hide them.
    shown = [{name for name in SYSTEMS if f">{name}</text>".encode() in image} for image in drawn]
    assert shown == [{*TRAINED, "bm25"}, set(TRAINED)]


def test_the_scale_has_few_round_ticks_around_all_intervals():
    for low, high, ticks in (
        (0.6, 0.65, [0.6, 0.62, 0.64, 0.66]),
        (0.21, 0.84, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.2, 0.8, [0.2, 0.4, 0.6, 0.8]),
        (-0.3, 0.1, [-0.3, -0.2, -0.1, 0.0, 0.1]),
    ):
        assert Scale.around([Interval(low, high), Interval(low, low)]).ticks == ticks

    scale = Scale.around([Interval(0.5, 0.5)])
    assert scale.ticks[0] <= 0.5 < scale.ticks[-1]
    assert [Scale([0.4, 0.6, 0.8]).percent(value) for value in (0.4, 0.5, 0.8)] == pytest.approx([0, 25, 100])
