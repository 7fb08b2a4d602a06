"""`aptool matrix --cluster`: trials side by side as Ray tasks, to the byte those one after the other."""

import json
import os
import signal
from pathlib import Path

import pytest
from recorded import recorded
from small_matrix import TRIALS, contents, table

from aptool.cluster.resources import Resources
from aptool.experiments.matrix import read_matrix
from aptool.experiments.runner import Runner


def process_named(title):
    """The id of a process whose title begins so."""
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
    """What this process computes."""
    Runner(read_matrix(plan), tmp_path / "serial").run()
    return contents(tmp_path / "serial")


def test_six_rows_side_by_side_are_those_one_after_the_other(run, plan, serial, address, tmp_path):
    finished = run("-m", "aptool", "matrix", plan.name, "--output", "out", "--cluster", address)

    assert finished.code == 0, finished.err
    assert contents(tmp_path / "out") == serial
    assert len(list((tmp_path / "out").rglob("*.run"))) == 2 * TRIALS
    assert "room for 2 trials with 1 CPU and 0 GPUs each" in finished.err[0]
    results = json.loads((tmp_path / "out" / "table.json").read_text())["results"]
    assert len(results) == 2 * TRIALS


def test_a_trial_whose_worker_is_killed_is_run_again(cluster, plan, serial, tmp_path):
    from aptool.cluster.trials import ClusterProcesses

    killed = []

    class Killing(ClusterProcesses):
        def events(self, timeout):
            found = super().events(timeout)
            if not killed and any(event.kind == "epoch" for event in found):
                killed.append(process_named("ray::trial tiny: "))
                os.kill(killed[0], signal.SIGKILL)
            return found

    with recorded() as told:
        results = Runner(read_matrix(plan), tmp_path / "out").run(lambda: Killing(cluster, Resources(1)))

    assert len(results) == 2 * TRIALS
    assert killed
    assert not any(line.startswith("failed") for line in told.messages)
    assert contents(tmp_path / "out") == serial
