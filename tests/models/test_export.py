"""Trained models in the layouts of other libraries: the same scores there, and read back here."""

import numpy as np
import pytest
import torch
from networks import REASON, network_recipe, write_network
from tiny import recipe as words_recipe

from aptool.errors import AptoolError
from aptool.formats.collection import CollectionFiles
from aptool.library.model import load
from aptool.models.checkpoints.load import load_any
from aptool.models.export import export_model
from aptool.models.model import load_model
from aptool.training.fit import fit

pytest.importorskip("transformers", reason=REASON)

QUESTIONS = ["where is the market", "river bridge?", "violin"]
ANSWERS = ["the river is near the bridge ?", "market", "the silver hammer with the violin is the forest", ""]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, collection_folder):
    """Trains a model with a pooling and a projection; gives its folder."""
    folder = tmp_path_factory.mktemp("export")
    network = write_network(folder / "bert")

    def make(*options):
        name = folder / "-".join(options).replace("=", "-")
        if not name.exists():
            fit(CollectionFiles(collection_folder), network_recipe("mean-minilm", network, *options), name)
        return name

    return make


def scores(model):
    """(questions, answers) through the library."""
    return np.array([model.score([(question, answer) for answer in ANSWERS]) for question in QUESTIONS])


@pytest.mark.parametrize("projection", ["pooling.dim=0", "pooling.dim=6"])
@pytest.mark.parametrize("kind", ["mean", "first"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_sentence_transformers_scores_alike(trained, tmp_path, kind, similarity, projection):
    library = pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    options = [f"pooling.type={kind}", projection, f"similarity.type={similarity}", "training.epochs=1"]
    folder = trained(*options)

    assert export_model(load_model(folder), tmp_path / "out") == "sentence-transformers"

    other = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    found = other.similarity(other.encode(QUESTIONS), other.encode(ANSWERS))
    expected = scores(load(folder, "cpu"))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(scores(load(tmp_path / "out", "cpu")), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("projection", ["pooling.dim=0", "pooling.dim=6"])
def test_a_maxsim_is_a_colbert_of_pylate(trained, tmp_path, projection):
    """Its scores are the sums of the cosines."""
    folder = trained("pooling.type=maxsim", projection, "training.epochs=1")

    assert export_model(load_model(folder), tmp_path / "out") == "pylate"

    tokens = load_any(folder).tokenizer.encode(QUESTIONS).lengths
    found = scores(load(tmp_path / "out", "cpu")) / tokens[:, None]
    expected = scores(load(folder, "cpu"))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("projection", ["pooling.dim=0", "pooling.dim=6"])
@pytest.mark.filterwarnings("default")
def test_pylate_scores_alike(trained, tmp_path, projection):
    """In an environment of its own, as ``test_pylate.py``."""
    models = pytest.importorskip("pylate.models", reason="compares with PyLate: pip install pylate")
    folder = trained("pooling.type=maxsim", projection, "training.epochs=1")
    export_model(load_model(folder), tmp_path / "out")
    expected = scores(load(folder, "cpu"))

    library = models.ColBERT(str(tmp_path / "out"), device="cpu")
    Q = library.encode(QUESTIONS, is_query=True, convert_to_tensor=True, show_progress_bar=False)
    A = library.encode(ANSWERS, is_query=False, convert_to_tensor=True, show_progress_bar=False)
    theirs = torch.stack([torch.stack([(q @ a.T).amax(1).mean() for a in A]) for q in Q])
    np.testing.assert_allclose(theirs.numpy(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["pooling.type=max"], "max pooling; expected mean or first pooling"),
        (["pooling.type=mean", "similarity.type=gesd"], "gesd similarity; expected cosine or dot"),
    ],
)
def test_what_no_other_library_has(aptool, trained, tmp_path, options, said):
    done = aptool("export", trained(*options, "training.epochs=0"), "--output", tmp_path / "out")

    assert done.code == 1
    assert len(done.err) == 1
    assert said in done.err[0]
    assert not (tmp_path / "out").exists()


def test_models_over_words_are_refused_and_other_folders_are_kept(collection_folder, trained, tmp_path):
    fit(CollectionFiles(collection_folder), words_recipe("qa-cnn", "training.epochs=0"), tmp_path / "words")
    with pytest.raises(AptoolError, match="a model over a cnn encoder; expected one over a"):
        export_model(load_model(tmp_path / "words"), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(AptoolError):
        export_model(load_model(trained("pooling.type=mean", "training.epochs=0")), tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_a_model_of_another_library_is_copied_not_exported(trained, aptool, tmp_path):
    export_model(load_model(trained("pooling.type=mean", "training.epochs=0")), tmp_path / "theirs")

    refused = aptool("export", tmp_path / "theirs", "--output", tmp_path / "out")

    assert (refused.code, len(refused.err)) == (1, 1)
    assert (
        f"{tmp_path / 'theirs'}: a model of another library; expected a model that aptool" in refused.err[0]
    )
    assert not (tmp_path / "out").exists()
