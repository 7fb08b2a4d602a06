"""``aptool explain``: weights of a trained model on a terminal, as JSON and as HTML."""

import json
import re
from html.parser import HTMLParser

import pytest
import torch

from aptool.models.model import load_model
from aptool.models.ragged import Ragged

QUESTION = "where is the river with the bridge"
ANSWER = "the river near the bridge is silver"
NASTY = '<script>alert(1)</script> & [red]"it\'s"[/red] $x_2$ \x1b[31m\x07 עברית 😀 {{ 7 * 7 }}'


class Words(HTMLParser):
    """A parser of pages: words with weights, the text, and elements with attributes."""

    def __init__(self, page: str):
        super().__init__()
        self.words, self.text, self.elements = [], "", []
        self._weight = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self._weight = attributes.get("title") if attributes.get("class") in ("w", "w unknown") else None

    def handle_endtag(self, tag):
        self._weight = None

    def handle_data(self, data):
        self.text += data
        if self._weight is not None:
            self.words.append((data, float(self._weight)))


@pytest.fixture
def attention(model_folder):
    """A function that computes σ_q and σ_a of a pair with the pooling of the model."""
    model = load_model(model_folder)

    def of(question: str, answer: str) -> tuple[list[float], list[float]]:
        with torch.no_grad():
            states = [
                model.ranker.encoder(Ragged.of(model.tokenizer.encode([text]))) for text in (question, answer)
            ]
            q, a = model.ranker.pooling.attention(*states)
        return q[0].tolist(), a[0].tolist()

    return of


def explained(aptool, model_folder, *more, question=QUESTION, answer=ANSWER):
    return aptool("explain", "--model", model_folder, "--question", question, "--answer", answer, *more)


def weights(side: dict) -> list[float]:
    return [word["weight"] for word in side["words"]]


def test_json_has_the_weights_of_the_model(aptool, model_folder, attention):
    explanation = json.loads("".join(explained(aptool, model_folder, "--json").out))
    sigma_q, sigma_a = attention(QUESTION, ANSWER)

    assert weights(explanation["question"]) == pytest.approx(sigma_q, abs=1e-6)
    assert weights(explanation["answer"]) == pytest.approx(sigma_a, abs=1e-6)
    assert sum(weights(explanation["answer"])) == pytest.approx(1, abs=1e-6)
    assert [word["word"] for word in explanation["answer"]["words"]] == ANSWER.split()
    assert explanation["answer"]["words"][1]["window"] == "the river near"
    assert explanation["weights"] == "attention"


def test_plain_text_lists_the_strongest_windows_first(aptool, model_folder, attention):
    done = explained(aptool, model_folder)
    listed = [float(line.split()[0]) for line in done.out if re.match(r"  0\.\d{4}  ", line)]
    sigma_q, sigma_a = (sorted(side, reverse=True) for side in attention(QUESTION, ANSWER))

    assert done.code == 0
    assert listed == pytest.approx([*sigma_q, *sigma_a], abs=6e-5)
    assert QUESTION in done.out
    assert ANSWER in done.out
    assert not any("\x1b" in line for line in done.out)


def test_unknown_and_truncated_words_are_reported(aptool, model_folder):
    long = " ".join(["river", "zebra", *["bridge"] * 202])
    done = explained(aptool, model_folder, question=NASTY, answer=long)

    text = "\n".join(done.out)
    assert ("\x07" in text, "\x1b" in text, r"\x1b" in text, "[red]" in text) == (False, False, True, True)
    assert "not in the vocabulary: zebra" in done.out
    assert "truncated to 200 tokens: the last 4 words not read" in done.out


def test_page_shows_every_word_with_its_weight_as_plain_text(aptool, model_folder, attention, tmp_path):
    page = tmp_path / "page.html"
    done = explained(aptool, model_folder, "--html", page, question=NASTY, answer=NASTY + ANSWER)
    parsed = Words(page.read_text(encoding="utf-8"))
    sigma_q, sigma_a = attention(NASTY, NASTY + ANSWER)

    assert done.out == [str(page)]
    assert [weight for _, weight in parsed.words] == pytest.approx([*sigma_q, *sigma_a], abs=6e-5)
    assert "script" not in {tag for tag, _ in parsed.elements}
    assert NASTY.replace("\x1b", "").split()[0] in parsed.text.replace("\x1b", "")
    assert "{{ 7 * 7 }}" in parsed.text
    assert not any({"src", "href"} & attributes.keys() for _, attributes in parsed.elements)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--question", "a"], "Missing option '--answer'"),
        (["--model", "bm25", "--question", "a", "--answer", "b"], "bm25: a baseline, which has no weights"),
        (["--question", "a", "--answer", "b", "--html", "x.png"], "x.png: expected a name ending in .html"),
        (["--question", "a", "--answer", "b", "--device", "cuda:99"], "cuda:99"),
    ],
)
def test_mistakes_are_one_line(aptool, model_folder, given, message):
    done = aptool("explain", "--model", model_folder, *given)

    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert message in done.err[0]
