"""The scripts and notebooks of ``examples`` run on small data: ``make test-docs``."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

pytestmark = pytest.mark.docs
EXAMPLES = ROOT / "examples"


@pytest.fixture
def workspace(workspace):
    """The workspace without the collections that examples import."""
    for name in ("faq", "functions"):
        shutil.rmtree(workspace / "data" / name)
    return workspace


def output_of(*command: str) -> str:
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.usefixtures("workspace")
def test_a_table_is_imported_and_ranked():
    shown = output_of(
        sys.executable, str(EXAMPLES / "own_table.py"), "faq.csv", "faq.csv", "where is the bridge ?"
    )

    assert len(shown.splitlines()) == 5
    scores = [float(line.split()[0]) for line in shown.splitlines()]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.usefixtures("workspace")
def test_systems_are_compared():
    shown = output_of(sys.executable, str(EXAMPLES / "compare_systems.py"), "data/wikiqa")

    assert [line.split()[0] for line in shown.splitlines()] == [
        *("bm25", "qa-cnn", "ap-cnn", "fused"),
        *("qa-cnn", "ap-cnn", "fused"),
    ]


@pytest.mark.usefixtures("workspace")
def test_a_first_stage_is_reranked():
    imported = ("retrieval", "scifact", "--run", "test=scifact.run", "--output", "data/scifact")
    output_of("aptool", "data", "import", *imported)

    shown = output_of(
        *(sys.executable, str(EXAMPLES / "rerank_a_run.py")), *("data/scifact", "test", "models/qa-cnn")
    )

    metrics = {line[:10].strip(): float(line.split()[-1]) for line in shown.splitlines()}
    assert set(metrics) == {"bm25", "model", "best order"}
    assert metrics["best order"] >= max(metrics.values())
    assert Path("reranked.run").is_file()


@pytest.mark.parametrize("path", sorted((EXAMPLES / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path, workspace, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="the group docs is not installed")
    nbclient = pytest.importorskip("nbclient", reason="the group docs is not installed")
    # A tiny network in the workspace.
    monkeypatch.setenv("NETWORK", "sentence-transformers/all-MiniLM-L6-v2")

    notebook = nbformat.read(path, as_version=4)

    assert not [
        cell for cell in notebook.cells if cell.get("outputs")
    ]  # notebooks are committed without output
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": workspace}}).execute()
