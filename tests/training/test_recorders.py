"""``train --log``: the files of TensorBoard, MLflow and W&B have the training history, to the last digit."""

import json
import struct
import sys
from pathlib import Path

import pytest
from tiny import options

import aptool
from aptool.config import load_recipe
from aptool.errors import AptoolError
from aptool.progress import get_progress
from aptool.training.fit import Fit
from aptool.training.recorders import Epoch, epoch_metrics, reporting_epochs
from aptool.version import install_command

EPOCHS = 3


def train(aptool, collection_folder, output, *more):
    sets = [part for option in options("ap-cnn", f"training.epochs={EPOCHS}") for part in ("--set", option)]
    return aptool("train", collection_folder, "--preset", "ap-cnn", *sets, "--output", output, *more)


def history(output):
    text = (Path(output) / "training" / "history.jsonl").read_text(encoding="utf-8")
    return {entry["epoch"]: epoch_metrics(entry) for entry in map(json.loads, text.splitlines())}


def of_tensorboard(folder):
    """Read the only record in ``folder``: values by epoch and name."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    (record,) = (path.parent for path in Path(folder).rglob("events.out.tfevents*"))
    events = EventAccumulator(str(record))
    events.Reload()
    actual = {}
    for name in events.Tags()["tensors"]:
        for event in events.Tensors(name):
            if not name.startswith("parameters"):
                actual.setdefault(event.step, {})[name] = make_ndarray(event.tensor_proto).item()
    return actual


def of_mlflow(folder):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    client = mlflow.MlflowClient(f"sqlite:///{Path(folder).resolve()}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("aptool").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["training.epochs"] == str(EPOCHS)
    actual = {}
    for name in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, name):
            # MLflow allows no @ in names.
            actual.setdefault(metric.step, {})[name.replace("P_1", "P@1")] = metric.value
    return actual


def of_wandb(folder):
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto import wandb_internal_pb2

    (file,) = Path(folder).rglob("*.wandb")
    actual = {}
    for data in leveldb_records(file.read_bytes(), 7):
        record = wandb_internal_pb2.Record.FromString(data)
        row = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "epoch" in row:
            epoch = int(row.pop("epoch"))
            actual[epoch] = {
                name: json.loads(value) for name, value in row.items() if not name.startswith("_")
            }
    return actual


def leveldb_records(content, header):
    """The records of a log in the format of LevelDB: checksum (4), length (2), type (1), data, in blocks."""
    at, parts = header, []
    while at + 7 <= len(content):
        if (1 << 15) - at % (1 << 15) < 7:
            at += (1 << 15) - at % (1 << 15)
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts.append(content[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # complete, or the last part
            yield b"".join(parts)
            parts = []


READERS = {"tensorboard": of_tensorboard, "mlflow": of_mlflow, "wandb": of_wandb}


@pytest.fixture(params=READERS)
def log(request, monkeypatch, tmp_path):
    """An installed tracker, with the files and settings of the test."""
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return request.param


@pytest.mark.filterwarnings("default")  # of these tools
def test_records_are_the_training_log(aptool, collection_folder, log):
    finished = train(aptool, collection_folder, "models/a", "--log", log)

    assert finished.code == 0, finished.err
    expected = history("models/a")
    assert sorted(expected) == [1, 2, 3]
    assert {"loss", "active", "learning_rate", "dev/MAP", "seconds/train"} <= set(expected[1])
    assert READERS[log]("logs") == expected
    assert any(line.startswith(f"--log {log}: ") for line in finished.err)


@pytest.mark.filterwarnings("default")
def test_epochs_before_an_interruption_are_recorded_too(aptool, collection_folder, log, monkeypatch):
    assert train(aptool, collection_folder, "models/a").code == 0
    expected = history("models/a")

    # The model is complete: nothing is reported, but all epochs are recorded.
    finished = train(aptool, collection_folder, "models/a", "--log", log)

    assert finished.code == 0, finished.err
    assert READERS[log]("logs") == expected


@pytest.mark.parametrize("tool", READERS)
def test_a_tool_that_is_not_installed(aptool, collection_folder, tmp_path, monkeypatch, tool):
    monkeypatch.setitem(sys.modules, tool, None)

    finished = train(aptool, collection_folder, tmp_path / "m", "--log", tool)

    assert finished.code == 1
    assert finished.err[-1].startswith(f"aptool: --log {tool} needs {tool}")
    assert finished.err[-1].endswith(install_command(tool))
    assert not (tmp_path / "m").exists()


def history_entry(epoch):
    seconds = {"train": 1.0, "dev": 1.0, "mining": 0.0}
    return {"epoch": epoch, "loss": 0.5, "dev": {"MAP": 0.1}, "seconds": seconds}


def training_of(epochs, before=0):
    """A training whose first epochs were before an interruption."""

    def run():
        for epoch in range(before + 1, epochs + 1):
            get_progress().epoch(history_entry(epoch))
        return Fit(epochs, {}, [history_entry(epoch) for epoch in range(1, epochs + 1)], 0, 0, 0.0)

    return run


def fit_reporting(train, *arguments):
    with reporting_epochs(*arguments) as report:
        for entry in train().history:
            report(entry)


@pytest.fixture
def full_disk(monkeypatch):
    """The calls of a tracker whose disk is full from the second epoch on."""
    calls = []

    class FullDisk:
        hint = "nowhere"

        def __init__(self, name, parameters):
            calls.append((name, parameters["seed"]))

        def record(self, epoch):
            calls.append(epoch.number)
            if epoch.number > 1:
                raise OSError("no space left\nat all")

        def close(self, failed):
            calls.append(failed)

    monkeypatch.setattr("aptool.training.recorders._TRACKERS", {"wandb": FullDisk})
    return calls


def test_training_continues_if_recording_fails(full_disk, caplog):
    before = get_progress()
    with caplog.at_level("INFO", "aptool"):
        fit_reporting(training_of(3), None, "wandb", "../bucket/a:/b", load_recipe("ap-cnn"), 3)

    assert full_disk == [("bucket/a/b", 3), 1, 2]
    assert "--log wandb: no space left; nothing more is recorded" in caplog.messages
    assert sum(message.startswith("epoch ") for message in caplog.messages) == 3
    assert type(get_progress()) is type(before)


def test_record_of_a_failed_training_is_failed(full_disk):
    def diverge():
        raise AptoolError("diverged")

    with pytest.raises(AptoolError, match="diverged"):
        fit_reporting(diverge, None, "wandb", "bucket/a/b", load_recipe("ap-cnn"), 3)

    assert full_disk == [("bucket/a/b", 3), True]


def test_callback_gets_each_epoch_of_a_resumed_training_once():
    epochs = []

    fit_reporting(training_of(4, before=2), epochs.append, None, "m", load_recipe("ap-cnn"), 0)

    assert [epoch.number for epoch in epochs] == [3, 4, 1, 2]
    assert epochs[0] == Epoch(
        3,
        0.5,
        {"MAP": 0.1},
        {"loss": 0.5, "dev/MAP": 0.1, "seconds/train": 1.0, "seconds/dev": 1.0, "seconds/mining": 0.0},
    )


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
