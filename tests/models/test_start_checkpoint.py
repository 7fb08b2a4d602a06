"""Training that starts from a sentence encoder of another library, and trained models in that library."""

import json

import numpy as np
import pytest
import torch
from networks import QUESTIONS, REASON, TEXTS, colbert, cross_encoder, network_recipe, write_network

import aptool
from aptool.models.initialization import training_recipe
from aptool.models.model import load_model
from aptool.training.fit import fit

pytest.importorskip("transformers", reason=REASON)
library = pytest.importorskip("sentence_transformers", reason="writes checkpoints of sentence-transformers")

LIMITS = ("text.max_question_tokens=12", "text.max_answer_tokens=64")
FAST = (*LIMITS, "training.minibatch=4", "training.sampled_negatives=2", "training.hard_negatives=1")
PAIRS = [(question, answer) for question in QUESTIONS.values() for answer in TEXTS.values()]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("network") / "bert")


def sentence_encoder(network, folder, mode="mean", *more):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    first = Transformer(str(network))
    modules = [first, Pooling(first.get_embedding_dimension(), mode), *more]
    library.SentenceTransformer(modules=modules, device="cpu").save(str(folder))


def normalized(network, folder):
    from sentence_transformers.sentence_transformer.modules import Normalize

    sentence_encoder(network, folder, "mean", Normalize())


def legacy(network, folder):
    """The layout of older versions: the network in a folder of its own, a pooling of flags."""
    sentence_encoder(network, folder)
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in list(folder.iterdir()):
        if path.name not in ("0_Transformer", "1_Pooling", "modules.json", "README.md"):
            path.rename(inner / path.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    flags = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    pooling = {"word_embedding_dimension": 16, **flags, "pooling_mode_max_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize("build", [sentence_encoder, normalized, legacy])
def test_without_an_epoch_the_scores_are_those_of_the_sentence_encoder(network, collection, tmp_path, build):
    build(network, tmp_path / "encoder")
    recipe = training_recipe(None, (*FAST, "training.epochs=0"), str(tmp_path / "encoder"))

    fit(collection, recipe, tmp_path / "model", device="cpu")

    actual, expected = (
        aptool.load(tmp_path / name, device="cpu").score(PAIRS) for name in ("model", "encoder")
    )
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "attentive", "maxsim", "mean-maxsim"])
def test_an_epoch_trains_every_layer_with_any_pooling(network, collection, tmp_path, pooling):
    sentence_encoder(network, tmp_path / "encoder")
    options = [*FAST, "training.epochs=1", f"pooling.type={pooling}", "training.learning_rate=1e-3"]
    before = network_recipe("mean-minilm", network, f"pooling.type={pooling}", "training.epochs=0")
    fit(collection, before, tmp_path / "untrained", device="cpu")

    recipe = training_recipe(None, options, str(tmp_path / "encoder"))
    result = fit(collection, recipe, tmp_path / "model", device="cpu")

    assert len(result.history) == 1
    weights = [load_model(tmp_path / name).ranker.state_dict() for name in ("untrained", "model")]
    changed = {name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])}
    assert {name for name in weights[0] if "pooler" not in name} == changed


def with_dense(network, folder):
    from sentence_transformers.base.modules import Dense

    sentence_encoder(network, folder, "mean", Dense(16, 8))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda network, folder: sentence_encoder(network, folder, "cls"),
            "Pooling with pooling cls; expected",
        ),
        (
            with_dense,
            "modules Transformer, Pooling, Dense with pooling mean; expected a network with mean pool",
        ),
        (lambda network, folder: cross_encoder(network, folder, 1), "expected a network with mean pooling"),
        (
            colbert,
            "modules Transformer, Dense, MultiVectorMask, Normalize; expected a network with mean pooling",
        ),
    ],
)
def test_another_start_is_one_line(aptool, network, collection_folder, tmp_path, build, message):
    build(network, tmp_path / "encoder")

    finished = aptool("train", collection_folder, "--start", tmp_path / "encoder", "--output", tmp_path / "m")

    assert (finished.code, len(finished.err)) == (1, 1)
    assert message in finished.err[0]
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_a_trained_mean_is_a_model_of_sentence_transformers(network, collection, tmp_path, similarity):
    options = ["training.epochs=1", f"similarity.type={similarity}"]
    fit(collection, network_recipe("mean-minilm", network, *options), tmp_path / "model", device="cpu")

    model = library.SentenceTransformer(str(tmp_path / "model"), device="cpu")

    questions, answers = (model.encode(list(texts.values())) for texts in (QUESTIONS, TEXTS))
    expected = aptool.load(tmp_path / "model", device="cpu").score(PAIRS)
    np.testing.assert_allclose(model.similarity(questions, answers).flatten(), expected, atol=1e-5)
    # Its weights are found under the names of transformers.
    from transformers import AutoModel

    loaded, report = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert all(name.startswith("pooler.") for name in report["missing_keys"])
    assert type(loaded).__name__ == "BertModel"


def test_another_trained_pooling_is_no_model_of_sentence_transformers(network, collection, tmp_path):
    recipe = network_recipe("maxsim-minilm", network, "training.epochs=0")
    fit(collection, recipe, tmp_path / "model", device="cpu")

    assert not (tmp_path / "model" / "modules.json").exists()
