"""The training loop: samples, learning rates, and the weights of the best epoch."""

import copy
from dataclasses import replace

import pytest
import torch
from small_training import ADAM, POSITIVES, SGD, always, made, train
from tiny import SYSTEMS, training_set

from aptool.config import TrainingOptions
from aptool.errors import AptoolError
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import UNK
from aptool.training import losses
from aptool.training.loop import estimate, learning_rate


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        # λ = 1.1 over four epochs, at the beginning of each.
        ("constant", [1.1, 1.1, 1.1, 1.1]),
        ("inverse", [1.1, 0.55, 0.366667, 0.275]),
        ("linear", [1.1, 0.825, 0.55, 0.275]),
    ],
)
def test_schedules_by_hand(schedule, rates):
    options = TrainingOptions(learning_rate=1.1, schedule=schedule)

    assert [learning_rate(options, epoch, (epoch - 1) / 4) for epoch in (1, 2, 3, 4)] == pytest.approx(
        rates, abs=1e-6
    )


def test_a_rate_that_warms_up_by_hand():
    # The rate rises from 0 over the first fifth; the schedule takes the remaining epochs.
    rates = {}
    for schedule in ("linear", "constant", "inverse"):
        options = TrainingOptions(learning_rate=1.0, schedule=schedule, warmup=0.2)
        rates[schedule] = [learning_rate(options, 2, progress) for progress in (0, 0.05, 0.1, 0.2, 0.6, 1)]

    assert rates["linear"] == pytest.approx([0, 0.25, 0.5, 1, 0.5, 0])
    assert rates["constant"] == pytest.approx([0, 0.25, 0.5, 1, 1, 1])
    assert rates["inverse"] == pytest.approx([0, 0.25, 0.5, 0.5, 0.5, 0.5])


def mined(monkeypatch):
    """The questions and sampled answers of every round of mining."""
    rounds = []
    choose = losses.hardest

    def record(ranker, examples, questions, sampled, hard_negatives):
        rounds.append((questions.copy(), sampled.copy()))
        return choose(ranker, examples, questions, sampled, hard_negatives)

    monkeypatch.setattr(losses, "hardest", record)
    return rounds


@pytest.mark.parametrize("source", ["corpus", "pool", "mix"])
def test_each_epoch_samples_other_negatives_and_never_a_positive(monkeypatch, source):
    rounds = mined(monkeypatch)
    options = replace(SGD, epochs=3, minibatch=20, sampled_negatives=10, negatives=source)

    train(made("qa-cnn"), training_set(POSITIVES, 12), options, seed=0, evaluate=always(0.5))

    assert len(rounds) == 3
    by_epoch = [{int(q): tuple(row) for q, row in zip(*round_, strict=True)} for round_ in rounds]
    for questions, drawn in rounds:
        for question, answers in zip(questions, drawn, strict=True):
            assert not set(answers.tolist()) & set(POSITIVES[question])
    for question in range(6):
        assert len({epoch[question] for epoch in by_epoch}) == 3
    # The order of the questions differs, too.
    assert len({tuple(questions) for questions, _ in rounds}) == 3


def test_pairs_are_all_or_one_per_question(monkeypatch):
    rounds = mined(monkeypatch)
    examples = training_set(POSITIVES, 12)

    train(made("qa-cnn"), examples, replace(SGD, minibatch=99), seed=0, evaluate=always(0.5))
    train(made("qa-cnn"), examples, replace(SGD, minibatch=99, pairs="one"), seed=0, evaluate=always(0.5))

    (every, _), (single_pairs, _) = rounds
    assert sorted(every.tolist()) == [0, 1, 1, 1, 2, 3, 3, 4, 5]
    assert sorted(single_pairs.tolist()) == [0, 1, 2, 3, 4, 5]


def test_negatives_are_scored_for_several_minibatches_at_once(monkeypatch):
    rounds = mined(monkeypatch)
    steps = []
    monkeypatch.setattr(
        torch.optim.SGD,
        "step",
        lambda optimizer, step=torch.optim.SGD.step: steps.append(1) or step(optimizer),
    )

    train(
        made("qa-cnn"),
        training_set(POSITIVES, 12),
        replace(SGD, minibatch=2, mining_interval=3),
        seed=0,
        evaluate=always(0.5),
    )

    # Nine pairs: rounds of six and three, five minibatches of at most two.
    assert [len(questions) for questions, _ in rounds] == [6, 3]
    assert len(steps) == 5


