"""First steps: `aptool` without a command, `aptool doctor`, completion of a shell, a misspelt preset."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from aptool.cli import doctor
from aptool.config import preset_names
from aptool.version import install_command

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
    assert aptool("data", "import", "tsv", "train=faq.csv", "--output", "data/faq").code == 0

    refused = aptool("train", "data/faq", "--output", "models/x")

    assert (refused.code, len(refused.err)) == (1, 1)
    assert "data/faq: split 'dev'; expected one of train (`aptool data folds`" in refused.err[0]
    assert aptool("data", "folds", "data/faq", "--folds", "2", "--output", "data/folds").code == 0
    assert aptool("train", "data/folds/fold1", "--output", "models/x", "--set", "training.epochs=1").code == 0


def test_doctor_describes_this_machine(aptool):
    finished = aptool("doctor", "--json")
    report = json.loads("\n".join(finished.out))

    assert finished.code == (1 if report["problems"] else 0)
    assert report["versions"]["Python"] == sys.version.split()[0]
    assert 0 < report["cores"] <= os.cpu_count()
    assert report["devices"][-1].startswith("cpu")


def test_doctor_reports_each_problem(aptool, monkeypatch):
    monkeypatch.setattr(doctor, "available_cores", lambda: 0.5)
    monkeypatch.setattr(doctor, "available_memory", lambda: 2**30)

    finished = aptool("doctor")

    problems = [line for line in finished.out if line.startswith("problem ")]
    assert finished.code == 1
    assert any("set OMP_NUM_THREADS=1" in line for line in problems)
    assert any("1.0 GiB of memory" in line for line in problems)
    assert finished.out[: len(problems)] == problems


def test_doctor_prints_problems_then_the_machine_then_extras(aptool, monkeypatch):
    monkeypatch.setattr(doctor, "_problems", lambda *_: [])
    monkeypatch.setattr(doctor, "missing_by_extra", lambda: {"hub": ["huggingface_hub"], "report": []})

    finished = aptool("doctor")

    titles = [line.split()[0] for line in finished.out if not line.startswith(" ")]
    assert titles == [
        "problems",
        "devices",
        "cores",
        "memory",
        "disk",
        "Ray",
        "encoders",
        "versions",
        "extras,",
    ]
    assert finished.out[0] == "problems  none"
    assert f"extras, installed with {install_command('NAME')}:" in finished.out
    assert [line.split()[:2] for line in finished.out[-2:]] == [["report", "installed"], ["hub", "missing"]]


def test_doctor_runs_from_a_source_tree_without_package_metadata(aptool, monkeypatch):
    def requires(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(doctor.metadata, "requires", requires)
    monkeypatch.setattr(doctor, "_problems", lambda *_: [])

    finished = aptool("doctor")

    assert (finished.code, finished.err) == (0, [])
    assert finished.out[-1] == "extras    unknown: aptool is not installed as a package"


def test_doctor_describes_every_extra_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert set(doctor.EXTRAS) == set(extras["optional-dependencies"])


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_and_presets(tmp_path):
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
    presets = completions(command, "train", "--preset", "ap-")
    assert set(presets) >= {name for name in preset_names() if name.startswith("ap-")}


def test_misspelt_preset_suggests_the_nearest(aptool, collection_folder):
    finished = aptool("train", collection_folder, "--preset", "ap-cn")

    assert (finished.code, len(finished.err)) == (2, 1)
    assert finished.err[0].endswith("did you mean 'ap-cnn'?")
