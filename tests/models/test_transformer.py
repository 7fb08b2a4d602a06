"""Encoders over pretrained networks have the states of ``transformers``, in all batches."""

import shutil

import numpy as np
import pytest
import torch
from networks import REASON, SYSTEMS, corpus, initialized, network_recipe
from tiny import labelled_pools, model_system, tokens
from tokenizers import normalizers

from aptool.data.collection import Collection
from aptool.data.pools import list_units, read_pools
from aptool.data.writing import write_collection
from aptool.environment import BATCH_SIZES
from aptool.models import transformer
from aptool.models.explain import explain_pairs
from aptool.models.model import LoadedModel, load_model
from aptool.models.ragged import Ragged
from aptool.scoring.model_system import PoolTokenizer
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.training.fit import fit

transformers = pytest.importorskip("transformers", reason=REASON)

# The reciprocal ranks 1 to 1/6 of six candidates in random order: a mean of 49/20 / 6.
RANDOM_MRR = 49 / 120


def states(ranker, texts):
    with torch.inference_mode():
        actual = ranker.encoder(Ragged.of(tokens(*texts)))
    return actual.values.split(actual.lengths.tolist())


def test_states_do_not_depend_on_the_batch(network, monkeypatch):
    ranker, _ = initialized("ap-minilm", network)
    # Texts of 63 and 64 of the 64 positions leave no room for padding.
    texts = [*corpus(60), [6], [7] * 63, [8] * 64, [9] * 64]
    # Texts that alone give GEMMs of fewer rows than MIN_ROWS.
    texts += [[5 + n % 20] * length for length in (1, 2, 3) for n in range(5)]
    together = states(ranker, texts)

    for text, actual in zip(texts, together, strict=True):
        assert torch.equal(states(ranker, [text])[0], actual)
    some = np.random.default_rng(2).permutation(len(texts))[:25]
    for number, actual in zip(some, states(ranker, [texts[i] for i in some]), strict=True):
        assert torch.equal(together[number], actual)
    monkeypatch.setattr(transformer, "batch_sizes", lambda device: BATCH_SIZES["cpu"]._replace(network=70))
    assert all(torch.equal(a, b) for a, b in zip(states(ranker, texts), together, strict=True))


@pytest.mark.parametrize(("tune", "moves"), [("all", {"embeddings", "layer.0", "layer.1"}), ("none", set())])
def test_only_the_tuned_layers_change(network, collection, tmp_path, tune, moves):
    before, _ = initialized("ap-minilm", network)
    recipe = network_recipe("ap-minilm", network, "training.epochs=1", f"encoder.tune={tune}")
    fit(collection, recipe, tmp_path / "model")
    after = load_model(tmp_path / "model").ranker.state_dict()

    moved = {name for name, weight in before.state_dict().items() if not torch.equal(after[name], weight)}
    parts = {part for part in ("embeddings", "layer.0", "layer.1") if any(part in name for name in moved)}
    assert parts == moves
    assert "pooling.U" in moved


def test_frozen_network_has_no_dropout(network):
    # The dropout of BERT is 0.1.
    for tune, same in (("none", True), ("all", False)):
        ranker, _ = initialized("ap-minilm", network, f"encoder.tune={tune}")
        ids = Ragged.of(tokens(*corpus(5)))
        first, second = (ranker.train().encoder(ids).values for _ in range(2))
        assert torch.equal(first, second) is same
        assert first.requires_grad is not same


def test_training_in_bf16_keeps_weights_and_scores_in_fp32(network):
    ids = Ragged.of(tokens(*corpus(8)))
    actual = []
    for precision in ("fp32", "bf16"):
        ranker, _ = initialized("mean-minilm", network, f"encoder.precision={precision}")
        ranker.train()
        ranker.encoder.network.eval()  # without dropout
        actual.append((ranker.encoder(ids).values, ranker.eval().encoder(ids).values))
        assert all(weight.dtype == torch.float32 for weight in ranker.parameters())

    (_, exact), (near, same) = actual
    torch.testing.assert_close(exact, same, atol=1e-5, rtol=0)  # outside training it computes in fp32
    assert near.dtype == torch.float32
    # Eight bits of each number, over two layers, in states of about 1.
    assert 0 < (near - exact).abs().max() < 0.2


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_learns_and_does_not_need_its_pretrained_network(system, network, tmp_path):
    # In one second, so small a network learns at least its training questions.
    splits = dict.fromkeys(("train", "dev"), labelled_pools("train", 24))
    write_collection(tmp_path / "known", splits, name="known", source="made for tests")
    known, moved = Collection(tmp_path / "known"), tmp_path / "network"
    shutil.copytree(network, moved)
    recipe = network_recipe(system, moved, "training.epochs=8", "training.sampled_negatives=1")
    result = fit(known, recipe, tmp_path / "model", seed=1)
    shutil.rmtree(moved)

    assert result.dev["MRR"] > RANDOM_MRR + 0.2
    assert result.history[-1]["loss"] < 0.9 * result.history[0]["loss"]
    model = load_model(tmp_path / "model")
    pools = read_pools(list_units([known.pools_file("dev")])[0])
    texts = PoolTokenizer(model.tokenizer, model.recipe.text).tokenize(pools)
    pairs = texts.questions.take(texts.pair_question), texts.answers.take(texts.pair_answer)
    with torch.inference_mode():
        expected = model.ranker(*map(Ragged.of, pairs))
    scores = model_system(model).open().prepare(pools).score()
    np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5)


