"""The command limits spinning of OpenMP threads before torch is imported."""

import os
import subprocess
import sys

from aptool.environment import SPIN_COUNT, USER_SETTINGS

COMMAND = """
import sys, os
from aptool.cli.main import main
sys.argv = ["aptool", "--help"]
try:
    main()
except SystemExit:
    print(os.environ.get("GOMP_SPINCOUNT"))
"""
LIBRARY = "import aptool, os; aptool.AptoolError; print(os.environ.get('GOMP_SPINCOUNT'))"


def spin_count_of(code):
    inherited = {name: value for name, value in os.environ.items() if name not in USER_SETTINGS}
    finished = subprocess.run([sys.executable, "-c", code], env=inherited, capture_output=True, text=True)
    return finished.stdout.splitlines()[-1]


def test_a_command_limits_spinning_and_the_library_does_not():
    assert spin_count_of(COMMAND) == str(SPIN_COUNT)
    assert spin_count_of(LIBRARY) == "None"
