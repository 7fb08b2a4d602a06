"""The environment in which torch is loaded: OpenMP's threads spin briefly, unless the user has decided."""

import os
import subprocess
import sys

import pytest

from aptool.environment import SPIN_COUNT, USER_SETTINGS

CODE = """
import {first}, {second}, os
from aptool.cli import main
main.sys.argv = ["aptool", "--version"]
try:
    main.main()
except SystemExit:
    print(os.environ.get("GOMP_SPINCOUNT"))
"""


def spin_count(first, second, **environment):
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    command = [sys.executable, "-c", CODE.format(first=first, second=second)]
    finished = subprocess.run(
        command, env={**inherited, **environment}, capture_output=True, text=True, check=True
    )
    return finished.stdout.splitlines()[-1]


def test_the_command_limits_spinning_before_torch_is_loaded():
    assert spin_count("aptool", "sys") == str(SPIN_COUNT)


def test_the_library_leaves_the_environment_alone():
    inherited = {name: value for name, value in os.environ.items() if name not in USER_SETTINGS}
    code = "import aptool, os; aptool.AptoolError; print(os.environ.get('GOMP_SPINCOUNT'))"
    command = [sys.executable, "-c", code]
    finished = subprocess.run(command, env=inherited, capture_output=True, text=True, check=True)

    assert finished.stdout.strip() == "None"


@pytest.mark.parametrize("setting", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_what_the_user_has_set_stays(setting):
    assert spin_count("aptool", "sys", **setting) == setting.get("GOMP_SPINCOUNT", "None")


def test_after_torch_is_loaded_nothing_is_set():
    assert spin_count("torch", "aptool") == "None"
