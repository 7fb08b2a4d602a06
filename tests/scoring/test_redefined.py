"""Subclasses that redefine what faster code re-implements: every step computes the new definition."""

import copy

import numpy as np
import pytest
import torch
from simulated_gpu import SimulatedGpu
from tiny import OVER_STATES, lists, pooled, ranker
from torch import nn

from aptool.config import load_recipe
from aptool.models.explain import explain_pairs, gives_weights
from aptool.models.model import LoadedModel
from aptool.models.pooling import SIMILARITIES, JoinedPooling
from aptool.models.ragged import Ragged
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.text.tokenizer import WordTokenizer
from aptool.training.data import TrainingSet
from aptool.training.losses import score_batch

TOKENIZER = WordTokenizer.from_words([f"w{n}" for n in range(12)])
QUESTIONS = ["w1 w2 w3", "w4", "w5 w6 w1 w2 w7"]
ANSWERS = ["w2 w3", "w8 w9 w10 w11 w1", "w4 w4", "w6 w5 w3 w2"]
EVERY_PAIR = np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3)


def shifted(vectors):
    return vectors + torch.linspace(-0.5, 0.5, vectors.shape[-1], device=vectors.device)


# By name of a method: how a subclass changes its result.
CHANGES = {
    "score_pairs": lambda scores: 3 - 2 * scores,
    "reduce_one": lambda scores: 3 - 2 * scores,
    "score": lambda scores: 3 - 2 * scores,
    "forward": lambda result: (shifted(result[0]), *result[1:]),
    "represent": shifted,
    "attention_weights": lambda weights: weights.square() / weights.square().sum(1, keepdim=True),
    "scale_logits": lambda g: 5 * g,
    "stored_rows": lambda rows: rows.with_values(0.5 * shifted(rows.values)),
    "match": lambda matched: 0.5 * matched.square(),
}
# Of similarities.
SIMILARITY_CHANGES = {
    "forward": lambda scores: 3 - 2 * scores,
    "pairs": lambda scores: 3 - 2 * scores,
    "matrix": lambda scores: 3 - 2 * scores,
    "prepare_questions": shifted,
    "prepare_answers": shifted,
}


def redefine(part, name, change):
    """Give ``part`` a subclass of its class in which a method returns a changed result."""
    base = type(part)

    def method(self, *arguments):
        return change(getattr(super(redefined, self), name)(*arguments))

    redefined = type(f"Changed{base.__name__}", (base,), {name: method})
    part.__class__ = redefined


def methods_of(pooling):
    """The methods of a pooling that a subclass may redefine, without those of ``nn.Module``."""
    kind = type(pooled(pooling).pooling)
    return [
        (pooling, name) for name in CHANGES if getattr(kind, name, None) is not getattr(nn.Module, name, None)
    ]


def new_system(pooling, similarity="cosine"):
    system = pooled(pooling, words=len(TOKENIZER), dim=6, size=8)
    if hasattr(system.pooling, "similarity"):
        kind = SIMILARITIES[similarity]
        system.pooling.similarity = kind(8, kind.Options())
    return system


