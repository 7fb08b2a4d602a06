"""Training that starts from the checkpoint of another library."""

import json

import numpy as np
import pytest
import torch
from networks import REASON, colbert, cross_encoder, write_network

import aptool
from aptool.errors import AptoolError, InputError
from aptool.models.build import build_ranker
from aptool.models.checkpoints import load_any
from aptool.models.initialization import TrainingTexts
from aptool.models.model import load_model
from aptool.models.ragged import Ragged
from aptool.models.start import initial_system, training_recipe
from aptool.training.fit import fit

pytest.importorskip("transformers", reason=REASON)
library = pytest.importorskip("sentence_transformers", reason="writes checkpoints of sentence-transformers")

PAIRS = [
    ("where is the market", "the river is near the bridge ?"),
    ("where is the market", "market"),
    ("river bridge?", "the silver hammer with the violin is the forest near the mountain"),
    ("is the teacher near the window ?", "market , the . teacher"),
]
FAST = ("training.minibatch=4", "training.sampled_negatives=2", "training.hard_negatives=1")


def sentence_encoder(network, folder, mode="mean", **options):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    first = Transformer(str(network))
    modules = [first, Pooling(first.get_embedding_dimension(), mode)]
    library.SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder))


PROMPTS = {"query": "where is the ", "document": "near "}
EXPANSION = {"strategy": "fixed", "length": 12, "token": "[MASK]", "attend": False}
CHECKPOINTS = {
    "mean": lambda network, folder: sentence_encoder(network, folder),
    "cls, dot, prompts": lambda network, folder: sentence_encoder(
        network, folder, "cls", similarity_fn_name="dot", prompts=PROMPTS
    ),
    "colbert": lambda network, folder: colbert(network, folder, skip=[".", ","]),
    "colbert with masks": lambda network, folder: colbert(
        network, folder, transformer={"query_expansion": EXPANSION}, prompts=PROMPTS
    ),
}


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("network") / "bert")


def scores(folder):
    return aptool.load(folder, device="cpu").score(PAIRS)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_without_an_epoch_the_scores_are_those_of_the_checkpoint(network, collection, tmp_path, name):
    CHECKPOINTS[name](network, tmp_path / "checkpoint")
    recipe = training_recipe(None, (*FAST, "training.epochs=0"), str(tmp_path / "checkpoint"))

    fit(collection, recipe, tmp_path / "model", device="cpu")

    np.testing.assert_allclose(scores(tmp_path / "model"), scores(tmp_path / "checkpoint"), atol=1e-5)
    before = json.loads((tmp_path / "checkpoint" / "tokenizer.json").read_text())
    after = json.loads((tmp_path / "model" / "tokenizer.json").read_text())
    assert after["model"]["vocab"] == before["model"]["vocab"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_an_epoch_trains_every_part(network, collection, tmp_path, name):
    CHECKPOINTS[name](network, tmp_path / "checkpoint")
    options = (*FAST, "training.epochs=1", "training.learning_rate=1e-3")
    recipe = training_recipe(None, options, str(tmp_path / "checkpoint"))

    result = fit(collection, recipe, tmp_path / "model", device="cpu")

    assert len(result.history) == 1
    assert np.isfinite(scores(tmp_path / "model")).all()
    before = load_any(tmp_path / "checkpoint").ranker.state_dict()
    after = load_any(tmp_path / "model").ranker.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    unused = ("pooler", "position_ids") if "encoder" not in name else ()
    assert {name for name in before if not any(part in name for part in unused)} <= changed
    assert not np.allclose(scores(tmp_path / "model"), scores(tmp_path / "checkpoint"), atol=1e-4)


def test_a_second_start_has_the_states_of_the_model(network, collection, tmp_path):
    CHECKPOINTS["colbert with masks"](network, tmp_path / "checkpoint")
    recipe = training_recipe(None, (*FAST, "training.epochs=0"), str(tmp_path / "checkpoint"))
    fit(collection, recipe, tmp_path / "model", device="cpu")

    again = training_recipe(None, ["training.epochs=0"], str(tmp_path / "model"))
    initial = initial_system(again, TrainingTexts([], lambda: iter(()), 0))
    system = build_ranker(again, *initial.spec)
    initial.load_weights(system)

    question = Ragged.of(initial.tokenizer.encode(["river"], 12, "question"))  # and masks without attention
    model = load_model(tmp_path / "model").ranker
    assert torch.equal(system.eval().encode(question).values, model.encode(question).values)


def test_words_of_a_model_with_prompt_masks_and_skipped_tokens_are_explained(network, collection, tmp_path):
    options = {"skip": ["the"], "transformer": {"query_expansion": EXPANSION}, "prompts": {"query": "near "}}
    colbert(network, tmp_path / "checkpoint", **options)
    recipe = training_recipe(None, (*FAST, "training.epochs=0"), str(tmp_path / "checkpoint"))
    fit(collection, recipe, tmp_path / "model", device="cpu")
    question, answer = "where is river", "the market near the bridge"

    actual = aptool.load(tmp_path / "model", device="cpu").explain(question, answer)

    # [CLS] near where is riv ##er [SEP] and five [MASK]: every token of a question has the same weight.
    np.testing.assert_allclose(actual.question.weights, [1 / 4, 1 / 4, 2 / 4], atol=1e-6)
    assert actual.question.special_tokens == pytest.approx(8 / 12)
    # [CLS] market near bri ##dge [SEP]: "the" is a word, but not matched.
    model = load_model(tmp_path / "model")
    states = [
        torch.nn.functional.normalize(model.ranker.encode(Ragged.of(tokens)).values, dim=1)
        for tokens in (
            model.tokenizer.encode([question], None, "question"),
            model.tokenizer.encode([answer], None, "answer"),
        )
    ]
    S = (states[0] @ states[1].T).detach().numpy()
    assert S.shape == (12, 6)
    words = S[2:6, 1:5]
    words = np.stack([words[0], words[1], words[2:].max(0)])
    words = np.stack([words[:, 0], words[:, 1], words[:, 2:].max(1)])
    np.testing.assert_allclose(actual.alignment[:, [1, 2, 4]], words.T, atol=1e-6)
    np.testing.assert_array_equal(actual.alignment[:, [0, 3]], 0)
    np.testing.assert_array_equal(actual.answer.weights[[0, 3]], 0)
    assert actual.answer.weights.sum() == pytest.approx(1)
    assert actual.score == pytest.approx(S.max(1).sum(), abs=1e-5)
    assert not actual.answer.unknown


def test_the_library_starts_from_a_checkpoint(network, collection, tmp_path):
    colbert(network, tmp_path / "checkpoint")

    options = {"training.epochs": 1, "training.sampled_negatives": 2, "training.hard_negatives": 1}
    model = aptool.train(collection.path, start=tmp_path / "checkpoint", set=options, device="cpu")

    assert model.preset == "maxsim-minilm"
    assert model.config["recipe"]["pooling"] == {"type": "maxsim", "reduce": "sum", "dim": 8}


def static(network, folder):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = library.SentenceTransformer(str(network), device="cpu").tokenizer
    embedding = StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=8)
    library.SentenceTransformer(modules=[embedding], device="cpu").save(str(folder))