def test_untrained_mean_pooling_equals_the_sentence_encoder(network, collection, tmp_path):
    fit(collection, network_recipe("mean-minilm", network, "training.epochs=0"), tmp_path / "model")
    model = load_model(tmp_path / "model")
    reference = transformers.AutoModel.from_pretrained(network).eval()
    read = transformers.AutoTokenizer.from_pretrained(network)

    def vector(text):
        with torch.inference_mode():
            return reference(**read(text, return_tensors="pt")).last_hidden_state[0].mean(0)

    question, answer = "where is the river", "the violin near the bridge?"
    both = [model.tokenizer.encode([text]) for text in (question, answer)]
    score = RankerScorer(model.ranker).score(*both, np.array([0]), np.array([0]))

    expected = torch.cosine_similarity(vector(question), vector(answer), dim=0)
    assert score[0] == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_scorer_equals_the_definition(network, system, precision):
    ranker, _ = initialized(system, network)
    questions, answers = tokens(*corpus(6, 1, 12)), tokens(*corpus(30, 2, 20))
    pairs = np.repeat(np.arange(6), 30), np.tile(np.arange(30), 6)
    with torch.inference_mode():
        expected = ranker(
            *(Ragged.of(side.take(row)) for side, row in zip((questions, answers), pairs, strict=True))
        )

    scores = RankerScorer(ranker, precision=precision).score(questions, answers, *pairs)

    np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5 if precision == "fp32" else 0.05)
    assert precision == "fp32" or np.abs(scores - expected.numpy()).max() > 1e-5
    # Scores from the cache are equal to the bit.
    cached = RankerScorer(ranker, precision=precision, cache_bytes=1 << 20)
    for _ in range(2):
        assert cached.score(questions, answers, *pairs, np.arange(30)).tobytes() == scores.tobytes()


def test_a_word_has_the_weights_of_its_subword_tokens(network):
    model = LoadedModel(*initialized("ap-minilm", network), network_recipe("ap-minilm", network), {}, "")
    question, answer = "where is the river", "the bridge near the zebra"
    with torch.inference_mode():
        both = [model.ranker.encode(Ragged.of(model.tokenizer.encode([text]))) for text in (question, answer)]
        sigma, _ = model.ranker.pooling.attention(*both)
    # [CLS] where is the riv ##er [SEP]
    token_weights = sigma[0].double().numpy()
    of_words = 1 - token_weights[0] - token_weights[6]

    (actual,) = explain_pairs(model, [(question, answer)])

    assert actual.question.words == ["where", "is", "the", "river"]
    weights = np.array([*token_weights[1:4], token_weights[4] + token_weights[5]])
    assert actual.question.weights == pytest.approx(weights / of_words, abs=1e-6)
    assert actual.question.special_tokens == pytest.approx(1 - of_words, abs=1e-6)
    assert (actual.question.unknown, actual.answer.unknown) == (frozenset(), {4})


def test_words_without_tokens_are_neither_truncated_nor_weighted(network):
    ranker, tokenizer = initialized("ap-minilm", network)
    tokenizer._tokenizer.normalizer = normalizers.BertNormalizer()
    model = LoadedModel(ranker, tokenizer, network_recipe("ap-minilm", network), {}, "")

    # A zero-width space is a word for a split at spaces and punctuation, but no token for BERT.
    (actual,) = explain_pairs(model, [("where is \u200b", "\u200b")])

    assert (actual.question.truncated, actual.answer.truncated) == (0, 0)
    assert actual.question.weights[2] == 0 < actual.question.weights[:2].min()
    assert actual.question.weights.sum() == pytest.approx(1)
    assert (actual.question.unknown, actual.answer.unknown) == ({2}, {0})
    assert actual.answer.special_tokens == pytest.approx(1)
