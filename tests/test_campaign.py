"""A small sample of the campaign of bad inputs. CI tries 1,500 inputs; `make campaign` tries 100,000."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def test_bad_inputs_have_one_line_errors():
    paths = [str(TESTS.parent), str(TESTS)]
    command = [
        sys.executable,
        str(TESTS.parent / "tools" / "campaign" / "run.py"),
        "--seed",
        "7",
        "--inputs",
        "100",
    ]

    finished = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )

    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-2000:]
    assert "100 inputs, 0 failed" in finished.stdout
