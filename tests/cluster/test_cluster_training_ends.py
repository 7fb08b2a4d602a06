"""Errors and interruptions of a training on a cluster."""

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from tiny import options
from trainings import trained

from aptool.errors import AptoolError, UsageError


def test_error_of_the_workers_is_one_line_without_a_restart(cluster, collection_folder, tmp_path):
    with pytest.raises(AptoolError, match=r"the loss is nan after \d+ updates") as error:
        trained(
            *(cluster, collection_folder, tmp_path / "model"), "training.optimizer=sgd", rate=1e30, workers=2
        )

    assert "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()


def test_more_workers_than_questions_per_minibatch_are_refused(cluster, collection_folder, tmp_path):
    with pytest.raises(UsageError, match="--workers 2: expected no more than the 1 question of a minibatch"):
        trained(cluster, collection_folder, tmp_path / "model", "training.minibatch=1", workers=2)


@pytest.mark.parametrize("rank", [0, 1])
def test_error_of_one_worker_ends_all_workers(cluster, collection_folder, tmp_path, monkeypatch, rank):
    """The other worker waits for gradients, with a timeout of hours."""
    import dying_training

    begun = time.monotonic()
    monkeypatch.setattr("aptool.cluster.train.train_worker", dying_training.short_of_memory[rank])
    with pytest.raises(AptoolError) as error:
        trained(cluster, collection_folder, tmp_path / "model", workers=2)

    assert str(error.value).startswith("node ")
    assert "out of memory" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()
    assert time.monotonic() - begun < 600  # long enough for a busy machine


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGINT, 130, "aptool: interrupted; the same command resumes"),
        (signal.SIGTERM, 143, "aptool: terminated; the same command resumes"),
    ],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_interrupted_training_resumes_the_next_time(
    run, address, surroundings, collection_folder, tmp_path, number, code, line
):
    settings = [part for option in options("ap-cnn") for part in ("--set", option)]
    arguments = [
        "train",
        collection_folder,
        "--output",
        "model",
        *settings,
        "--cluster",
        address,
        "--workers",
        2,
    ]
    program = [Path(__file__).with_name("dying_training.py"), 99, *arguments]
    log = tmp_path / "log"
    with log.open("w") as file:
        command = [sys.executable, *map(str, program)]
        # If a shell runs the tests in the background, child processes ignore Ctrl-C.
        training = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            cwd=tmp_path,
            env=surroundings,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    try:
        while "epoch 1: " not in log.read_text():
            assert training.poll() is None, log.read_text()
            time.sleep(0.1)
        (tmp_path / "model.hold").touch()
        training.send_signal(number)
        assert training.wait(600) == code, log.read_text()
    finally:
        training.kill()
        training.wait()
    assert log.read_text().splitlines()[-1] == line
    assert not (tmp_path / "model").exists()
    (tmp_path / "model.hold").unlink()

    again = run("-m", "aptool", *arguments)

    assert again.code == 0, again.err
    assert any("epoch 4: " in line for line in again.err)
    assert not any("epoch 1: " in line for line in again.err)
