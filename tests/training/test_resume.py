"""Training that is killed and resumes: the weights are those of uninterrupted training."""

import itertools
import re
import shutil
import signal

import forked
import pytest
import torch
from dying import aptool_killed
from recorded import recorded
from tiny import options, recipe

from aptool.data.collection import Collection
from aptool.errors import InputError
from aptool.training import loop
from aptool.training.checkpoint import save_state, training_folder
from aptool.training.fit import check_training, fit, fit_in_group

FILES = ("model.safetensors", "config.json", "tokenizer.json")
# Everything with a state: both kinds of Adam, dropout, sampled negatives, learned vectors.
ASKED = ("vectors.source=learned", "training.dropout=0.2", "training.negatives=mix")

# Five minibatches per epoch, four epochs.
MINIBATCH = 8
OFTEN = 1e-9  # minutes: after each update

MOMENTS = {
    "in the first epoch": ("aptool.training.loop:_step", "before", 3, 0),
    "in the third epoch": ("aptool.training.loop:_step", "after", 13, 2),
    "while the state is written": ("aptool.training.checkpoint:write_tensors", "after", 3, 2),
    "between the state and its report": ("aptool.training.fit:save_state", "after", 2, 2),
    "while the model is written": ("aptool.models.model:write_tensors", "after", 1, 4),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, collection_folder):
    folder = tmp_path_factory.mktemp("undisturbed") / "model"
    fit(Collection(collection_folder), recipe("ap-cnn", *ASKED), folder, seed=3)
    return folder


def kill(moment, collection, output, *more, number=signal.SIGKILL):
    """Train in another process that sends itself a signal; return the lines on stderr."""
    target, when, call, _ = moment
    settings = [part for option in options("ap-cnn", *ASKED) for part in ("--set", option)]
    arguments = ["train", collection, "--output", output, "--seed", "3", *settings, *more]
    process = output.with_name("process")
    ended = forked.run(process, aptool_killed, target, when, call, number, list(map(str, arguments)))
    shutil.rmtree(process)
    assert ended.code == (-number if number == signal.SIGKILL else 128 + number), ended.err
    return ended.err.splitlines()


def fit_as_member(collection, tiny_recipe, output, device="cpu", checkpoint_minutes=0, **member):
    """Train as a worker of a cluster does."""
    task = check_training(collection, tiny_recipe, output, 3, device)
    return fit_in_group(task, torch.device(device), checkpoint_minutes=checkpoint_minutes, **member)


