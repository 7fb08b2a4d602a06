"""`aptool train`: model folders, word vectors, several seeds, and one error line per mistake."""

import json
import re
import shutil

import numpy as np
import pytest
from recorded import recorded
from tiny import options, recipe

from aptool.data.collection import Collection
from aptool.data.writing import LabelledPool, write_collection
from aptool.models.model import load_model

# MRR of six candidates in random order: the mean of 1, 1/2, ..., 1/6.
RANDOM_MRR = 49 / 120


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny(system="ap-cnn", *more):
    """The ``--set`` options of a tiny model."""
    return [part for option in options(system, *more) for part in ("--set", option)]


def assert_one_line(finished, code, *phrases):
    assert (finished.code, finished.out) == (code, [])
    assert len(finished.err) == 1, finished.err
    assert finished.err[0].startswith("aptool: ")
    for phrase in phrases:
        assert phrase in finished.err[0]


def test_train_score_and_eval(aptool, folder, collection_folder):
    trained = aptool(
        "train", collection_folder, "--preset", "qa-cnn", "--output", "model", "--seed", "3", *tiny("qa-cnn")
    )

    assert trained.code == 0
    metrics = r"dev MAP 0\.\d{4}, MRR 0\.\d{4}, P@1 \d\.\d{4}"
    assert re.fullmatch(rf"model: best epoch \d of 4, {metrics}", trained.out[0].replace("1.0000", "0.9999"))
    assert len(trained.out) == 1
    assert trained.err[0].startswith("training qa-cnn on 40 pairs of 40 questions, 40 answers")
    assert [line.split(":")[0] for line in trained.err[1:]] == [f"epoch {n}" for n in (1, 2, 3, 4)]
    assert json.loads((folder / "model" / "config.json").read_text())["training"]["seed"] == 3

    scored = aptool(
        "score", collection_folder / "test.pools.parquet", "--model", "model", "--output", "test.run"
    )
    assert (scored.code, scored.out) == (0, ["test.run: 120 pairs"])
    evaluated = aptool("eval", "test.run", "--qrels", collection_folder / "test.qrels")
    assert evaluated.code == 0
    name, questions, _, mrr, _ = evaluated.out[1].split()
    assert (name, questions) == ("test.run", "20")
    assert float(mrr) > RANDOM_MRR + 0.15


def test_default_preset_model_and_output(aptool, folder, collection_folder):
    # The preset has its full size.
    shutil.copytree(collection_folder, "data/small")

    trained = aptool("train", "data/small")
    scored = aptool("score", "data/small/test.pools.parquet", "--output", "data/small/test.run")

    assert (trained.code, scored.code) == (0, 0)
    assert trained.err[0] == "--output models/ap-cnn (default)"
    assert trained.out[0].startswith("models/ap-cnn: best epoch ")
    assert load_model("models/ap-cnn").ranker.encoder.size == 400
    assert scored.out == ["data/small/test.run: 120 pairs"]
    assert aptool("eval", "data/small/test.run").code == 0


@pytest.fixture
def vectors(folder):
    """A vectors file with a word of train, a word of test only, and a word of no split."""
    (folder / "vectors.txt").write_text("river 1 2\nharbour 3 4\nzebra 5 6\n")
    return "vectors.txt"


def pool(question_id, text, relevance=None):
    relevance = {"a1": 1} if relevance is None else relevance
    return LabelledPool(
        question_id, f"where is the {text}", ["a1", "a2"], [f"the {text}", "elsewhere"], relevance
    )


def embedding_of(model, word):
    return model.ranker.encoder.embedding.weight[model.tokenizer.words.index(word)].tolist()


