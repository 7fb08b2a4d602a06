"""The command limits spinning of OpenMP threads before torch is imported, unless the user has set it."""

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


def test_command_limits_spinning_before_torch_is_imported():
    assert spin_count("aptool", "sys") == str(SPIN_COUNT)


def test_library_does_not_change_the_environment():
    inherited = {name: value for name, value in os.environ.items() if name not in USER_SETTINGS}
    code = "import aptool, os; aptool.AptoolError; print(os.environ.get('GOMP_SPINCOUNT'))"
    command = [sys.executable, "-c", code]
    finished = subprocess.run(command, env=inherited, capture_output=True, text=True, check=True)

    assert finished.stdout.strip() == "None"


@pytest.mark.parametrize("setting", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_setting_of_the_user_is_preserved(setting):
    assert spin_count("aptool", "sys", **setting) == setting.get("GOMP_SPINCOUNT", "None")


def test_variable_is_not_set_after_torch_is_imported():
    assert spin_count("torch", "aptool") == "None"
