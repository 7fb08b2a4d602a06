"""Progress of long work: bars in a notebook, nothing in a script, lines if logging is configured."""

import subprocess
import sys
import types

import pytest
from tiny import options

import aptool

SCRIPT = """
import aptool
{logging}
data = aptool.Collection("data/wikiqa")
model = aptool.train(data, set={options!r})
model.run(data.pools("dev")).save("dev.run")
aptool.score(data.pools("test"), model=model, output="test.run")
"""
CONFIGURED = "import logging; logging.basicConfig(level='INFO', format='%(message)s')"


@pytest.fixture
def script(folder):
    def run(logging):
        code = SCRIPT.format(logging=logging, options=list(options("ap-cnn")))
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder, check=True
        )

    return run


def test_a_script_is_silent(script, folder):
    finished = script("")

    assert (finished.stdout, finished.stderr) == ("", "")
    assert len((folder / "test.run").read_text().splitlines()) == 120


def test_a_script_that_configures_logging_gets_lines(script):
    finished = script(CONFIGURED)

    assert finished.stdout == ""
    assert [line.split(":")[0] for line in finished.stderr.splitlines() if line.startswith("epoch")] == [
        f"epoch {number}" for number in (1, 2, 3, 4)
    ]


def test_a_notebook_gets_bars(data, model, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))

    model.run(data.pools("dev"))
    scored = capsys.readouterr()
    aptool.train(data, set=list(options("ap-cnn")))
    trained = capsys.readouterr()

    assert (scored.out, trained.out) == ("", "")
    assert "score" in scored.err
    assert "train" in trained.err