def check_every_step(system, before, *, is_definition=True):
    """Compare all ways to the scores of pairs with the definition, ``score_pairs`` of the states."""
    questions, answers = TOKENIZER.encode(QUESTIONS), TOKENIZER.encode(ANSWERS)
    pairs = list(zip(*(side.tolist() for side in EVERY_PAIR), strict=True))
    with torch.inference_mode():
        of_pairs = [(Ragged.of(questions.take([q])), Ragged.of(answers.take([a]))) for q, a in pairs]
        expected = np.array([system(*pair).item() for pair in of_pairs])
        unchanged = np.array([before(*pair).item() for pair in of_pairs])
    assert (np.abs(expected - unchanged).max() > 1e-3) == is_definition

    scores = RankerScorer(system).score(questions, answers, *EVERY_PAIR)
    np.testing.assert_allclose(scores, expected, atol=1e-5, rtol=0)
    once = RankerScorer(system).score(questions, answers, np.arange(3), np.arange(3))
    np.testing.assert_allclose(once, expected[[0, 5, 10]], atol=1e-5, rtol=0)

    with SimulatedGpu():
        on_gpu = RankerScorer(copy.deepcopy(system).to("cuda"), device="cuda")
        scores = on_gpu.score(questions, answers, *EVERY_PAIR)
    np.testing.assert_allclose(scores, expected, atol=1e-5, rtol=0)

    # Training, with the answers of a question and with those of the minibatch.
    examples = TrainingSet(questions, answers, lists([[0], [1], [2]]), lists([[3], [3], [3]]))
    batch = np.array([[0, 0, 3], [1, 1, 3], [2, 2, 3]])
    table = expected.reshape(3, 4)
    with torch.no_grad():
        sampled = score_batch(system, examples, batch, in_batch=False).numpy()
        np.testing.assert_allclose(sampled, table[[0, 1, 2], [[0, 1, 2], [3, 3, 3]]].T, atol=1e-5, rtol=0)
        in_batch = score_batch(system, examples, batch, in_batch=True).numpy()
        np.testing.assert_allclose(in_batch[:, 0], table[[0, 1, 2], [0, 1, 2]], atol=1e-5, rtol=0)
        negatives = np.where(np.isfinite(in_batch[:, 1:]), table[:, [0, 1, 2, 3, 3, 3]], -np.inf)
        np.testing.assert_allclose(in_batch[:, 1:], negatives, atol=1e-5, rtol=0)

    # Explanations.
    model = LoadedModel(system, TOKENIZER, load_recipe("qa-cnn"), {}, "0" * 16)
    if gives_weights(model):
        texts = [(QUESTIONS[q], ANSWERS[a]) for q, a in pairs]
        explained = [explanation.score for explanation in explain_pairs(model, texts)]
        np.testing.assert_allclose(explained, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("pooling", "method"), [pair for name in OVER_STATES for pair in methods_of(name)])
def test_a_pooling_that_redefines_a_method_is_scored_by_it(pooling, method):
    system = new_system(pooling)
    before = copy.deepcopy(system)

    redefine(system.pooling, method, CHANGES[method])

    check_every_step(system, before, is_definition=method != "reduce_one")


@pytest.mark.parametrize("method", SIMILARITY_CHANGES)
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("pooling", ["max", "attentive"])
def test_a_similarity_that_redefines_a_method_compares_by_it(pooling, similarity, method):
    system = new_system(pooling, similarity)
    before = copy.deepcopy(system)

    redefine(system.pooling.similarity, method, SIMILARITY_CHANGES[method])

    check_every_step(system, before, is_definition=method != "matrix")


@pytest.mark.parametrize("name", ["ap-cnn", "qa-bilstm"])
def test_an_encoder_that_redefines_its_states_encodes_by_them(name):
    system = ranker(name, words=len(TOKENIZER), dim=6, size=8)
    before = copy.deepcopy(system)

    redefine(system.encoder, "forward", lambda states: states.with_values(shifted(states.values)))

    check_every_step(system, before)


def test_a_layer_of_a_convolution_that_is_redefined_is_computed():
    system = ranker("ap-cnn", words=len(TOKENIZER), dim=6, size=8)
    before = copy.deepcopy(system)

    redefine(system.encoder.convolution, "forward", shifted)

    check_every_step(system, before)


def test_a_head_reads_the_score_that_a_pooling_redefines():
    system = new_system("max")
    states = system.encode(Ragged.of(TOKENIZER.encode(QUESTIONS)))
    redefine(system.pooling, "score_pairs", CHANGES["score_pairs"])

    columns = JoinedPooling(system.pooling, 8).score_pairs(states, states)

    assert columns.shape == (3, 1 + 2 * 8)
    # A text has the cosine 1 with itself.
    np.testing.assert_allclose(columns[:, 0].detach(), np.full(3, 3 - 2), atol=1e-6)


def test_maxima_explain_no_other_vectors():
    system = new_system("max")
    model = LoadedModel(system, TOKENIZER, load_recipe("qa-cnn"), {}, "0" * 16)
    assert gives_weights(model)

    redefine(system.pooling, "represent", shifted)

    assert not gives_weights(model)
