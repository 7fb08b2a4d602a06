"""`aptool matrix --jobs N`: parallel trials give the results of serial trials."""

import os
import signal
import time

import forked
import pytest
import torch
from small_matrix import TRIALS, contents, table

from aptool.errors import AptoolError
from aptool.experiments.side_by_side import LocalProcesses
from aptool.experiments.trial import TrialRunner


@pytest.fixture
def matrix(aptool, tmp_path, collection_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(output, *arguments):
        (tmp_path / "eval.toml").write_text(table(collection_folder, "training.epochs=1"))
        return aptool("matrix", "eval.toml", "--output", output, *arguments)

    return run


def test_parallel_trials_give_the_results_of_serial_trials(matrix, tmp_path, monkeypatch):
    opened = []

    class Recorded(LocalProcesses):
        def __init__(self, number):
            super().__init__(number)
            opened.append((number, self._threads))

    monkeypatch.setattr("aptool.experiments.side_by_side.LocalProcesses", Recorded)
    monkeypatch.setattr("multiprocessing.get_context", lambda method: forked.SERVER)  # they start at once
    serial = matrix("serial")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        both = matrix("both", "--jobs", "auto", "--device", "cpu")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)

    assert serial.code == both.code == 0, both.err
    assert opened == [(2, 1)]  # one process per core, with one thread each
    assert contents(tmp_path / "both") == contents(tmp_path / "serial")
    assert len(list((tmp_path / "both").rglob("*.run"))) == 2 * TRIALS

    def table_rows(finished):
        return [line.split()[:7] for line in finished.out[: 2 * TRIALS + 1]]

    assert table_rows(both) == table_rows(serial)
    assert any(line.startswith("tiny-test: ap-cnn, seed 1: MAP ") for line in both.err)
    # Finished trials are not run again, whether they ran in parallel or not.
    assert not any("seed" in line for line in matrix("serial", "--jobs", 2).err)


OTHERS = 3  # trials that neither fail nor fuse one that fails


class Troubled(TrialRunner):
    """One trial fails; another kills its process."""

    def run(self, trial):
        if trial.system.name == "ap-cnn":
            raise AptoolError("diverged")
        if trial.system.name == "qa-cnn":
            while len(list(self.output.rglob("test.json"))) < OTHERS:  # a killed process ends its pool
                time.sleep(0.05)
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(trial)


def test_failed_trials_are_named_and_other_trials_finish(matrix, tmp_path, monkeypatch):
    monkeypatch.setattr("aptool.experiments.runner.TrialRunner", Troubled)
    monkeypatch.setattr("multiprocessing.get_context", lambda method: forked.SERVER)  # they start at once

    finished = matrix("out", "--jobs", 2)

    line = "tiny: qa-cnn, seed 1: its process ended early; expected enough memory for --jobs"
    assert {f"failed: {line}", "failed: tiny: ap-cnn, seed 1: diverged"} < set(finished.err)
    # Fusions of ap-cnn are left out.
    more = "(and 2 more without results); all other trials finished"
    assert (finished.code, finished.err[-1]) == (1, f"aptool: {line} {more}")
    runs = {path.parts[-3] for path in (tmp_path / "out").rglob("test.run")}
    assert runs == {"random", "bm25", "ap-bilstm"}