def same(first, second):
    return all((first / file).read_bytes() == (second / file).read_bytes() for file in FILES)


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS.keys())
def test_training_killed_at_any_moment_resumes_to_the_same_weights(
    moment, undisturbed, collection_folder, tmp_path
):
    output = tmp_path / "model"
    kill(moment, collection_folder, output)
    assert not output.exists()

    with recorded() as log:
        result = fit(Collection(collection_folder), recipe("ap-cnn", *ASKED), output, seed=3)

    whole = moment[3]
    resumed = [line for line in log.messages if "resuming" in line]
    assert resumed == ([f"{output}: resuming after epoch {whole} of 4"] if whole else [])
    assert not any(line.startswith("learning ") for line in log.messages)  # vectors are cached, too
    assert log.epochs == list(range(whole + 1, 5))
    assert [entry["epoch"] for entry in result.history] == [1, 2, 3, 4]
    assert same(output, undisturbed)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("moment", "resumed"),
    [
        ("in the third epoch", f"in epoch 3 of 4, after {3 * MINIBATCH} pairs"),
        ("between the state and its report", "after epoch 2 of 4"),
    ],
)
def test_training_saves_a_checkpoint_on_sigterm(moment, resumed, undisturbed, collection_folder, tmp_path):
    output = tmp_path / "model"

    lines = kill(MOMENTS[moment], collection_folder, output, number=signal.SIGTERM)

    assert lines[-1] == "aptool: terminated; the same command resumes"
    assert "Traceback" not in "".join(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["model.training"]
    with recorded() as log:
        fit(Collection(collection_folder), recipe("ap-cnn", *ASKED), output, seed=3)
    assert f"{output}: resuming {resumed}" in log.messages
    assert same(output, undisturbed)


def test_notice_of_preemption_saves_checkpoints_within_the_epoch(
    undisturbed, collection_folder, tmp_path, monkeypatch
):
    """The notice comes in the second update of the third epoch, the machine is lost in the fourth."""
    monkeypatch.setattr("aptool.training.checkpoint.NOTICE_SECONDS", 0)
    polls = itertools.count(1)  # one per update, except the last of an epoch
    steps, step = itertools.count(1), loop._step

    def last(*given):
        if next(steps) == 14:
            raise StoppedError
        return step(*given)

    files, tiny_recipe, output = (
        Collection(collection_folder),
        recipe("ap-cnn", *ASKED),
        tmp_path / "model",
    )
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_step", last)
        with pytest.raises(StoppedError):
            fit_as_member(files, tiny_recipe, output, is_preempted=lambda: next(polls) >= 10)
    with recorded() as log:
        fit(files, tiny_recipe, output, seed=3)

    assert f"{output}: resuming in epoch 3 of 4, after {3 * MINIBATCH} pairs" in log.messages
    assert same(output, undisturbed)


def test_training_killed_before_the_clean_up_is_complete(undisturbed, collection_folder, tmp_path):
    kill(("aptool.training.fit:remove_state", "before", 1, 4), collection_folder, tmp_path / "model")
    assert training_folder(tmp_path / "model").exists()

    with recorded() as log:
        fit(Collection(collection_folder), recipe("ap-cnn", *ASKED), tmp_path / "model", seed=3)

    (done,) = log.messages
    reason = "up to date: same recipe, data and seed. Delete the folder to train again."
    assert done == f"{tmp_path / 'model'}: {reason}"
    assert same(tmp_path / "model", undisturbed)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


class StoppedError(Exception):
    """Ends the training of a test."""


def stop_after(epoch):
    def stop(number):
        if number == epoch:
            raise StoppedError

    return stop


def stopped(collection, output, *overrides, seed=3, after=2):
    with pytest.raises(StoppedError), recorded(on_epoch=stop_after(after)):
        fit(collection, recipe("ap-cnn", *overrides), output, seed=seed)


@pytest.mark.parametrize(
    "overrides",
    [
        ("training.patience=1", "training.learning_rate=0.3"),
        ("training.average_epochs=3", "training.word_dropout=0.2", "training.embedding_rate=0.1"),
    ],
    ids=["patience", "average"],
)
def test_every_procedure_resumes_to_the_same_weights(overrides, collection, tmp_path):
    overrides = (*overrides, "training.negatives=mix")
    result = fit(collection, recipe("ap-cnn", *overrides), tmp_path / "whole", seed=3)
    stopped(collection, tmp_path / "model", *overrides, after=min(2, len(result.history)))

    again = fit(collection, recipe("ap-cnn", *overrides), tmp_path / "model", seed=3)

    assert same(tmp_path / "model", tmp_path / "whole")
    assert [entry["dev"] for entry in again.history] == [entry["dev"] for entry in result.history]


def stopped_within(collection, output, tiny_recipe, update, monkeypatch):
    """Train until after an update, with a checkpoint per update."""
    steps, step = itertools.count(1), loop._step

    def last(*given):
        if next(steps) > update:
            raise StoppedError
        return step(*given)

    monkeypatch.setattr(loop, "_step", last)
    with pytest.raises(StoppedError):
        fit(collection, tiny_recipe, output, seed=3, checkpoint_minutes=OFTEN)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("overrides", "update"),
    [
        ((), 3),  # in the first epoch, before any dev measure
        (("training.dropout=0.3", "training.word_dropout=0.2"), 12),
        (("training.mining_interval=4", "training.dropout=0.3"), 12),  # within the mined rows
        # The negatives of an epoch are sampled at its start.
        (("training.loss=softmax", "training.pairs=one", "training.mining_interval=0"), 12),
        (("training.optimizer=sgd", "training.schedule=linear", "training.in_batch=true"), 17),
        (("training.pairs=one", "training.average_epochs=3"), 9),
        (("training.sampled_negatives=0", "training.in_batch=true", "training.loss=softmax"), 13),
    ],
    ids=["first", "dropout", "mined", "mined once", "sgd", "average", "in batch"],
)
def test_every_procedure_resumes_within_an_epoch_to_the_same_weights(
    overrides, update, collection, tmp_path, monkeypatch
):
    tiny_recipe = recipe("ap-cnn", "training.negatives=mix", *overrides)
    whole = fit(collection, tiny_recipe, tmp_path / "whole", seed=3)
    stopped_within(collection, tmp_path / "model", tiny_recipe, update, monkeypatch)

    with recorded() as log:
        again = fit(collection, tiny_recipe, tmp_path / "model", seed=3)

    epoch, updates = update // 5 + 1, update % 5
    pattern = rf"resuming in epoch {epoch} of 4, after (\d+) pairs"
    (actual,) = [re.search(pattern, line) for line in log.messages if "resuming" in line]
    assert updates * tiny_recipe.training.minibatch == int(actual[1])
    assert log.epochs == list(range(epoch, 5))
    assert same(tmp_path / "model", tmp_path / "whole")
    for entry, expected in zip(again.history, whole.history, strict=True):
        assert {**entry, "seconds": None} == {**expected, "seconds": None}


