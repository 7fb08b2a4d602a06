"""A slice of the campaign of bad inputs; `make campaign` runs all of it."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def test_five_thousand_bad_inputs():
    paths = [str(TESTS.parent), str(TESTS)]
    command = [
        sys.executable,
        str(TESTS.parent / "tools" / "campaign" / "run.py"),
        "--seed",
        "7",
        "--inputs",
        "5000",
    ]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "5,000 inputs, 0 failed" in done.stdout
