"""Training on a cluster, with killed workers, drivers and nodes, errors and interruptions."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from scene import by_signal, node_ids, wait_for
from tiny import options, recipe
from trainings import OPTIONS, SEED, trained

from aptool.data.collection import Collection
from aptool.errors import AptoolError, UsageError
from aptool.training.checkpoint import STATE, training_folder
from aptool.training.fit import fit

FILES = ("model.safetensors", "config.json", "tokenizer.json")
ONE_EPOCH = ("--set", "training.epochs=1")
# Prefixes of the log lines of training and of its progress.
PREFIXES = ("epoch ", "learning ", "training ", "vectors for ", "dev: ", "train: ", "word vectors: ")


@pytest.fixture(scope="module")
def together(cluster, tmp_path_factory, collection_folder):
    """The model folder of an undisturbed training with two workers; read only."""
    folder = tmp_path_factory.mktemp("together") / "model"
    result, records = trained(cluster, collection_folder, folder, workers=2)
    assert records.messages[0].startswith(
        f"cluster {cluster.address}: 2 workers with 1 CPU and 0 GPUs each; "
    )
    assert records.epochs == [entry["epoch"] for entry in result.history] == [1, 2, 3, 4]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    return folder


@pytest.fixture(scope="module")
def alone(surroundings, tmp_path_factory, collection_folder):
    folder = tmp_path_factory.mktemp("alone") / "model"
    fit(Collection(collection_folder), recipe("ap-cnn", *OPTIONS), folder, seed=SEED)
    return folder


def same(first, second):
    return all((first / file).read_bytes() == (second / file).read_bytes() for file in FILES)


def assert_close(first, second):
    """Check that models differ only by the order of sums.

    Adam makes a full step for a gradient near zero, whose sign may differ: after twenty steps of 0.01,
    weights differ by at most one step.
    """
    losses = [[json.loads(line)["loss"] for line in history(folder)] for folder in (first, second)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    expected = load_file(second / "model.safetensors")
    for name, weight in load_file(first / "model.safetensors").items():
        torch.testing.assert_close(weight, expected[name], atol=1e-2, rtol=0)


def history(folder):
    return (folder / "training" / "history.jsonl").read_text().splitlines()


def test_two_workers_train_the_model_of_one_process(together, alone):
    assert_close(together, alone)


ARGUMENTS = ("--seed", SEED, *(part for option in options("ap-cnn", *OPTIONS) for part in ("--set", option)))


@pytest.fixture
def slow_driver(surroundings, tmp_path):
    """A function that starts `aptool train` with slow workers; they wait while OUTPUT.hold exists."""
    started, log = [], tmp_path / "log"

    def start(*arguments, **environment):
        program = [Path(__file__).with_name("dying_training.py"), 99]  # no epoch kills it
        program += ["train", *arguments]
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *map(str, program)],
                stdout=file,
                stderr=file,
                cwd=tmp_path,
                env=surroundings | environment,
                # If a shell runs the tests in the background, child processes ignore Ctrl-C.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )
        started.append(process)
        return process, log

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for_epoch(number, training, log):
    """Wait until a training has reported an epoch."""
    wait_for(lambda: training.poll() is not None or f"epoch {number}: " in log.read_text())
    assert training.poll() is None, log.read_text()


def test_training_resumes_within_an_epoch_after_a_killed_worker(
    cluster, collection_folder, tmp_path, monkeypatch
):
    """Dropout differs between workers: the checkpoint has the random states of both workers."""
    import dying_training

    dropout = "training.dropout=0.3"
    trained(cluster, collection_folder, tmp_path / "whole", dropout, workers=2)
    monkeypatch.setattr("aptool.cluster.train.train_worker", dying_training.killed_worker)

    _, records = trained(
        cluster, collection_folder, tmp_path / "model", dropout, workers=2, checkpoint_minutes=1e-9
    )

    assert (tmp_path / "model.killed").exists()
    # The worker was killed in the third update of eight pairs.
    assert f"{tmp_path / 'model'}: resuming in epoch 3 of 4, after 16 pairs" in records.messages
    assert same(tmp_path / "model", tmp_path / "whole")


def test_training_resumes_after_a_killed_driver(run, aptool, cluster, collection_folder, together, tmp_path):
    arguments = ("train", collection_folder, "--output", tmp_path / "model", *ARGUMENTS)
    arguments += ("--cluster", cluster.address, "--workers", 2)

    killed = run(Path(__file__).with_name("dying_training.py"), 2, *arguments)
    assert killed.code == -signal.SIGKILL, killed.err
    assert [line.split(":")[0] for line in killed.err[-2:]] == ["epoch 1", "epoch 2"]
    assert not (tmp_path / "model").exists()
    again = aptool(*arguments)

    assert again.code == 0, again.err
    going_on = [line.rpartition("/")[2] for line in again.err if "resuming after epoch" in line]
    assert going_on in (["model: resuming after epoch 2 of 4"], ["model: resuming after epoch 3 of 4"])
    assert "/model: best epoch " in again.out[0]
    assert same(tmp_path / "model", together)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def trains_on(node):
    """Whether a training worker runs on a node."""
    raylet = node.all_processes["raylet"][0].process.pid
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == raylet and "RayTrainWorker" in (process / "cmdline").read_text():
                return True
    return False


def test_elastic_training_follows_a_node_that_joins_and_is_lost(
    cluster, nodes, collection_folder, alone, tmp_path, monkeypatch
):
    """Ray Train looks for room, by default once a minute, and restarts workers from the last checkpoint."""
    import dying_training
    import ray.train

    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "20")  # it waits for the lost node, too
    often = partial(ray.train.ScalingConfig, elastic_resize_monitor_interval_s=2)
    monkeypatch.setattr("ray.train.ScalingConfig", often)
    monkeypatch.setattr("aptool.cluster.train.train_worker", dying_training.slow_worker)
    extra = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    hold = tmp_path / "model.hold"

    def change(number):
        if number == 1:
            hold.touch()  # the training must not end before
            wait_for(lambda: trains_on(extra))
            hold.unlink()
        if number == 3:
            hold.touch()
            nodes.remove_node(extra, allow_graceful=False)
            hold.unlink()

    workers = {"workers": (1, 3), "checkpoint_minutes": 0}
    result, records = trained(cluster, collection_folder, tmp_path / "model", on_epoch=change, **workers)

    assert records.messages[0].startswith(f"cluster {cluster.address}: 1 to 3 workers with 1 CPU and 0 GPUs")
    assert any("resuming after epoch 3" in line for line in records.messages)
    assert [entry["epoch"] for entry in result.history] == [1, 2, 3, 4]
    assert_close(tmp_path / "model", alone)


@pytest.fixture(scope="module")
def of_three(cluster, nodes, tmp_path_factory, collection_folder):
    """The model folder of an undisturbed training with three workers; read only."""
    folder = tmp_path_factory.mktemp("three") / "model"
    extra = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    trained(cluster, collection_folder, folder, workers=3)
    nodes.remove_node(extra)
    return folder


def test_notice_of_preemption_saves_a_checkpoint_within_the_epoch(
    cluster, nodes, collection_folder, of_three, tmp_path, monkeypatch, preempt, in_thread
):
    """Only the updates after the notice are lost; the same number of workers ends in the same bytes."""
    import dying_training

    before = node_ids()
    extra = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    (new,) = node_ids() - before
    monkeypatch.setattr("aptool.cluster.train.train_worker", dying_training.preempted_worker)
    monkeypatch.setenv("RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S", "0.5")
    output, state = tmp_path / "model", tmp_path / "model.training" / "state.safetensors"
    training = in_thread(trained, cluster, collection_folder, output, workers=3)
    wait_for(lambda: (tmp_path / "model.ready").exists())
    version = state.stat().st_mtime_ns
    preempt(new)
    wait_for(lambda: state.stat().st_mtime_ns != version)
    nodes.remove_node(extra, allow_graceful=False)
    replacement = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    (tmp_path / "model.lost").touch()
    _, records = training.result(600)
    nodes.remove_node(replacement)

    resumed = [line for line in records.messages if ": resuming " in line]
    assert any(": resuming in epoch 3 of 4, after " in line for line in resumed), resumed
    assert same(output, of_three)


WAITING = "waiting for 3 workers with 1 CPU and 0 GPUs each; the cluster has 2 CPUs and 0 GPUs, on 3 nodes"


def test_training_waits_until_a_lost_node_is_replaced(
    slow_driver, nodes, address, collection_folder, of_three, tmp_path
):
    """The node is missing for longer than three timeouts of Ray Train, each a minute by default."""
    extra = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    arguments = (collection_folder, "--output", "model", *ARGUMENTS, "--cluster", address)
    training, log = slow_driver(*arguments, "--workers", 3, RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S="5")
    try:
        wait_for_epoch(2, training, log)
        nodes.remove_node(extra, allow_graceful=False)
        extra = None
        wait_for(lambda: training.poll() is not None or WAITING in log.read_text())
        time.sleep(16)
        assert training.poll() is None, log.read_text()
        extra = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
        assert training.wait(600) == 0, log.read_text()
    finally:
        if extra is not None:
            nodes.remove_node(extra)

    assert "resuming after epoch" in log.read_text()
    assert same(tmp_path / "model", of_three)


def test_train_in_a_process_of_its_own(run, address, collection_folder):
    finished = run("-m", "aptool", "train", collection_folder, *ONE_EPOCH, "--cluster", RAY_ADDRESS=address)

    assert finished.code == 0, finished.err
    started = f"cluster {address}: 2 workers with 1 CPU and 0 GPUs each; "
    assert sum(line.startswith(started) for line in finished.err) == 1
    assert finished.out[0].startswith("models/ap-cnn: best epoch ")
    # No message of Ray.
    assert [line for line in finished.err if not line.startswith(("--output ", started, *PREFIXES))] == []


def test_a_complete_model_is_not_trained_again(cluster, collection_folder, together):
    _, records = trained(cluster, collection_folder, together, workers=2)

    assert (len(records.messages), records.epochs) == (1, [])
    assert records.messages[0].startswith(f"{together}: up to date")


def test_error_of_the_workers_is_one_line_without_a_restart(cluster, collection_folder, tmp_path):
    output = tmp_path / "model"
    with pytest.raises(AptoolError, match=r"the loss is nan after \d+ updates") as error:
        trained(cluster, collection_folder, output, "training.optimizer=sgd", rate=1e30, workers=2)

    assert "\n" not in str(error.value)
    assert not output.exists()


def test_more_workers_than_questions_per_minibatch_are_refused(cluster, collection_folder, tmp_path):
    with pytest.raises(UsageError, match="--workers 2: expected no more than the 1 question of a minibatch"):
        trained(cluster, collection_folder, tmp_path / "model", "training.minibatch=1", workers=2)


def test_error_of_one_worker_ends_all_workers(cluster, collection_folder, tmp_path, monkeypatch):
    """The first worker waits for gradients, with a timeout of hours."""
    import dying_training

    begun = time.monotonic()
    monkeypatch.setattr("aptool.cluster.train.train_worker", dying_training.short_of_memory)
    with pytest.raises(AptoolError) as error:
        trained(cluster, collection_folder, tmp_path / "model", workers=2)

    assert str(error.value).startswith("node ")
    assert "out of memory" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()
    assert time.monotonic() - begun < 600  # long enough for a busy machine


@by_signal
def test_interrupted_training_is_one_line_and_keeps_its_checkpoint(
    slow_driver, address, collection_folder, tmp_path, number, code, line
):
    arguments = ("--output", "model", *ARGUMENTS, "--cluster", address, "--workers", 2)
    training, log = slow_driver(collection_folder, *arguments)
    wait_for_epoch(1, training, log)
    (tmp_path / "model.hold").touch()
    training.send_signal(number)
    assert training.wait(600) == code, log.read_text()

    assert log.read_text().splitlines()[-1] == line
    assert not (tmp_path / "model").exists()
    assert (training_folder(tmp_path / "model") / STATE).is_file()