def test_the_result_has_the_weights_of_the_best_epoch():
    measures = iter([0.2, 0.9, 0.5, 0.9])
    seen = []

    def evaluate(ranker):
        assert not ranker.training
        seen.append(copy.deepcopy(ranker.state_dict()))
        return {"MAP": next(measures), "P@1": 1.0}

    system = made("ap-cnn")
    result = train(system, training_set(POSITIVES, 12), replace(ADAM, epochs=4), seed=0, evaluate=evaluate)

    # The first of two equal epochs.
    assert result.best_epoch == 2
    assert [entry["dev"]["MAP"] for entry in result.history] == [0.2, 0.9, 0.5, 0.9]
    assert [entry["epoch"] for entry in result.history] == [1, 2, 3, 4]
    for name, weight in system.state_dict().items():
        assert torch.equal(weight, seen[1][name])
        assert not torch.equal(weight, seen[3][name])


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_the_weights_of_the_last_epochs_are_averaged(epochs):
    measures = iter([0.9, 0.2, 0.5, 0.4, 0.7])
    seen = []

    def evaluate(ranker):
        assert not ranker.training
        seen.append({name: weight.double() for name, weight in ranker.state_dict().items()})
        return {"MAP": next(measures)}

    system = made("ap-cnn")
    options = replace(ADAM, epochs=4, average_epochs=epochs)
    result = train(system, training_set(POSITIVES, 12), options, seed=0, evaluate=evaluate)

    assert result.best_epoch == 4
    # An average is evaluated again, the last epoch is not.
    assert result.dev == {"MAP": 0.4 if epochs == 1 else 0.7}
    for name, weight in system.state_dict().items():
        mean = sum(weights[name] for weights in seen[4 - epochs : 4]) / epochs
        torch.testing.assert_close(weight.double(), mean, atol=1e-7, rtol=1e-5)
        assert epochs > 1 or torch.equal(weight.double(), mean)


def test_patience_stops_after_epochs_without_improvement():
    measures = iter([0.3, 0.5, 0.4, 0.5, 0.6, 0.7])

    result = train(
        made("qa-cnn"),
        training_set(POSITIVES, 12),
        replace(ADAM, epochs=6, patience=2),
        seed=0,
        evaluate=lambda ranker: {"MAP": next(measures)},
    )

    assert (result.best_epoch, len(result.history)) == (2, 4)


@pytest.mark.parametrize("name", SYSTEMS)
def test_equal_seeds_give_equal_weights_to_the_bit(name):
    weights, options = [], replace(ADAM, dropout=0.3)
    for seed in (3, 3, 4):
        system = made(name)
        system.dropout = options.dropout
        train(
            system, training_set(POSITIVES, 12), replace(options, epochs=2), seed=seed, evaluate=always(0.5)
        )
        weights.append(system.state_dict())

    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert any(not torch.equal(weights[0][key], weights[2][key]) for key in weights[0])


def test_dropped_words_are_unknown_words_and_only_in_training():
    system = made("ap-cnn")
    system.word_dropout = 0.5
    tokens = Ragged.join([torch.arange(2, 60).repeat(50)])
    read = []
    system.encoder.register_forward_pre_hook(lambda encoder, given: read.append(given[0].values))

    system.eval().encode(tokens)
    system.train().encode(tokens)

    assert torch.equal(read[0], tokens.values)
    dropped = read[1] != tokens.values
    assert (read[1][dropped] == UNK).all()
    assert 0.45 < dropped.double().mean() < 0.55  # more than five standard deviations of 2,900 draws


@pytest.mark.parametrize("minibatch", [1, 99])
def test_a_loss_that_is_not_a_number_is_an_error(minibatch):
    # With one update per epoch, the loss of the second epoch is the first to diverge.
    with pytest.raises(AptoolError) as error:
        train(
            made("ap-cnn"),
            training_set(POSITIVES, 12),
            replace(SGD, epochs=3, minibatch=minibatch, learning_rate=1e30),
            seed=0,
            evaluate=always(0.5),
        )

    assert "the loss is nan after" in str(error.value)
    assert "lower training.learning_rate" in str(error.value)


def test_questions_without_a_negative_are_skipped(monkeypatch):
    rounds = mined(monkeypatch)

    train(
        made("qa-cnn"),
        training_set([[0, 1, 2], [1]], 3),
        replace(SGD, minibatch=9),
        seed=0,
        evaluate=always(0.5),
    )

    assert rounds[0][0].tolist() == [1]


def test_training_without_negatives_is_an_error():
    with pytest.raises(AptoolError, match="every answer is relevant to every question"):
        train(made("qa-cnn"), training_set([[0, 1], [0, 1]], 2), SGD, seed=0, evaluate=always(0.5))


def test_no_epoch_leaves_the_weights_as_they_were():
    system = made("qa-cnn")

    result = train(system, training_set(POSITIVES, 12), replace(SGD, epochs=0), seed=0, evaluate=always(0.5))

    assert result == (0, [], {"MAP": 0.5})
    assert all(
        torch.equal(weight, made("qa-cnn").state_dict()[key]) for key, weight in system.state_dict().items()
    )


def test_the_duration_of_all_epochs_by_hand():
    # An epoch takes 1,000 / 2.5 s and 100 s of mining: 500 s, and 25 epochs 12,500 s.
    assert estimate(25, 1000, 2.5, 100.0).startswith(
        "about 3:28:20 for 25 epochs of 1,000 pairs, 2.5 pairs/s; "
    )
