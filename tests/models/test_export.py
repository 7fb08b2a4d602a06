"""Exported models give the same scores in other libraries, and in aptool."""

import numpy as np
import pytest
import torch
from networks import REASON, network_recipe, write_network
from tiny import recipe as words_recipe

from aptool.errors import AptoolError
from aptool.formats.collection import CollectionFiles
from aptool.library.model import load
from aptool.models.checkpoints import load_any
from aptool.models.export import export_model
from aptool.models.model import load_model
from aptool.training.fit import fit

pytest.importorskip("transformers", reason=REASON)

QUESTIONS = ["where is the market", "river bridge?", "violin"]
ANSWERS = ["the river is near the bridge ?", "market", "the silver hammer with the violin is the forest", ""]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, collection_folder):
    """A function that trains a model with some options and returns its folder."""
    folder = tmp_path_factory.mktemp("export")
    network = write_network(folder / "bert")

    def make(*options, preset="mean-minilm"):
        name = folder / "-".join([preset, *options]).replace("=", "-")
        if not name.exists():
            fit(CollectionFiles(collection_folder), network_recipe(preset, network, *options), name)
        return name

    return make


def scores(model):
    """(questions, answers) through the library."""
    return np.array([model.score([(question, answer) for answer in ANSWERS]) for question in QUESTIONS])


@pytest.mark.parametrize("projection", ["pooling.dim=0", "pooling.dim=6"])
@pytest.mark.parametrize("kind", ["mean", "first"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_sentence_transformers_gives_equal_scores(trained, tmp_path, kind, similarity, projection):
    library = pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    options = [f"pooling.type={kind}", projection, f"similarity.type={similarity}", "training.epochs=1"]
    folder = trained(*options)

    assert export_model(load_model(folder), tmp_path / "out") == "sentence-transformers"

    other = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    actual = other.similarity(other.encode(QUESTIONS), other.encode(ANSWERS))
    expected = scores(load(folder, "cpu"))
    np.testing.assert_allclose(actual.numpy(), expected, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(scores(load(tmp_path / "out", "cpu")), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("projection", ["pooling.dim=0", "pooling.dim=6"])
def test_maxsim_model_is_exported_for_pylate(trained, tmp_path, projection):
    # The exported model sums over the question's tokens; aptool's model takes the mean.
    folder = trained("pooling.type=maxsim", projection, "training.epochs=1")

    assert export_model(load_model(folder), tmp_path / "out") == "pylate"

    tokens = load_any(folder).tokenizer.encode(QUESTIONS).lengths
    actual = scores(load(tmp_path / "out", "cpu")) / tokens[:, None]
    expected = scores(load(folder, "cpu"))
    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("projection", ["pooling.dim=0", "pooling.dim=6"])
@pytest.mark.filterwarnings("default")
def test_pylate_gives_equal_scores(trained, tmp_path, projection):
    # PyLate needs a separate environment; see test_pylate.py.
    models = pytest.importorskip("pylate.models", reason="compares with PyLate: pip install pylate")
    folder = trained("pooling.type=maxsim", projection, "training.epochs=1")
    export_model(load_model(folder), tmp_path / "out")
    expected = scores(load(folder, "cpu"))

    library = models.ColBERT(str(tmp_path / "out"), device="cpu")
    Q = library.encode(QUESTIONS, is_query=True, convert_to_tensor=True, show_progress_bar=False)
    A = library.encode(ANSWERS, is_query=False, convert_to_tensor=True, show_progress_bar=False)
    actual = torch.stack([torch.stack([(q @ a.T).amax(1).mean() for a in A]) for q in Q])
    np.testing.assert_allclose(actual.numpy(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("read", ["first", "mean"])
def test_cross_encoder_with_a_new_head_gives_equal_scores_in_sentence_transformers(trained, tmp_path, read):
    library = pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    folder = trained(f"pooling.read={read}", "training.epochs=1", preset="cross-minilm")

    assert export_model(load_model(folder), tmp_path / "out") == "sentence-transformers"

    other = library.CrossEncoder(str(tmp_path / "out"), device="cpu")
    actual = [other.predict([(question, answer) for answer in ANSWERS]) for question in QUESTIONS]
    np.testing.assert_allclose(actual, scores(load(folder, "cpu")), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["pooling.type=max"], "max pooling; expected mean or first pooling"),
        (["pooling.type=mean", "similarity.type=gesd"], "gesd similarity; expected cosine or dot"),
    ],
)
def test_unsupported_components_are_refused(aptool, trained, tmp_path, options, message):
    done = aptool("export", trained(*options, "training.epochs=0"), "--output", tmp_path / "out")

    assert done.code == 1
    assert len(done.err) == 1
    assert message in done.err[0]
    assert not (tmp_path / "out").exists()


def test_models_over_words_and_foreign_folders_are_refused(collection_folder, trained, tmp_path):
    fit(CollectionFiles(collection_folder), words_recipe("qa-cnn", "training.epochs=0"), tmp_path / "words")
    with pytest.raises(AptoolError, match="a model over a cnn encoder; expected an encoder over a"):
        export_model(load_model(tmp_path / "words"), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(AptoolError):
        export_model(load_model(trained("pooling.type=mean", "training.epochs=0")), tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_model_of_another_library_is_not_exported(trained, aptool, tmp_path):
    export_model(load_model(trained("pooling.type=mean", "training.epochs=0")), tmp_path / "theirs")

    refused = aptool("export", tmp_path / "theirs", "--output", tmp_path / "out")

    assert (refused.code, len(refused.err)) == (1, 1)
    assert (
        f"{tmp_path / 'theirs'}: a model of another library; expected a model that aptool" in refused.err[0]
    )
    assert not (tmp_path / "out").exists()
