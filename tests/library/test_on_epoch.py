"""``on_epoch``: the callback gets the training history, each epoch once."""

import json

import pytest
from tiny import options

import aptool
from aptool.errors import AptoolError


def test_callback_of_the_library_gets_the_training_history(collection_folder, tmp_path):
    epochs = []

    aptool.train(
        *(collection_folder, "ap-cnn"),
        set=options("ap-cnn", "training.epochs=2"),
        output=tmp_path / "m",
        on_epoch=epochs.append,
    )

    written = [json.loads(line) for line in (tmp_path / "m/training/history.jsonl").read_text().splitlines()]
    assert [(epoch.number, epoch.loss, epoch.dev) for epoch in epochs] == [
        (entry["epoch"], entry["loss"], entry["dev"]) for entry in written
    ]
    names = {"loss", "active", "learning_rate", "dev/MAP", "seconds/train"}
    assert names < epochs[0].figures.keys()
    assert epochs[0].figures["dev/MAP"] == written[0]["dev"]["MAP"]
    assert "epoch" not in epochs[0].figures

    # The model is complete: the epochs before an interruption are reported, too.
    again = []
    aptool.train(
        *(collection_folder, "ap-cnn"),
        set=options("ap-cnn", "training.epochs=2"),
        output=tmp_path / "m",
        on_epoch=again.append,
    )
    assert again == epochs


def test_exception_of_a_callback_ends_the_training(collection_folder, tmp_path):
    class StopError(Exception):
        pass

    def stop(epoch):
        if epoch.number == 2:
            raise StopError

    with pytest.raises(StopError):
        aptool.train(
            *(collection_folder, "ap-cnn"),
            set=options("ap-cnn", "training.epochs=50"),
            output=tmp_path / "m",
            on_epoch=stop,
        )

    assert not (tmp_path / "m").exists()


def test_callback_that_is_no_function_is_refused(collection_folder):
    with pytest.raises(AptoolError, match="on_epoch: 3: expected a function"):
        aptool.train(collection_folder, "ap-cnn", on_epoch=3)
