"""A workspace with small data under the file names of the docs."""

import os
import shutil
from pathlib import Path

import pytest
from pages import ROOT, run_script
from workspace import build


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    build(folder)
    before = (ROOT / "tests" / "docs" / "before.sh").read_text(encoding="utf-8")
    finished = run_script(before, folder, environment(folder), timeout=1200)
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.fixture
def workspace(data, tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "workspace"
    shutil.copytree(data, folder)
    monkeypatch.chdir(folder)
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Variables for commands in ``folder``."""
    return {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "RAY_ADDRESS": "local",  # --cluster starts a local cluster
    }
