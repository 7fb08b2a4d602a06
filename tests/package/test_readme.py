"""README.md: its Python, commands and links work."""

import os
import re
import shlex
from pathlib import Path

import pytest
from networks import write_network
from readme import COLLECTION, ENCODER, README, blocks, rank_answers, train_and_compare

from aptool import Collection, bm25_run, evaluate

ROOT = README.parent
TEXT = README.read_text(encoding="utf-8")
RANKING = re.compile(r"^(-?\d\.\d{3})  (.+)$", re.M)
PRINTED = RANKING.findall(TEXT)
RIGHT = "Returns are refunded within 14 days."


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tiny_encoder(folder):
    """A local folder with the model name of the README, which aptool prefers to the hub."""
    pytest.importorskip("transformers", reason="needs the extra transformers")
    return write_network(folder / ENCODER, positions=512)


@pytest.mark.usefixtures("tiny_encoder")
def test_first_example_ranks_every_answer(capsys):
    answers = rank_answers()["answers"]

    ranking = RANKING.findall(capsys.readouterr().out)
    scores = [float(score) for score, _ in ranking]
    assert sorted(text for _, text in ranking) == sorted(answers)
    assert scores == sorted(scores, reverse=True)


def test_first_example_prints_the_relevant_answer_first(folder, capsys):
    """With the real encoder, whose output the README shows."""
    encoder = os.environ.get("APTOOL_ENCODER")
    if encoder is None:
        pytest.skip(f"APTOOL_ENCODER names no folder with {ENCODER}")
    pytest.importorskip("transformers", reason="needs the extra transformers")
    (folder / ENCODER).parent.mkdir(parents=True)
    (folder / ENCODER).symlink_to(Path(encoder).resolve(), target_is_directory=True)

    rank_answers()

    ranking = RANKING.findall(capsys.readouterr().out)
    assert ranking[0][1] == PRINTED[0][1] == RIGHT
    assert [text for _, text in ranking] == [text for _, text in PRINTED]
    expected = [float(score) for score, _ in PRINTED]
    assert [float(score) for score, _ in ranking] == pytest.approx(expected, abs=0.005)


@pytest.mark.usefixtures("tiny_encoder")
def test_second_example_trains_and_compares(collection_folder):
    names = train_and_compare(collection_folder)

    assert (
        0
        <= names["aptool"].compare(names["bm25_run"], names["run"], names["data"].qrels("test"), "MAP")[0].p
        <= 1
    )
    assert Path("models/faq-python/model.safetensors").is_file()


def test_bm25_has_the_printed_measures(aptool, folder):
    """Unlike a trained system, BM25 gives the same measures on every machine."""
    (folder / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    words = next(block for block in blocks("sh") if block.startswith("aptool data import"))
    assert aptool(*shlex.split(words)[1:]).code == 0
    collection = Collection(COLLECTION)

    run = bm25_run(collection.pools("test"))
    means = evaluate(collection.qrels("test"), run, ["MAP", "MRR", "P@1"]).means

    printed = [line.split() for line in blocks("text")[0].splitlines()]
    assert ["bm25.run", "78", *(f"{means[name]:.4f}" for name in ("MAP", "MRR", "P@1"))] in printed
    row = next(line for line in TEXT.splitlines() if line.startswith("| `bm25` |"))
    assert row.split(" | ")[-1].rstrip(" |") == f"{means['MAP']:.3f}"


def test_printed_lines_are_those_of_the_start_page():
    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    local, trained = (block.splitlines() for block in blocks("text")[:2])
    means = {
        line.split()[0]: re.findall(r"\d\.\d{4}(?= \[)", line) for line in start.splitlines() if " [" in line
    }

    assert all(line in start.splitlines() for line in trained if line != "...")
    assert all(means[name] == values for name, _, *values in map(str.split, local[1:]))
