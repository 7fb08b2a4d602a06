"""``aptool report``: values match the run files, heat maps match the models, markup is safe."""

import base64
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from report_page import Page
from report_runs import (
    NASTY,
    QUESTIONS,
    SYSTEMS,
    TRAINED,
    decoded,
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


def test_listing_has_the_rank_of_the_first_relevant_answer_in_the_run_file(page, made):
    listing = Page(page).data("c0-listing")
    relevant = relevant_answers(made.collection)
    assert [system["name"] for system in listing["systems"]] == list(SYSTEMS)
    for name, first in zip(SYSTEMS, listing["first"], strict=True):
        ranked = rankings(made.runs / "wikiqa" / name / "seed0" / "test.run")
        expected = [
            next(rank for rank, answer in enumerate(ranked[question], 1) if answer in relevant[question])
            for question in listing["ids"]
        ]
        assert first == expected


def test_records_have_first_and_relevant_answers_with_texts(made):
    page = Page(
        make_report(made, made.runs.parent / "shallow.html", "--depth", "2").read_text(encoding="utf-8")
    )
    listing, texts = page.data("c0-listing"), page.blocks("c0-texts")
    relevant = relevant_answers(made.collection)
    ranked = {name: rankings(made.runs / "wikiqa" / name / "seed0" / "test.run") for name in SYSTEMS}
    plain = [text if isinstance(text, str) else text[0] for text in texts]
    for question, record in zip(listing["ids"], page.blocks("c0-questions"), strict=True):
        for name, ranking in zip(SYSTEMS, record["rankings"], strict=True):
            order = ranked[name][question]
            expected = [
                [answer, rank]
                for rank, answer in enumerate(order, 1)
                if rank <= 2 or answer in relevant[question]
            ]
            assert [[record["answers"][answer][0], rank] for answer, _, rank in ranking] == expected
        assert {record["answers"][answer][0] for answer in record["relevant"]} | set(
            record["missing"]
        ) == relevant[question]
    assert len(plain) == len(set(plain))
    shown = page.blocks("c0-questions")[listing["ids"].index("nasty-script")]
    assert {plain[text] for _, text in shown["answers"]} <= {
        *NASTY.values(),
        "the river near the bridge is silver",
    }
    assert shown["missing"] == ["not-in-the-pool"]


def test_weights_in_the_page_are_those_of_the_models_and_sum_to_one(page, made):
    parsed = Page(page)
    listing, texts = parsed.data("c0-listing"), parsed.blocks("c0-texts")
    records = parsed.blocks("c0-questions")
    number = SYSTEMS.index("ap-cnn")
    model = load_model(made.runs / "wikiqa" / "ap-cnn" / "seed0" / "model")
    checked = 0
    for text, record in zip(listing["texts"], records, strict=True):
        for answer, *sides in record["heat_maps"][str(number)]:
            answer_text, spans = texts[record["answers"][answer][1]]
            ids = [Ragged.of(model.tokenizer.encode([side])) for side in (text, answer_text)]
            with torch.no_grad():
                alone = model.ranker.pooling.attention(*(model.ranker.encoder(tokens) for tokens in ids))
            for (packed, unknown), expected, tokens, word_spans in zip(
                sides, alone, ids, (record["spans"], spans), strict=True
            ):
                weights = decoded(packed)
                assert weights == pytest.approx(expected[0].numpy(), abs=1e-6)
                assert weights.sum() == pytest.approx(1, abs=1e-9)
                assert unknown == np.flatnonzero(tokens.values.numpy() == 1).tolist()
                assert len(word_spans) == 2 * len(weights)
            checked += 1
    assert checked >= QUESTIONS
    assert {map_[0] for map_ in records[0]["heat_maps"][str(number)]} >= {
        records[0]["rankings"][number][0][0]
    }
    assert "heat_maps" in records[0]
    assert set(records[0]["heat_maps"]) == {str(SYSTEMS.index(name)) for name in TRAINED}


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
    kinds = [attributes.get("type") for tag, attributes in parsed.elements if tag == "script"]
    assert kinds.count("module") == 1
    assert set(kinds) == {"module", "text/plain"}
    assert "alert(1)" not in page
    assert "\u2028" not in page


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
    again = make_report(made, made.runs.parent / "report.html")

    assert again.read_text(encoding="utf-8") == page


def test_page_has_at_most_the_requested_questions(made):
    short = make_report(made, made.runs.parent / "short.html", "--questions", "7").read_text(encoding="utf-8")
    parsed = Page(short)

    assert len(parsed.data("c0-listing")["ids"]) == len(parsed.blocks("c0-questions")) == 7
    assert f"The first 7 of {QUESTIONS} questions." in short


def test_page_has_tables_as_markdown_and_latex(page):
    texts = [attributes["data-copy"] for _, attributes in Page(page).elements if "data-copy" in attributes]
    shown = Page(page).table("System", "P@1", "p")

    markdown, latex = texts[:2]
    for row, line in zip(shown[1:], markdown.splitlines()[2:], strict=True):
        value = re.search(r"0\.\d{4}", row[1])[0]
        assert line.startswith(f"| {row[0].split()[0]} | {value} ")
    assert latex.startswith(
        "\\begin{tabular}{lrrrrr}\n\\toprule\nSystem & MAP & MRR & P@1 & $\\Delta$ MAP & p"
    )
    assert latex.count("\\\\\n") == len(shown)
    assert len(texts) > 3


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
