"""Updates: the weights that a step changes, and the size of the change."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import ADAM, POSITIVES, SGD, always, made, train
from tiny import SYSTEMS, answer_words, question_words, tokens, training_set

from aptool.models.build import Ranker
from aptool.models.encoders import EncoderSpec, WordVectorEncoder
from aptool.models.pooling import MeanPooling, StateOptions
from aptool.models.ragged import Ragged
from aptool.training.losses import score_batch


def score(system, question, answer):
    return system(Ragged.of(tokens(question_words(question))), Ragged.of(tokens(answer_words(answer))))[0]


@pytest.mark.parametrize("name", SYSTEMS)
def test_only_the_chosen_negative_is_trained_on(name):
    # Forty samples of eight answers have all seven negatives; the highest-scored of them is chosen.
    examples = training_set([[2]], answers=8)
    system = made(name)
    before = system.encoder.embedding.weight.detach().clone()
    with torch.inference_mode():
        chosen = max((a for a in range(8) if a != 2), key=lambda a: score(system, 0, a))

    train(system, examples, SGD, seed=0, evaluate=always(0.5))

    moved = {int(word) for word in (system.encoder.embedding.weight != before).any(1).nonzero()}
    assert moved <= {*question_words(0), *answer_words(2), *answer_words(chosen)}
    for words in (question_words(0), answer_words(2), answer_words(chosen)):
        assert moved & set(words)


@pytest.mark.parametrize("name", SYSTEMS)
def test_two_epochs_of_sgd_with_a_rate_divided_by_the_epoch(name):
    # One question, one positive, one negative: in epoch t each weight w becomes w - (λ/t) d loss/dw.
    examples = training_set([[0]], answers=2)
    system, by_hand = made(name), made(name)
    for epoch in (1, 2):
        by_hand.zero_grad()
        (2.5 - score(by_hand, 0, 0) + score(by_hand, 0, 1)).backward()
        with torch.no_grad():
            for weight in by_hand.parameters():
                gradient = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
                weight -= 0.2 / epoch * gradient

    rising = iter([0.1, 0.2])
    options = replace(SGD, epochs=2, learning_rate=0.2, schedule="inverse")
    train(system, examples, options, seed=0, evaluate=lambda ranker: {"MAP": next(rising)})

    for name_, weight in by_hand.state_dict().items():
        torch.testing.assert_close(system.state_dict()[name_], weight, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_of_a_minibatch(name):
    # Questions 0, 1, 3 with a positive and a negative each. Answers 1 and 2 are relevant to question 1.
    examples = training_set(POSITIVES, 12)
    batch = np.array([[0, 0, 1], [1, 2, 9], [3, 5, 2]])
    system = made(name)

    with torch.inference_mode():
        sampled_scores = score_batch(system, examples, batch, in_batch=False)
        every = score_batch(system, examples, batch, in_batch=True)
        pairs_only = score_batch(system, examples, batch[:, :2], in_batch=True)
        expected = [[score(system, q, a).item() for a in (0, 2, 5, 1, 9, 2)] for q in (0, 1, 3)]

    none = -np.inf
    first = [[expected[0][0]], [expected[1][1]], [expected[2][2]]]
    expected[0][0] = expected[1][1] = expected[1][3] = expected[1][5] = expected[2][2] = none
    for scores, columns in ((every, 6), (pairs_only, 3)):
        rows_expected = [[*positive, *line[:columns]] for positive, line in zip(first, expected, strict=True)]
        np.testing.assert_allclose(scores.numpy(), rows_expected, atol=1e-6)
    drawn = [
        [*positive, line[column]] for positive, line, column in zip(first, expected, (3, 4, 5), strict=True)
    ]
    np.testing.assert_allclose(sampled_scores.numpy(), drawn, atol=1e-6)


@pytest.mark.parametrize("in_batch", [False, True])
def test_repeated_answers_are_encoded_and_scored_once(monkeypatch, in_batch):
    examples = training_set(POSITIVES, 12)
    batch = np.array([[0, 0, 4, 4, 4], [1, 2, 4, 9, 9]])  # the answers 0, 2, 4 and 9
    encoded, scored = [], []
    encode, score_pairs = Ranker.encode, Ranker.score_pairs
    monkeypatch.setattr(Ranker, "encode", lambda self, x: encoded.append(len(x.lengths)) or encode(self, x))
    monkeypatch.setattr(
        *(Ranker, "score_pairs"),
        lambda self, q, *rest: scored.append(len(q.lengths)) or score_pairs(self, q, *rest),
    )

    scores = score_batch(made("ap-cnn"), examples, batch, in_batch)

    assert encoded == [2, 4]
    if not in_batch:
        assert scored == [5]  # 0 with 0 and 4; 1 with 2, 4 and 9
        assert torch.equal(scores[0, 1:2].expand(3), scores[0, 1:])


@pytest.mark.parametrize("name", ["ap-cnn", "qa-bilstm"])
@pytest.mark.parametrize(
    "options",
    [
        SGD,
        replace(ADAM, negatives="mix", mining_interval=2),
        replace(ADAM, loss="softmax", in_batch=True),
        replace(ADAM, optimizer="adamw", warmup=0.2),
    ],
    ids=["sgd", "mix", "softmax", "adamw"],
)
def test_training_lowers_the_loss_and_keeps_padding_at_zero(name, options):
    system = made(name)

    result = train(
        system, training_set(POSITIVES, 12), replace(options, epochs=15), seed=0, evaluate=always(0.5)
    )

    losses = [entry["loss"] for entry in result.history]
    assert losses[-1] < losses[0]
    assert not system.encoder.embedding.weight[0].any()


@pytest.mark.parametrize("options", [SGD, ADAM], ids=["sgd", "adam"])
def test_embeddings_can_have_a_lower_rate_than_other_weights(options):
    # Both optimizers' first update is proportional to the rate.
    moved = []
    for rate in (1.0, 0.1):
        system = made("ap-cnn")
        before = copy.deepcopy(system.state_dict())
        full_batch = replace(options, minibatch=99, embedding_rate=rate)
        train(system, training_set(POSITIVES, 12), full_batch, seed=0, evaluate=always(0.5))
        moved.append({name: weight - before[name] for name, weight in system.state_dict().items()})

    words = "encoder.embedding.weight"
    assert moved[0][words].abs().max() > 1e-3
    torch.testing.assert_close(moved[1][words], 0.1 * moved[0][words], atol=1e-6, rtol=1e-3)
    assert torch.equal(moved[1]["pooling.U"], moved[0]["pooling.U"])


@pytest.mark.parametrize("name", SYSTEMS)
def test_clipping_bounds_the_norm_of_all_gradients(name):
    # One update of SGD at rate 1 moves the weights by the gradient, embeddings included.
    system = made(name)
    before = copy.deepcopy(system.state_dict())
    options = replace(SGD, minibatch=99, learning_rate=1.0, clip=0.01)

    train(system, training_set(POSITIVES, 12), options, seed=0, evaluate=always(0.5))

    moved = [(system.state_dict()[key] - before[key]).norm() for key in before]
    assert torch.stack(moved).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_matrices_decay_and_biases_do_not():
    # An update of AdamW is that of Adam, after each matrix lost the share rate · decay = 0.01 · 0.3, except
    # embeddings.
    moved = []
    for optimizer in ("adam", "adamw"):
        system = made("ap-cnn")
        before = copy.deepcopy(system.state_dict())
        options = replace(ADAM, minibatch=99, optimizer=optimizer, weight_decay=0.3)
        train(system, training_set(POSITIVES, 12), options, seed=0, evaluate=always(0.5))
        moved.append({name: weight - before[name] for name, weight in system.state_dict().items()})

    for name, weight in before.items():
        lost = 0.003 * weight if name in ("pooling.U", "encoder.convolution.weight") else 0 * weight
        torch.testing.assert_close(moved[1][name], moved[0][name] - lost, atol=1e-6, rtol=0)


@pytest.mark.parametrize("optimizer", [SGD, ADAM])
@pytest.mark.parametrize("name", ["qa-cnn", "ap-bilstm"])
def test_accumulated_minibatches_are_a_single_minibatch(name, optimizer):
    # Nine pairs: updates of four, four and one pairs.
    examples = training_set(POSITIVES, answers=12)
    options = replace(optimizer, epochs=2, loss="softmax", sampled_negatives=3, hard_negatives=2)
    systems = [made(name), made(name)]

    for system, (minibatch, accumulate) in zip(systems, [(4, 1), (2, 2)], strict=True):
        by = replace(options, minibatch=minibatch, accumulate=accumulate)
        train(system, examples, by, seed=0, evaluate=always(0.5))

    single, accumulated = (system.state_dict() for system in systems)
    for weight in single:
        torch.testing.assert_close(single[weight], accumulated[weight], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_word_vectors_can_be_the_only_weights(optimizer):
    system = Ranker(
        WordVectorEncoder(EncoderSpec(40, 4), WordVectorEncoder.Options()), MeanPooling(4, StateOptions())
    )
    before = system.encoder.embedding.weight.detach().clone()
    options = replace(SGD, optimizer=optimizer, epochs=1)

    train(system, training_set([[0]], answers=2), options, seed=0, evaluate=always(0.5))

    moved = {int(word) for word in (system.encoder.embedding.weight != before).any(1).nonzero()}
    assert moved == {*question_words(0), *answer_words(0), *answer_words(1)}
