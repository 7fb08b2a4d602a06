"""``aptool report``: collections, folders of runs, and errors."""

import hashlib
import json
import shutil

import pytest
from report_page import Page
from tiny import row, write_pools

from aptool.environment import install_command


@pytest.mark.parametrize(
    ("more", "code", "expected"),
    [
        (["--baseline", "bm52"], 2, "--baseline 'bm52': expected one of"),
        (["--measures", "MAP"], 2, "--pools and --measures: require --qrels"),
        (["--questions", "0"], 2, "0 is not in the range"),
        (["--output", "."], 1, "a folder; expected a file"),
        (["--output", "wikiqa/bm25/seed0/test.run"], 1, "also an input of this command"),
        (["--device", "cuda:99"], 2, "cuda:99"),
    ],
)
def test_mistakes_are_one_line(aptool, made, monkeypatch, tmp_path, more, code, expected):
    monkeypatch.chdir(made.runs)
    done = aptool("report", ".", "--output", tmp_path / "report.html", *more)

    assert done.code == code
    assert len(done.err) == 1
    assert expected in done.err[0]
    assert not (tmp_path / "report.html").exists()


@pytest.fixture
def two(made, tmp_path):
    """Runs on two collections; the second has fewer systems, no model and one seed."""
    folder = tmp_path / "runs"
    shutil.copytree(made.runs, folder)
    document = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    for name in ("random", "bm25"):
        result = next(entry for entry in document["results"] if entry["system"] == name)
        shutil.copytree(folder / "wikiqa" / name / "seed0", folder / "other" / name / "seed0")
        run = f"other/{name}/seed0/test.run"
        document["results"].append({**result, "collection": "other", "run": run})
    document["collections"]["other"] = document["collections"]["wikiqa"]
    (folder / "table.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def test_each_collection_has_a_section(aptool, made, two):
    done = aptool("report", two, "--baseline", "ap-cnn")
    text = (two / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    tables = [table for table in page.tables if "p" in [cell.strip() for cell in table[0]]]
    systems = [[row[0].split() for row in table[1:]] for table in tables if len(table[0]) == 7]

    assert done.code == 0, done.err
    # A baseline without a run on a collection falls back to the default there.
    baselines = [[name for name, *role in part if role == ["baseline"]] for part in systems]
    assert baselines == [["ap-cnn"], ["bm25"]]
    assert [name for name, *_ in systems[1]] == ["random", "bm25"]
    assert done.out[0].startswith(f"{two / 'report.html'}: ")
    assert json.loads((two / "table.json").read_text(encoding="utf-8"))["command"] in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"other": None}, "'other': expected the folder of each collection"),
        ({"other": {"fingerprint": "0" * 16}}, "which was scored; run `aptool matrix` again"),
    ],
)
def test_a_changed_or_unknown_collection_is_refused(aptool, two, change, message):
    document = json.loads((two / "table.json").read_text(encoding="utf-8"))
    for name, entry in change.items():
        recorded = document["collections"].pop(name)
        document["collections"] |= {name: recorded | entry} if entry else {}
    (two / "table.json").write_text(json.dumps(document), encoding="utf-8")

    done = aptool("report", two)

    assert (done.code, len(done.err)) == (1, 1)
    assert message in done.err[0]


# Ranks of the relevant answers of two questions: 1 and 2, 2 and 2, 1 and 1.
RANKS = {"glass.run": (1, 2), "first.run": (2, 2), "second.run": (1, 1)}


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """Runs of other tools, their qrels, and pools with the texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "any.qrels").write_text("q0 0 a 1\nq0 0 b 0\nq1 0 a 1\nq1 0 b 0\n")
    for name, ranks in RANKS.items():
        lines = [
            f"q{number} Q0 {answer} {place} {3 - place} tool"
            for number, rank in enumerate(ranks)
            for answer, place in (("a", rank), ("b", 3 - rank))
        ]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    texts = (("a", "the right one"), ("b", "the wrong one"))
    write_pools(
        tmp_path / "texts.pools.parquet",
        [row(f"q{number}", f"question {number}", texts) for number in (0, 1)],
    )
    return tmp_path


def test_runs_of_any_tool(aptool, foreign):
    # MRR: glass (1 + 1/2) / 2; own is the mean of its two seeds, 1/2 and 1.
    runs = ["glass=glass.run", "own=first.run", "own=second.run"]
    options = ["--qrels", "any.qrels", "--measures", "MRR,P@1"]
    done = aptool("report", *runs, *options, "--pools", "texts.pools.parquet", "--baseline", "own")

    assert done.code == 0, done.err
    text = (foreign / "report.html").read_text(encoding="utf-8")
    rows = {row[0].split()[0]: row for row in Page(text).table("System", "MRR", "P@1")[1:]}
    assert {name: [cells[1].split()[0], cells[3].split()[0]] for name, cells in rows.items()} == {
        "glass": ["0.7500", "0.5000"],
        "own": ["0.7500", "0.5000"],
    }
    assert {question["id"]: question["text"] for question in Page(text).questions} == {
        "q0": "question 0",
        "q1": "question 1",
    }
    assert "the right one" in text
    assert hashlib.sha256((foreign / "any.qrels").read_bytes()).hexdigest() in text

    done = aptool("report", "glass.run", "first.run", *options, "--output", "page.html")  # without texts

    assert done.code == 0, done.err
    page = Page((foreign / "page.html").read_text(encoding="utf-8"))
    assert {row[0].split()[0] for row in page.table("System", "MRR", "p")[1:]} == {"glass", "first"}
    assert [question["id"] for question in page.questions] == ["q0"]


def test_a_missing_or_changed_run_is_named(aptool, two):
    run = two / "wikiqa" / "bm25" / "seed1" / "test.run"
    lines = run.read_text().splitlines(keepends=True)
    run.write_text("".join(lines[: len(lines) // 2]))
    changed = aptool("report", two)
    run.unlink()
    missing = aptool("report", two)

    for done, problem in ((changed, "changed since"), (missing, "file not found")):
        assert (done.code, len(done.err)) == (1, 1)
        assert f"bm25/seed1/test.run: {problem}" in done.err[0]
    assert not (two / "report.html").exists()


@pytest.mark.parametrize(
    "document", ["{}", '{"results": []}', '{"results": [{"run": 1}]}', "[", '{"results": 3}']
)
def test_invalid_table_json_is_one_error_line(aptool, tmp_path, document):
    (tmp_path / "table.json").write_text(document, encoding="utf-8")
    done = aptool("report", tmp_path)

    assert done.code == 1
    assert len(done.err) == 1
    assert str(tmp_path / "table.json") in done.err[0]


def test_folder_without_runs_is_refused(aptool, tmp_path):
    done = aptool("report", tmp_path)

    assert done.code == 1
    assert done.err == [
        f"aptool: {tmp_path}: no table.json in it; expected the folder that `aptool matrix TABLE "
        "--output FOLDER` writes, or runs and --qrels"
    ]

    (tmp_path / "table.json").write_text("{}", encoding="utf-8")
    assert (
        f"{tmp_path / 'table.json'}: a file; expected the folder"
        in aptool("report", tmp_path / "table.json").err[0]
    )


def test_missing_jinja2_is_named(aptool, made, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    done = aptool("report", made.runs, "--output", tmp_path / "page.html")

    assert (done.code, done.err) == (1, [f"aptool: a page needs jinja2: {install_command('report')}"])
