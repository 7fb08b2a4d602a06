"""`aptool matrix --cluster`: parallel trials as Ray tasks."""

import json
import os
import signal
from pathlib import Path

import pytest
from recorded import recorded
from small_matrix import TRIALS, contents, table

from aptool.cluster.connection import Resources
from aptool.experiments.matrix import read_matrix
from aptool.experiments.runner import run_matrix


def process_named(title):
    """The id of the process whose title starts with a text."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_text().startswith(title):
                return int(folder.name)
        except OSError:
            continue
    raise LookupError(title)


@pytest.fixture
def plan(collection_folder, tmp_path):
    (tmp_path / "eval.toml").write_text(table(collection_folder, "training.epochs=2"))
    return tmp_path / "eval.toml"


@pytest.fixture
def serial(plan, tmp_path, surroundings):
    """The results of serial trials in this process."""
    run_matrix(read_matrix(plan), tmp_path / "serial")
    return contents(tmp_path / "serial")


def test_parallel_trials_have_the_results_of_serial_trials(run, plan, serial, address, tmp_path):
    finished = run("-m", "aptool", "matrix", plan.name, "--output", "out", "--cluster", address)

    assert finished.code == 0, finished.err
    assert contents(tmp_path / "out") == serial
    assert len(list((tmp_path / "out").rglob("*.run"))) == 2 * TRIALS
    assert "room for 2 trials with 1 CPU and 0 GPUs each" in finished.err[0]
    results = json.loads((tmp_path / "out" / "table.json").read_text())["results"]
    assert len(results) == 2 * TRIALS


def test_a_trial_whose_worker_is_killed_is_run_again(cluster, plan, serial, tmp_path):
    from aptool.cluster.tasks import ClusterProcesses

    killed = []

    class Killing(ClusterProcesses):
        def ended(self, timeout):
            if not killed and list((tmp_path / "out").rglob("*.training")):
                killed.append(process_named("ray::trial tiny: "))
                os.kill(killed[0], signal.SIGKILL)
            return super().ended(timeout)

    with recorded() as records:
        results = run_matrix(
            read_matrix(plan), tmp_path / "out", processes=lambda: Killing(cluster, Resources(1))
        )

    assert len(results) == 2 * TRIALS
    assert killed
    assert not any(line.startswith("failed") for line in records.messages)
    assert contents(tmp_path / "out") == serial
