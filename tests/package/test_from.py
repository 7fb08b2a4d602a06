"""docs/from.md: its commands and its Python run on files in published layouts."""

import importlib.util
import re
import shlex
import shutil
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
from other_tools import write_files
from readme import README

PAGE = README.parent / "docs" / "from.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.M | re.S)
    for line in block.splitlines()
    if line.startswith("aptool ")
]
PYTHON = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the page names."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def test_every_tool_has_a_command():
    titles = re.findall(r"^## From (.*)$", TEXT, re.M)

    assert {"BEIR", "PyTerrier", "sentence-transformers", "trec_eval"} <= set(titles)
    for section in TEXT.split("\n## ")[1:]:
        assert "```sh" in section or "```python" in section, section.splitlines()[0]


@pytest.mark.usefixtures("folder")
def test_commands_run(aptool):
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        finished = aptool(*shlex.split(command)[1:])
        assert finished.code == 0, (command, finished.err)


def pyterrier_interface():
    """The functions of PyTerrier 1.1.2 that the page calls."""

    def read_results(path):
        names = ["qid", "Q0", "docno", "rank", "score", "name"]
        return pd.read_csv(path, sep=r"\s+", names=names, dtype={"qid": str, "docno": str}).drop(columns="Q0")

    return SimpleNamespace(
        apply=SimpleNamespace(doc_score=lambda fn, batch_size: lambda rows: rows.assign(score=fn(rows))),
        io=SimpleNamespace(read_results=read_results),
        Transformer=SimpleNamespace(from_df=lambda frame: lambda queries: queries.merge(frame, on="qid")),
    )


def test_python_runs(folder, model_folder, monkeypatch):
    shutil.copytree(model_folder, folder / "models" / "ap-cnn")
    if importlib.util.find_spec("pyterrier") is None:
        monkeypatch.setitem(sys.modules, "pyterrier", pyterrier_interface())
    names = {}

    for number, block in enumerate(PYTHON):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)

    assert list(names["reranked"]["docno"]) == ["d1"]
    assert list(names["ranked"]["docno"]) == ["d1", "d2", "d3"]
    assert names["run"].to_dict()["q1"] == {"d1": 3.0, "d2": 2.0, "d3": 1.0}
