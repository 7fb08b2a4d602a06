"""Runs that are killed at any time and started again have the bytes of a run without interruption."""

import os
import random
import signal
import time

import forked
import pytest
from tiny import row, write_pools

from aptool.data.pools import list_units
from aptool.data.runs import read_run
from aptool.scoring.run import score_files
from aptool.scoring.systems import RandomScores

UNITS = 12


def score_small_units(pools, output):
    """Score units of six pairs; a line on stdout says that it begins."""
    import aptool.data.pools

    aptool.data.pools.UNIT_PAIRS = 6
    os.write(1, b"ready")
    score_files(list_units([pools]), RandomScores(), output)


def content(output):
    """The bytes of the files of a run, without its sidecar."""
    files = sorted(output.iterdir()) if output.is_dir() else [output]
    return [(file.name if output.is_dir() else "", file.read_bytes()) for file in files]


@pytest.mark.parametrize("name", ["out.run.gz", "out.parquet", "out/"])
def test_a_run_that_is_killed_three_times_is_that_of_one_call(tmp_path, monkeypatch, name):
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 6)
    pairs = [("a1", "x"), ("a2", "y"), ("a3", "z")]
    groups = [[row(f"q{2 * n + i}", candidates=pairs) for i in range(2)] for n in range(UNITS)]
    pools = write_pools(tmp_path / "x.pools.parquet", *groups)
    output = f"{tmp_path / 'killed' / name}{'/' * name.endswith('/')}"
    started = time.monotonic()
    score_files(list_units([pools]), RandomScores(), f"{tmp_path / 'whole' / name}{'/' * name.endswith('/')}")
    longest = time.monotonic() - started
    generator = random.Random(name)

    for number in range(3):
        folder = tmp_path / f"process{number}"
        process = forked.start(folder, score_small_units, str(pools), output)
        while not (folder / "out").exists() or not (folder / "out").read_bytes():
            assert process.exitcode in (None, 0), (folder / "err").read_text()
            time.sleep(0.001)
        time.sleep(generator.random() * longest)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), (folder / "err").read_text()

    score_files(list_units([pools]), RandomScores(), output)
    assert content(tmp_path / "killed" / name) == content(tmp_path / "whole" / name)
    assert read_run(output).frame.height == 6 * UNITS
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {
        path.name for path in (tmp_path / "whole").iterdir()
    }
