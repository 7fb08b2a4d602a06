"""The benchmark of a whole command and its imports."""

import subprocess

import pytest
from click.testing import CliRunner

from aptool.cli.main import cli
from bench import command
from bench.end_to_end import write_input


def test_the_command_scores_a_thousand_pairs(tmp_path):
    write_input(tmp_path, 0.02, command.POOLS)
    _, module, *arguments = command.commands(tmp_path)["aptool score"]

    done = CliRunner().invoke(cli, arguments)

    assert (module, done.exit_code) == ("aptool", 0), done.output
    assert len((tmp_path / "out.run").read_text().splitlines()) == 1000


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("refusal: pools", r"nowhere: file not found"),
        ("refusal: model", r"1 models here: model"),
        ("refusal: table", r"nowhere\.toml: file not found; expected a recipe"),
    ],
)
def test_a_refusal_is_timed_as_one(kind, message, tmp_path):
    write_input(tmp_path, 0.02, command.POOLS)
    arguments = command.commands(tmp_path)[kind]

    seconds, processor_seconds = command.timed(arguments, code=1)

    assert min(seconds, processor_seconds) > 0
    with pytest.raises(RuntimeError, match=message):
        command.timed(arguments)


def test_time_of_a_package_is_the_sum_of_its_modules(monkeypatch):
    printed = """
import time: self [us] | cumulative | imported package
import time:       100 |        100 |     torch._C
import time:      1000 |       1100 |   torch
import time:        30 |       1130 | aptool.models
warning: not of the imports
"""
    done = subprocess.CompletedProcess([], 0, stdout="", stderr=printed)
    monkeypatch.setattr(subprocess, "run", lambda arguments, **options: done)

    assert command.imports(["-c", "pass"]) == {"torch": 0.0011, "aptool": 0.00003}
