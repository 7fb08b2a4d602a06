"""Runs that are killed at any time and started again have the bytes of a run without interruption."""

import random
import signal
import subprocess
import sys
import time

import pytest
from tiny import row, write_pools

from aptool.data.pools import list_units
from aptool.data.runs import read_run
from aptool.scoring.run import score_files
from aptool.scoring.systems import RandomScores

DRIVER = """
import sys
import aptool.data.pools
from aptool.data.pools import list_units
from aptool.scoring.run import score_files
from aptool.scoring.systems import RandomScores

aptool.data.pools.UNIT_PAIRS = 6
print("ready", flush=True)
score_files(list_units([sys.argv[1]]), RandomScores(), sys.argv[2])
"""


def content(output):
    """The bytes of the files of a run, without its sidecar."""
    files = sorted(output.iterdir()) if output.is_dir() else [output]
    return [(file.name if output.is_dir() else "", file.read_bytes()) for file in files]


@pytest.mark.parametrize(
    ("units", "name"), [(4, "out.run"), (40, "out.run.gz"), (40, "out.parquet"), (40, "out/")]
)
def test_a_run_that_is_killed_five_times_is_that_of_one_call(tmp_path, monkeypatch, units, name):
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 6)
    pairs = [("a1", "x"), ("a2", "y"), ("a3", "z")]
    groups = [[row(f"q{2 * n + i}", candidates=pairs) for i in range(2)] for n in range(units)]
    pools = write_pools(tmp_path / "x.pools.parquet", *groups)
    output = f"{tmp_path / 'killed' / name}{'/' * name.endswith('/')}"
    started = time.monotonic()
    score_files(list_units([pools]), RandomScores(), f"{tmp_path / 'whole' / name}{'/' * name.endswith('/')}")
    longest = time.monotonic() - started
    generator = random.Random(f"{units} {name}")

    for _ in range(5):
        driver = [sys.executable, "-c", DRIVER, str(pools), output]
        with subprocess.Popen(driver, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(generator.random() * longest)
            process.kill()
            error = process.stderr.read().decode()
        assert process.returncode in (0, -signal.SIGKILL), error

    score_files(list_units([pools]), RandomScores(), output)
    assert content(tmp_path / "killed" / name) == content(tmp_path / "whole" / name)
    assert read_run(output).frame.height == 6 * units
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {
        path.name for path in (tmp_path / "whole").iterdir()
    }
