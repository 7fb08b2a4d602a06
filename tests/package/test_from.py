"""docs/from.md: every command and every line of Python in it runs, on files in the published layouts."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
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

DOCUMENTS = {"d1": "aspirin reduces fever", "d2": "ibuprofen reduces pain", "d3": "fever is a symptom"}
QUERIES = {"q1": "does aspirin reduce fever", "q2": "what reduces pain"}
QRELS = [("q1", "d1", 2), ("q1", "d3", 1), ("q2", "d2", 2)]


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def tsv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the page names."""
    monkeypatch.chdir(tmp_path)
    entries = [{"_id": name, "title": "", "text": text} for name, text in DOCUMENTS.items()]
    queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    judged = [("query-id", "corpus-id", "score"), *QRELS]
    for root in ("scifact", "AskUbuntu"):
        lines(Path(root, "corpus.jsonl"), entries)
        lines(Path(root, "queries.jsonl"), queries)
        tsv(Path(root, "qrels", "test.tsv"), judged)
    ranked = [{"query-id": "q1", "corpus-ids": ["d3", "d1"]}, {"query-id": "q2", "corpus-ids": ["d1", "d2"]}]
    lines(Path("AskUbuntu/top_ranked.jsonl"), ranked)
    for name, scores in (("bm25.run", (3, 2, 1)), ("other.run", (1, 2, 3)), ("bm25-dev.run", (3, 2, 1))):
        rows = [(q, d, s) for q in QUERIES for d, s in zip(DOCUMENTS, scores, strict=True)]
        if name == "bm25-dev.run":
            rows = [(q.removeprefix("q"), d.removeprefix("d"), s) for q, d, s in rows]
        Path(name).write_text("".join(f"{q} Q0 {d} 1 {s} x\n" for q, d, s in rows))
    Path("test.qrels").write_text("".join(f"{q} 0 {d} {label}\n" for q, d, label in QRELS))
    lines(Path("corpus.jsonl"), [{"id": name, "contents": text} for name, text in DOCUMENTS.items()])
    tsv(Path("topics.tsv"), QUERIES.items())
    tsv(Path("collection.tsv"), [(number, text) for number, text in enumerate(DOCUMENTS.values(), 1)])
    tsv(Path("queries.dev.small.tsv"), [(1, QUERIES["q1"]), (2, QUERIES["q2"])])
    tsv(Path("qrels.dev.small.tsv"), [(1, 0, 1, 1), (2, 0, 2, 1)])
    tsv(Path("top1000.dev"), [(q, d, "x", "y") for q in (1, 2) for d in (1, 2, 3)])
    pairs = [
        {"query": "who?", "passage": "me", "label": 1.0},
        {"query": "who?", "passage": "you", "label": 0.0},
    ]
    lines(Path("pairs/train.jsonl"), pairs)
    lines(Path("samples/dev.jsonl"), [{"query": "who?", "positive": ["me"], "negative": ["you"]}])
    return tmp_path


def test_every_tool_has_a_command():
    titles = re.findall(r"^## From (.*)$", TEXT, re.M)

    assert {"BEIR", "MTEB", "MS MARCO", "PyTerrier", "sentence-transformers", "trec_eval"} <= set(titles)
    for section in TEXT.split("\n## ")[1:]:
        assert "```sh" in section or "```python" in section, section.splitlines()[0]


@pytest.mark.usefixtures("folder")
def test_the_commands_run(aptool):
    assert len(COMMANDS) >= 10
    for command in COMMANDS:
        finished = aptool(*shlex.split(command)[1:])
        assert finished.code == 0, (command, finished.err)


def test_the_python_runs(folder, model_folder, monkeypatch):
    shutil.copytree(model_folder, folder / "models" / "ap-cnn")
    if "pyterrier" not in sys.modules:  # its interface, as in tests/library/test_pyterrier.py
        stand_in = ModuleType("pyterrier")
        stand_in.Transformer = type("Transformer", (), {"__call__": lambda self, inp: self.transform(inp)})
        monkeypatch.setitem(sys.modules, "pyterrier", stand_in)
        monkeypatch.delitem(sys.modules, "aptool.pyterrier", raising=False)
    names = {}

    for number, block in enumerate(PYTHON):
        if "to_ir_measures" in block:
            pytest.importorskip("ir_measures")
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)

    assert list(names["found"]["docno"]) == ["d1"]
    assert list(names["ranked"]["docno"]) == ["d1", "d2", "d3"]
    assert json.loads(Path("bm25.json").read_text())["q1"] == {"d1": 3.0, "d2": 2.0, "d3": 1.0}
    sys.modules.pop("aptool.pyterrier", None)