@pytest.mark.parametrize("minutes", [0, 60])
def test_no_checkpoint_within_an_epoch_unless_requested_and_due(collection, tmp_path, monkeypatch, minutes):
    states = []
    monkeypatch.setattr("aptool.training.fit.save_state", lambda folder, key, state: states.append(state))

    fit(collection, recipe("ap-cnn"), tmp_path / "model", checkpoint_minutes=minutes)

    assert [state.within for state in states] == [None] * 4


def test_a_checkpoint_of_another_training_is_refused_without_overwrite(collection, tmp_path):
    output = tmp_path / "model"
    for overrides, seed in ((("training.margin=0.4",), 3), ((), 4)):
        stopped(collection, output, *overrides, seed=seed)

        with pytest.raises(
            InputError, match=r"model\.training: the checkpoint of another training .*--overwrite"
        ):
            fit(collection, recipe("ap-cnn"), output, seed=3)
        with recorded() as log:
            fit(collection, recipe("ap-cnn"), output, seed=3, overwrite=True)

        assert len(log.epochs) == 4
        shutil.rmtree(output)


def test_everything_that_decides_the_weights_is_in_the_key(collection, tmp_path):
    tiny_recipe, folder = recipe("ap-cnn"), tmp_path / "model"
    keys = {check_training(collection, tiny_recipe, folder, *more).key for more in [(0,), (1,), (0, "cuda")]}

    assert len(keys) == 3


def test_replaced_vectors_are_another_training(collection, tmp_path):
    vectors = tmp_path / "vectors.txt"
    epochs = []
    for line in ("river 1 2\n", "river 1 3\n"):
        vectors.write_text(line)
        tiny_recipe = recipe("ap-cnn", f"vectors.source={vectors}", "training.epochs=1")
        with recorded() as log:
            fit(collection, tiny_recipe, tmp_path / "model", overwrite=True)
        epochs += log.epochs

    assert epochs == [1, 1]


def test_a_damaged_checkpoint_is_an_error(collection, tmp_path):
    output = tmp_path / "model"
    stopped(collection, output)
    path = training_folder(output) / "state.safetensors"
    path.write_bytes(path.read_bytes()[:500])

    with pytest.raises(InputError, match=r"state\.safetensors: .* remove .*model\.training to train from"):
        fit(collection, recipe("ap-cnn"), output, seed=3)


def test_a_checkpoint_is_saved_before_its_epoch_is_reported(collection, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(
        "aptool.training.fit.save_state",
        lambda folder, key, state: saved.append(len(state.history)) or save_state(folder, key, state),
    )
    reported = []

    with recorded(on_epoch=lambda number: reported.append((number, saved[-1]))):
        fit(collection, recipe("qa-cnn"), tmp_path / "model")

    assert reported == [(1, 1), (2, 2), (3, 3), (4, 4)]
