"""The pictures of the docs, from the models, runs and report that ``make eval`` leaves: ``make pictures``.

Prints the answer of the heat map, and the share of words with nearly the greatest weight, for docs/report.md.
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import aptool
from aptool.evaluation.texts import length_groups
from aptool.reporting.charts import accuracy_by_length, plot_accuracy_by_length, svg

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
RUNS = ROOT / "runs" / "eval"
COLLECTION = ROOT / "data" / "functions"
AP_CNN = RUNS / "functions" / "ap-cnn" / "seed0"
QA_CNN = RUNS / "functions" / "qa-cnn" / "seed0"

ANSWER_WORDS = range(101, 141)
NEAR_GREATEST = 0.98


class Answer(NamedTuple):
    """A relevant answer that the model ranks first, and the share of its words near the greatest weight."""

    question_id: str
    question: str
    answer_id: str
    text: str
    saturated: float


def main() -> None:
    """Draw all pictures."""
    with sync_playwright() as started, tempfile.TemporaryDirectory() as folder:
        program = shutil.which("chromium")
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        _draw(Path(folder), browser)
        _report(browser)
        browser.close()


def _draw(folder: Path, browser: Browser) -> None:
    """Draw the plot and the heat map in a temporary folder and copy them."""
    (IMAGES / "accuracy-by-length.svg").write_text(_lengths(), encoding="utf-8")
    model = aptool.load(AP_CNN / "model", device="cpu")
    print(f"words near the greatest weight, of 100 dev questions: {_usual_share(model):.0%}")
    answers = _long_answers(model)
    print(
        f"relevant answers of {ANSWER_WORDS.start} to {ANSWER_WORDS[-1]} words ranked first: {len(answers)}"
    )
    answer = min(answers, key=lambda answer: answer.saturated)  # the most varied weights
    page = folder / "explain.html"
    pair = ("--question", answer.question, "--answer", answer.text)
    model_folder = (AP_CNN / "model").relative_to(ROOT)  # the page shows it
    _aptool("explain", "--model", model_folder, *pair, "--html", page)
    window = browser.new_page(viewport={"width": 1100, "height": 200})
    window.goto(page.as_uri())
    _write(IMAGES / "explain.png", window.screenshot(full_page=True))
    print(f"{page.name}: {answer.question_id} {answer.answer_id}: {answer.question}")


def _lengths() -> str:
    """The SVG of the accuracy by the length of the relevant answer."""
    collection = aptool.Collection(COLLECTION)
    qrels = collection.qrels("test")
    accuracy = {
        name: aptool.evaluate(qrels, folder / "test.run", "P@1").per_question
        for name, folder in (("qa-cnn", QA_CNN), ("ap-cnn", AP_CNN))
    }
    groups = length_groups(collection.pools("test"), qrels)
    return svg(plot_accuracy_by_length(accuracy_by_length(accuracy, groups)))


def _usual_share(model: aptool.Model) -> float:
    """The mean share of words with nearly the greatest weight, over relevant answers of dev."""
    pools, qrels = _split("dev")
    pairs = [
        (question, answers[answer]) for name, (question, answers) in pools.items() for answer in qrels[name]
    ]
    return float(np.mean([_saturated(model, *pair) for pair in pairs[:100]]))


def _long_answers(model: aptool.Model) -> list[Answer]:
    pools, qrels = _split("test")
    ranked = aptool.Run.load(AP_CNN / "test.run").to_dict()
    long_answers = []
    for name, (question, answers) in pools.items():
        best = max(ranked[name], key=lambda answer: (ranked[name][answer], answer))
        if qrels[name].get(best) and len(answers[best].split()) in ANSWER_WORDS:
            text = answers[best]
            long_answers.append(Answer(name, question, best, text, _saturated(model, question, text)))
    return long_answers


def _saturated(model: aptool.Model, question: str, answer: str) -> float:
    weights = model.explain(question, answer).answer.weights
    return float((weights >= NEAR_GREATEST * weights.max()).mean())


def _split(name: str) -> tuple[dict[str, tuple[str, dict[str, str]]], dict[str, dict[str, int]]]:
    collection = aptool.Collection(COLLECTION)
    return collection.pools(name).to_dict(), collection.qrels(name).to_dict()


def _report(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1100, "height": 760})
    page.goto((RUNS / "report.html").as_uri())
    table = page.locator(".part").first.bounding_box()
    assert table is not None
    clip = {"x": 0, "y": table["y"] - 16, "width": 1100, "height": table["height"] + 32}
    _write(IMAGES / "report-results.png", page.screenshot(clip=clip, full_page=True))


def _write(path: Path, png: bytes) -> None:
    """Write a PNG with a palette, which takes a third of the bytes."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)


def _aptool(*arguments: object) -> None:
    subprocess.run(
        [sys.executable, "-m", "aptool", *map(str, arguments)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
