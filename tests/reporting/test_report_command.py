"""``aptool report``: collections, folders of runs, and errors."""

import json
import shutil

import pytest
from report_page import Page

from aptool.version import install_command


@pytest.mark.parametrize(
    ("more", "code", "expected"),
    [
        (["--collection", "../collection", "--baseline", "bm52"], 2, "--baseline 'bm52': expected one of"),
        (["--collection", "trecqa=nowhere"], 2, "--collection trecqa=nowhere: expected one of wikiqa"),
        (
            ["--collection", "nowhere"],
            1,
            "nowhere: folder not found; expected the folder of a collection",
        ),
        (["--questions", "0"], 2, "0 is not in the range"),
        (["--output", "."], 1, "a folder; expected a file"),
    ],
)
def test_mistakes_are_one_line(aptool, made, monkeypatch, tmp_path, more, code, expected):
    monkeypatch.chdir(made.runs)
    done = aptool("report", ".", "--output", tmp_path / "report.html", *more)

    assert done.code == code
    assert len(done.err) == 1
    assert expected in done.err[0]
    assert not (tmp_path / "report.html").exists()


def test_recorded_collections_need_no_option(aptool, made, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(made.runs, folder)
    document = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    document["collections"] = {"wikiqa": {"path": str(made.collection)}}
    document["command"] = "aptool matrix table.toml --output runs"
    (folder / "table.json").write_text(json.dumps(document), encoding="utf-8")
    done = aptool("report", folder)

    assert done.code == 0, done.err
    assert done.out[0].startswith(f"{folder / 'report.html'}: ")
    assert "aptool matrix table.toml --output runs" in (folder / "report.html").read_text(encoding="utf-8")


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
    document.pop("collections", None)
    (folder / "table.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def test_each_collection_has_a_section(aptool, made, two):
    folders = ["--collection", f"wikiqa={made.collection}", "--collection", f"other={made.collection}"]
    done = aptool("report", two, *folders, "--baseline", "ap-cnn")
    page = Page((two / "report.html").read_text(encoding="utf-8"))
    tables = [table for table in page.tables if "p" in [cell.strip() for cell in table[0]]]
    systems = [[row[0].split() for row in table[1:]] for table in tables if len(table[0]) == 7]

    assert done.code == 0, done.err
    # A baseline without a run on a collection falls back to the default there.
    baselines = [[name for name, *role in part if role == ["baseline"]] for part in systems]
    assert baselines == [["ap-cnn"], ["bm25"]]
    assert [name for name, *_ in systems[1]] == ["random", "bm25"]


def test_unknown_collection_folder_is_refused(aptool, made, two):
    done = aptool("report", two, "--collection", f"wikiqa={made.collection}")

    assert done.code == 2
    assert done.err == ["aptool: folder of collection 'other' unknown; pass --collection other=FOLDER"]


def test_collection_without_runs_is_refused(aptool, two, collection_folder):
    done = aptool("report", two, "--collection", collection_folder)

    assert done.code == 2
    assert done.err == [
        f"aptool: --collection {collection_folder} is 'tiny': expected NAME={collection_folder} with a name "
        "among wikiqa, other"
    ]


def test_missing_run_file_is_named(aptool, made, two):
    (two / "wikiqa" / "bm25" / "seed1" / "test.run").unlink()
    done = aptool("report", two, "--collection", made.collection)

    assert done.code == 1
    assert "bm25/seed1/test.run: file not found" in done.err[0]


def test_run_that_changed_after_its_evaluation_is_named(aptool, made, tmp_path):
    shutil.copytree(made.runs, tmp_path / "runs")
    run = tmp_path / "runs" / "wikiqa" / "bm25" / "seed1" / "test.run"
    lines = run.read_text().splitlines(keepends=True)
    run.write_text("".join(lines[: len(lines) // 2]))

    done = aptool("report", tmp_path / "runs", "--collection", made.collection)

    assert (done.code, len(done.err)) == (1, 1)
    assert "bm25/seed1/test.run" in done.err[0]
    assert not (tmp_path / "runs" / "report.html").exists()


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
        "--output FOLDER` writes"
    ]

    (tmp_path / "table.json").write_text("{}", encoding="utf-8")
    assert (
        f"{tmp_path / 'table.json'}: a file; expected the folder"
        in aptool("report", tmp_path / "table.json").err[0]
    )


def test_missing_jinja2_is_named(aptool, made, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    done = aptool("report", made.runs, "--collection", made.collection, "--output", tmp_path / "page.html")

    assert (done.code, done.err) == (1, [f"aptool: a page needs jinja2: {install_command('report')}"])


def test_missing_device_is_one_error_line(aptool, made, tmp_path):
    done = aptool(
        *("report", made.runs, "--collection", made.collection),
        *("--output", tmp_path / "page.html", "--device", "cuda:99"),
    )

    assert (done.code, len(done.err)) == (2, 1)
    assert "cuda:99" in done.err[0]
    assert not (tmp_path / "page.html").exists()