def test_vectors_from_a_file_initialize_the_embeddings(aptool, folder, vectors):
    splits = {
        "train": [pool("q1", "river")],
        "dev": [pool("q2", "river")],
        "test": [pool("q3", "harbour", {})],  # without labels
    }
    write_collection("c", splits, name="c", source="here")

    trained = aptool(
        "train", "c", "--output", "m", "--vectors", vectors, *tiny("ap-cnn", "training.epochs=0")
    )

    assert trained.code == 0
    assert trained.out[0].startswith("m: untrained, dev MAP ")
    model = load_model("m")
    assert model.config["dim"] == 2
    assert model.recipe.vectors.dim == 2
    assert embedding_of(model, "river") == [1, 2]
    # Words of test get their vectors too; words of no split are left out; padding is zero.
    assert embedding_of(model, "harbour") == [3, 4]
    assert "zebra" not in model.tokenizer.words
    assert embedding_of(model, "[PAD]") == [0, 0]
    rest = [
        embedding_of(model, word) for word in model.tokenizer.words[1:] if word not in ("river", "harbour")
    ]
    assert np.abs(rest).max() <= 0.25
    assert len({tuple(vector) for vector in rest}) == len(rest)


def test_vectors_without_a_word_of_the_collection_are_refused(aptool, folder, collection_folder):
    (folder / "other.txt").write_text("Fluss 1 2\nBrücke 3 4\n", encoding="utf-8")

    finished = aptool("train", collection_folder, "--output", "m", "--vectors", "other.txt", *tiny())

    assert finished.code == 1
    assert finished.err[-1].startswith("aptool: other.txt: no vector for any word of the collection; ")


def test_embeddings_can_be_frozen(aptool, folder, vectors, collection_folder):
    trained = aptool(
        "train",
        collection_folder,
        "--output",
        "m",
        "--vectors",
        vectors,
        *tiny("ap-cnn", "vectors.fine_tune=false", "training.epochs=1"),
    )

    assert trained.code == 0
    assert embedding_of(load_model("m"), "river") == [1, 2]


def test_learned_vectors_initialize_every_word(aptool, folder, collection_folder):
    options = tiny("ap-cnn", "vectors.source=learned", "training.epochs=1")
    trained = aptool("train", collection_folder, "--output", "m", *options)

    assert trained.code == 0
    assert any(line.startswith("learning 16-dimensional word vectors from ") for line in trained.err)
    # Every word has a learned vector; [PAD] and [UNK] are not words.
    words = len(load_model("m").tokenizer) - 2
    assert any(f"({words} with vectors)" in line for line in trained.err)


def test_learned_vectors_are_learned_once_for_several_systems(collection_folder, folder):
    from aptool.training.fit import fit

    learned = recipe("qa-cnn", "vectors.source=learned", "training.epochs=1")
    with recorded() as log:
        for name in ("one", "two"):
            fit(Collection(collection_folder), learned, folder / name, vectors_cache=folder / "vectors")

    assert sum(message.startswith("learning ") for message in log.messages) == 1
    weights = [(folder / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


def test_finished_training_is_not_repeated(aptool, folder, collection_folder):
    command = ("train", collection_folder, "--output", "model", *tiny("qa-cnn", "training.epochs=1"))

    first, again = aptool(*command), aptool(*command)

    assert (again.code, again.out) == (0, first.out)
    assert again.err == ["model: up to date: same recipe, data and seed. Delete the folder to train again."]
    other = aptool(*command, "--seed", "1")
    assert other.err == [
        "aptool: model: it exists; expected another path, or --overwrite (in Python, overwrite=True)"
    ]


BAD = {
    "negative seed": (["C", "--seed", "-1"], 2, "-1 is not in the range 0<=x<="),
    "workers without a cluster": (["C", "--workers", "2"], 2, "--workers: requires --cluster"),
    "address that is none": (
        ["C", "--cluster", "http://head:8265"],
        2,
        "--cluster 'http://head:8265': expected",
    ),
    "unknown device": (["C", "--device", "abacus"], 2, "--device 'abacus': "),
}


@pytest.mark.parametrize(("arguments", "code", "message"), BAD.values(), ids=BAD.keys())
def test_wrong_usage_is_one_line(aptool, folder, collection_folder, arguments, code, message):
    given = [str(collection_folder) if argument == "C" else argument for argument in arguments]

    assert_one_line(aptool("train", *given, "--output", "model"), code, message)
    assert list(folder.iterdir()) == []