@pytest.mark.parametrize(
    ("write", "options", "message"),
    [
        (static, {}, "a model of kind static; expected a sentence encoder or a ColBERT"),
        (lambda network, folder: cross_encoder(network, folder, 1), {}, "a model of kind cross-encoder; exp"),
        (lambda network, folder: sentence_encoder(network, folder, "max"), {}, "pooling max"),
        (CHECKPOINTS["mean"], {"preset": "maxsim-minilm"}, "pooling.type: 'maxsim': expected mean"),
        (CHECKPOINTS["mean"], {"set": ["pooling.dim=4"]}, "pooling.dim: 4: expected None"),
        (CHECKPOINTS["mean"], {"set": ["text.max_answer_tokens=100"]}, "expected at most 64"),
    ],
)
def test_a_wrong_start_is_one_line(network, collection, tmp_path, write, options, message):
    write(network, tmp_path / "checkpoint")

    with pytest.raises(AptoolError) as caught:
        aptool.train(collection.path, start=tmp_path / "checkpoint", device="cpu", **options)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def change(path, **entries):
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_settings_of_a_sentence_encoder_carry_on_through_training(network, collection, tmp_path):
    folder = tmp_path / "checkpoint"
    sentence_encoder(network, folder, prompts=PROMPTS)
    layer = {"text": {"method": "forward", "method_output_name": ["hidden_states", -2]}}
    change(folder / "sentence_bert_config.json", modality_config=layer, do_lower_case=True)
    change(folder / "tokenizer_config.json", truncation_side="left", model_max_length=9)
    recipe = training_recipe(None, (*FAST, "training.epochs=0"), str(folder))

    fit(collection, recipe, tmp_path / "model", device="cpu")

    np.testing.assert_allclose(scores(tmp_path / "model"), scores(folder), atol=1e-5)
    model = library.SentenceTransformer(str(folder), device="cpu")
    questions, answers = (
        encode(list(texts), batch_size=1)
        for encode, texts in zip(
            (model.encode_query, model.encode_document), zip(*PAIRS, strict=True), strict=True
        )
    )
    expected = model.similarity_pairwise(questions, answers)
    np.testing.assert_allclose(scores(folder), expected, atol=1e-5)


def test_an_embedding_that_is_cut_is_no_start(network, tmp_path):
    sentence_encoder(network, tmp_path / "checkpoint", truncate_dim=5)

    with pytest.raises(InputError, match="truncate_dim: 5: expected all values of an embedding"):
        training_recipe(None, FAST, str(tmp_path / "checkpoint"))
