"""Initial weights: those of a trained model to start from, with new words, and vectors that are learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from published import published_recipe
from tiny import recipe

from aptool.config import VectorOptions
from aptool.data.collection import Collection
from aptool.data.writing import LabelledPool, write_collection
from aptool.errors import AptoolError, InputError
from aptool.models.initialization import learned_vectors
from aptool.models.model import load_model
from aptool.text.tokenizer import WordTokenizer
from aptool.text.vectors import WordVectors, write_vectors
from aptool.training.fit import fit

NEW = "zeppelin"
FREQUENT = "balloon"  # in dev only, and the most frequent word of all texts


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A collection with a word that the tiny collection lacks."""
    folder = tmp_path_factory.mktemp("other") / "other"
    texts = [f"the {NEW} is in the garden", "the river is near the forest", "the candle is silver"]
    splits = {}
    for split in ("train", "dev"):
        names = [f"{split}-{n}" for n in range(3)]
        question = f"where is the {NEW}" + f" {FREQUENT}" * 20 * (split == "dev")
        splits[split] = [LabelledPool(f"{split}-q", question, names, texts, {names[0]: 1})]
    write_collection(folder, splits, name="other", source="made for tests")
    return Collection(folder)


def started(model_folder, *more):
    return recipe("ap-cnn", *more).with_start(str(model_folder))


def test_without_an_epoch_it_is_the_model_with_more_words(model_folder, other, tmp_path):
    before = load_model(model_folder)
    fit(other, started(model_folder, "training.epochs=0"), tmp_path / "model")
    after = load_model(tmp_path / "model")

    words = len(before.tokenizer)
    assert after.tokenizer.words[:words] == before.tokenizer.words
    assert NEW in after.tokenizer.words[words:]
    for name, weight in before.ranker.state_dict().items():
        weights = after.ranker.state_dict()[name]
        assert torch.equal(weights[:words] if name == "encoder.embedding.weight" else weights, weight)
    texts = ["where is the river", "the river near the garden is silver"]
    scores = [model.ranker(*(_ids(model, text) for text in texts)).item() for model in (before, after)]
    assert scores[0] == scores[1]


def _ids(model, text):
    from aptool.models.ragged import Ragged

    return Ragged.of(model.tokenizer.encode([text]))


def test_training_starts_from_the_weights_of_the_model(model_folder, collection, tmp_path):
    from_scratch = fit(collection, recipe("ap-cnn", "training.epochs=1"), tmp_path / "scratch", seed=3)
    further = fit(collection, started(model_folder, "training.epochs=1"), tmp_path / "further", seed=3)

    assert further.history[0]["loss"] < 0.5 * from_scratch.history[0]["loss"]


def test_new_words_start_from_a_vector_file(model_folder, other, tmp_path):
    vectors = np.arange(32, dtype=np.float32).reshape(2, 16)
    write_vectors(tmp_path / "vectors.bin", WordVectors([NEW, FREQUENT], vectors, "test"))

    options = ("training.epochs=0", f"vectors.source={tmp_path / 'vectors.bin'}")
    fit(other, started(model_folder, *options), tmp_path / "model")

    model = load_model(tmp_path / "model")
    rows = [model.tokenizer.words.index(word) for word in (NEW, FREQUENT)]
    np.testing.assert_allclose(model.ranker.encoder.embedding.weight[rows].detach().numpy(), vectors)
    assert model.config["training"]["words_with_vectors"] == len(load_model(model_folder).tokenizer) + 2


def test_missing_vectors_of_the_model_are_an_error(model_folder, other, tmp_path, aptool):
    write_vectors(tmp_path / "vectors.bin", WordVectors([NEW], np.ones((1, 16), np.float32), "test"))
    options = ("training.epochs=0", f"vectors.source={tmp_path / 'vectors.bin'}")
    fit(other, started(model_folder, *options), tmp_path / "first")
    (tmp_path / "vectors.bin").unlink()
    again = ("train", other.path, "--start", tmp_path / "first", "--output", tmp_path / "second")

    refused = aptool(*again)

    assert refused.code == 1
    assert refused.err[-1].endswith("vectors.bin: file not found; expected a file that exists")
    assert aptool(*again, "--vectors", "random").code == 0


def test_statistics_of_pair_features_are_those_of_the_new_texts(collection, other, tmp_path):
    yang = published_recipe("yang-2015", "training.epochs=0")
    fit(collection, yang, tmp_path / "first")
    fit(other, yang.with_start(str(tmp_path / "first")), tmp_path / "second")

    first, second = (load_model(tmp_path / name) for name in ("first", "second"))
    assert len(second.ranker.features.idf) == len(second.tokenizer) > len(first.tokenizer)
    assert not torch.equal(second.ranker.features.corpus, first.ranker.features.corpus)


@pytest.mark.parametrize(
    ("made", "phrase"),
    [
        (lambda: recipe("qa-cnn"), r"pooling\..*: .*as in the model"),
        (
            lambda: recipe("ap-cnn", "encoder.features=8"),
            r"encoder\.features: 8: expected 16, as in the model",
        ),
        (lambda: recipe("ap-cnn", "text.lowercase=false"), r"text\.lowercase: False: expected True, as in"),
        (lambda: recipe("ap-cnn", "similarity.type=dot"), r"similarity\.type: 'dot': expected 'cosine'"),
    ],
)
def test_another_system_is_refused_before_any_work(model_folder, other, tmp_path, made, phrase):
    with pytest.raises(InputError, match=phrase):
        fit(other, made().with_start(str(model_folder)), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_start_that_is_not_a_model_is_refused(model_folder, other, tmp_path):
    with pytest.raises(AptoolError, match="folder not found; expected a model"):
        fit(other, recipe("ap-cnn").with_start(str(tmp_path / "none")), tmp_path / "model")
    with pytest.raises(InputError, match="also an input of this command; expected another"):
        fit(other, started(model_folder), model_folder)


def test_another_start_is_another_training(model_folder, other, tmp_path, aptool):
    arguments = ("train", other.path, "--set", "training.epochs=1", "--output", tmp_path / "model")
    first = aptool(*arguments, "--start", model_folder)
    again = aptool(*arguments, "--start", model_folder)
    fit(other, recipe("ap-cnn", "training.epochs=0"), tmp_path / "start")
    refused = aptool(*arguments, "--start", tmp_path / "start")
    changed = aptool(*arguments, "--start", tmp_path / "start", "--overwrite")

    assert [finished.code for finished in (first, again, refused, changed)] == [0, 0, 1, 0]
    assert any("up to date" in line for line in again.err)
    assert "expected another path, or --overwrite" in refused.err[-1]


def test_learned_vectors_are_cached_by_all_of_their_inputs(tmp_path):
    words = WordTokenizer.learn(["where is the river", "the bridge is near the river"])
    tokens = words.encode(["where is the river", "the bridge is near the river"])
    usual = VectorOptions(dim=4)
    inputs = [
        (usual, 0),
        (usual, 1),
        (replace(usual, window=3), 0),
        (replace(usual, epochs=2), 0),
        (usual, 0),
    ]

    actual = [learned_vectors(words, tokens, *given, tmp_path).matrix for given in inputs]

    assert len(list(tmp_path.iterdir())) == 4
    assert np.array_equal(actual[0], actual[4])
