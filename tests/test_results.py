"""Published results: pages equal their JSON, and results of an older numeric version are named."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from aptool.config import preset_names
from aptool.models.pooling import Cosine
from bench import fingerprint
from bench.fingerprint import is_same_version, numeric_fingerprint
from tools import result_tables as tables
from tools import results as generator

RESULTS = generator.read_results()
COMMITTED = json.loads(generator.FINGERPRINTS.read_text(encoding="utf-8"))


def test_pages_equal_their_results():
    pages = {page: page.read_text(encoding="utf-8") for page in generator.pages()}

    different = [
        page.name for page, text in pages.items() if generator.filled(text, RESULTS, COMMITTED) != text
    ]
    assert different == [], "run `make results`"


@pytest.mark.skipif(not os.environ.get("APTOOL_DATA"), reason="APTOOL_DATA is not set")
def test_the_figures_of_a_table_are_those_of_its_runs():
    results = {name: RESULTS[name] for name in ("late", "late-zero")}

    assert generator.from_runs(results, Path(os.environ["APTOOL_DATA"])) == results


def test_the_picture_has_the_systems_of_its_result():
    # The rest of a picture depends on the version of matplotlib.
    labels = re.compile(r"<text[^>]*>([^<]+)</text>")
    committed = (generator.IMAGES / "insuranceqa-lengths.svg").read_text(encoding="utf-8")

    drawn = set(labels.findall(generator.lengths_picture(RESULTS)))

    assert set(labels.findall(committed)) == drawn > {"ap-cnn-large-batch", "qa-cnn-distilled"}


def test_every_result_is_on_a_page_and_every_marker_has_a_result():
    names = [
        match["name"].partition("/")[0]
        for page in generator.pages()
        for match in generator.MARKERS.finditer(page.read_text(encoding="utf-8"))
    ]

    assert set(names) == {*RESULTS, *tables.OF_SEVERAL}


def test_the_numeric_version_of_this_code_is_the_committed_one():
    pytest.importorskip("transformers", reason="fingerprints of pretrained encoders need transformers")
    computed = fingerprint.numeric_fingerprints()

    changed = [name for name in computed if not is_same_version(COMMITTED.get(name, ""), computed[name])]
    older = {name for name, result in RESULTS.items() if tables.older_presets(result, computed)}
    assert (changed, COMMITTED.keys() - computed.keys()) == ([], set()), (
        f"the numerics of these presets have changed; of an older version are now {sorted(older)}: "
        "`make results` writes the new fingerprints and says so on their pages"
    )


def test_every_preset_has_a_fingerprint_of_eight_scores():
    assert sorted(COMMITTED) == preset_names()
    assert {len(scores.split()) for scores in COMMITTED.values()} == {8}


def test_changed_numerics_change_the_fingerprint(monkeypatch):
    before = Cosine.matrix
    monkeypatch.setattr(Cosine, "matrix", lambda self, r_q, r_a: 0.99 * before(self, r_q, r_a))

    assert not is_same_version(numeric_fingerprint("qa-cnn"), COMMITTED["qa-cnn"])


def result(**entries):
    return {**RESULTS["late"], **entries}


def test_a_result_of_an_older_numeric_version_says_so():
    value = COMMITTED["mean-minilm"]
    current = result(fingerprint={"mean-minilm": value})
    older = result(fingerprint={"mean-minilm": "0.1 " + value.partition(" ")[2], "gone": value})

    assert "version of" not in tables.caption(current, COMMITTED)
    assert "older version of the code of mean-minilm, gone" in tables.caption(older, COMMITTED)
    assert "Numeric version not recorded" in tables.caption(result(fingerprint={}), COMMITTED)


def test_make_results_keeps_a_fingerprint_within_a_unit_of_its_last_decimal():
    computed = {"same": "0.511 0.300", "other": "0.520 0.300", "new": "0.100"}

    kept = generator.updated({"same": "0.510 0.300", "other": "0.510 0.300", "gone": "0.100"}, computed)

    assert kept == {"same": "0.510 0.300", "other": "0.520 0.300", "new": "0.100"}


def test_check_names_a_page_that_differs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["results.py", "--check"])
    monkeypatch.setattr(generator, "numeric_fingerprints", lambda: COMMITTED)
    picture = (generator.IMAGES / "insuranceqa-lengths.svg").read_text(encoding="utf-8")
    monkeypatch.setattr(generator, "lengths_picture", lambda results: picture)
    generator.main()
    assert capsys.readouterr().out == ""

    changed = json.loads(json.dumps(RESULTS))
    changed["make-eval"]["systems"][0]["means"]["MAP"] = 0.9999
    monkeypatch.setattr(generator, "read_results", lambda: changed)
    with pytest.raises(SystemExit) as ended:
        generator.main()

    assert "make results" in str(ended.value)
    assert capsys.readouterr().out.split() == ["docs/results/paper.md"]


def test_result_pages_have_at_most_4000_words_of_prose():
    texts = [page.read_text(encoding="utf-8") for page in generator.RESULTS.glob("*.md")]
    generated_or_code = re.compile(r"<!-- results:.*?<!-- /results -->|```.*?```", re.DOTALL)

    assert sum(len(generated_or_code.sub("", text).split()) for text in texts) <= 4000
