"""The ``aptool`` command: help, wrong usage and exit codes."""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata

import pytest
import torch

from aptool import __version__
from aptool.cli.main import LazyGroup
from aptool.errors import InputError

COMMANDS = list(LazyGroup.entries)


def test_help_lists_every_command(aptool):
    for flag in ("--help", "-h"):
        finished = aptool(flag)
        assert (finished.code, finished.err) == (0, [])
        assert finished.out[0] == "Usage: aptool [OPTIONS] COMMAND [ARGS]..."
        listed = [line.split()[0] for line in finished.out[finished.out.index("Commands:") + 1 :]]
        assert [name for name in listed if name in COMMANDS] == COMMANDS


def test_version(aptool):
    finished = aptool("--version")

    assert (finished.code, finished.err, len(finished.out)) == (0, [], 3)
    assert finished.out[0] == f"aptool {__version__}"
    assert finished.out[1].startswith(
        f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    )
    assert re.search(r"\bcpu \(.+ cores\)$", finished.out[2])


@pytest.mark.parametrize("arguments", [[], ["data"], ["data", "import"]])
def test_group_without_a_command_prints_help_and_exits_with_2(aptool, arguments):
    finished = aptool(*arguments)

    assert (finished.code, finished.out) == (2, [])
    assert finished.err[0].startswith(" ".join(["Usage: aptool", *arguments]))
    assert "Commands:" in finished.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'? (see `aptool --help`)"),
        (["xyzzy"], "No such command 'xyzzy'. (see `aptool --help`)"),
        (["score"], "Missing argument 'POOLS...'. (see `aptool score --help`)"),
        (["eval", "x.run", "--qrel", "x"], "--qrels"),
        (["score", "x", "--modle", "m"], "--model"),
        (["train", "--output"], "Option '--output' requires an argument."),
        (["data", "stats", "one", "two"], "Got unexpected extra argument (two)"),
    ],
)
def test_wrong_usage_is_one_line_with_the_nearest_name(aptool, arguments, message):
    finished = aptool(*arguments)

    assert (finished.code, finished.out, len(finished.err)) == (2, [], 1)
    assert finished.err[0].startswith("aptool: ")
    assert message in finished.err[0]


def test_debug_raises_the_error(aptool, tmp_path, monkeypatch):
    from aptool.cli.main import main

    assert aptool("eval", tmp_path / "none.run", "--qrels", "x").code == 1
    for arguments in (["--debug", "eval"], ["eval", "--debug"]):
        monkeypatch.setattr(sys, "argv", ["aptool", *arguments, str(tmp_path / "none.run"), "--qrels", "x"])
        with pytest.raises(InputError):
            main()


def test_error_of_the_operating_system_is_one_line(aptool):
    finished = aptool("score", "x" * 300 + "/a.pools.parquet", "--output", "x.run")

    assert (finished.code, finished.out) == (1, [])
    assert "File name too long" in finished.err[-1]


def test_characters_that_the_encoding_lacks_are_escaped(tmp_path):
    (tmp_path / "→").mkdir()
    command = [sys.executable, "-m", "aptool", "data", "check", "→"]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}

    finished = subprocess.run(command, cwd=tmp_path, env=latin, capture_output=True, text=True, timeout=60)

    assert finished.returncode == 1
    assert finished.stdout.startswith("\\u2192: no collection.json in it")
    assert finished.stderr == "1 of 1 invalid\n"


def test_closed_pipe_prints_no_error(tmp_path):
    # Same as `aptool --help | head -1`.
    reader, writer = os.pipe()
    os.close(reader)

    finished = subprocess.run(
        [sys.executable, "-m", "aptool", "--help"],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)

    assert finished.stderr == ""


@pytest.mark.parametrize("streams", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-", "2>/dev/full", "1>/dev/full"])
def test_closed_or_full_streams_change_no_output(tmp_path, streams):
    qrels, run = tmp_path / "x.qrels", tmp_path / "x.run"
    qrels.write_text("q1 0 a1 1\n", encoding="utf-8")
    run.write_text("q1 Q0 a1 1 2.0 t\nq1 Q0 a2 2 1.0 t\n", encoding="utf-8")
    command = f"exec env -u PYTHONUNBUFFERED {sys.executable} -m aptool"

    evaluated = subprocess.run(
        f"{command} eval x.run --qrels x.qrels --per-question x.csv {streams}",
        shell=True,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        timeout=60,
    )

    assert evaluated.returncode == (streams == "1>/dev/full")
    assert (b"1.0000" in evaluated.stdout) == ("1>" not in streams)
    assert (tmp_path / "x.csv").read_text(encoding="utf-8").count("\n") == 2


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: out of memory")],
)
def test_lack_of_memory_in_any_command_is_one_line(aptool, model_folder, error, monkeypatch):
    def full(*given, **named):
        raise error

    monkeypatch.setattr("aptool.models.model.read_tensors", full)
    texts = ("--question", "where is the river", "--answer", "near the bridge")

    finished = aptool("explain", "--model", model_folder, *texts)

    assert (finished.code, finished.out) == (1, [])
    expected = "smaller inputs, a device with more free memory, or --device cpu"
    assert finished.err == [f"aptool: out of memory; expected {expected}"]
