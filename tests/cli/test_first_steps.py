"""First steps: `aptool` without a command, completion of a shell, a misspelt preset."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_aptool_alone_prints_the_help(aptool):
    alone, help_text = aptool(), aptool("--help")

    assert (alone.code, alone.out) == (2, [])
    assert alone.err == help_text.out
    assert any(line.split()[:1] == ["train"] for line in help_text.out)


def test_a_collection_without_dev_names_folds(aptool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["what is rain,water that falls,1", "what is rain,a kind of stone,0"]
    rows += ["who wrote it,the clerk did,1", "who wrote it,on a Monday,0"]
    Path("faq.csv").write_text("\n".join(["question,answer,label", *rows]) + "\n", encoding="utf-8")
    assert aptool("data", "import", "table", "train=faq.csv", "--output", "data/faq").code == 0

    refused = aptool("train", "data/faq", "--output", "models/x")

    assert (refused.code, len(refused.err)) == (1, 1)
    assert "data/faq: split 'dev'; expected one of train (`aptool data folds`" in refused.err[0]
    assert aptool("data", "folds", "data/faq", "--folds", "2", "--output", "data/folds").code == 0
    assert aptool("train", "data/folds/fold1", "--output", "models/x", "--set", "training.epochs=1").code == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path):
    script = tmp_path / "completion.sh"
    command = tmp_path / "aptool"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m aptool "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    asked = {**os.environ, "PYTHONPATH": str(ROOT), "_APTOOL_COMPLETE": "bash_source"}
    script.write_text(subprocess.check_output([command], text=True, env=asked), encoding="utf-8")

    def completions(*words):
        request = f"""source {script}; COMP_WORDS=({" ".join(map(str, words))}); COMP_CWORD={len(words) - 1}
            _aptool_completion {command}; printf '%s\\n' "${{COMPREPLY[@]}}" """
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            ["bash", "-c", request], capture_output=True, text=True, check=True, env=environment
        ).stdout.split()

    assert "train" in completions(command, "tr")
    assert "--measures" in completions(command, "eval", "--mea")


def test_misspelt_preset_suggests_the_nearest(aptool, collection_folder):
    finished = aptool("train", collection_folder, "--preset", "ap-cn")

    assert (finished.code, len(finished.err)) == (2, 1)
    assert finished.err[0].endswith("did you mean 'ap-cnn'?")
