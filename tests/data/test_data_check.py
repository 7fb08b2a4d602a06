"""``aptool data check``: valid files pass, and the error of each kind of damage names the file."""

import hashlib
import json
import shutil

import pytest
from click.testing import CliRunner

from aptool.cli.data import data
from aptool.data.collection import Collection
from aptool.data.writing import LabelledPool, write_collection


@pytest.fixture
def collection(tmp_path):
    pools = [
        LabelledPool("q1", "who?", ["1", "2"], None, {"1": 1, "2": 0}),
        LabelledPool("q2", "why?", ["3"], ["so"], {"3": 0}),
    ]
    answers = [("1", "me"), ("2", "you")]
    write_collection(tmp_path / "small", {"dev": pools}, name="small", source="this file", answers=answers)
    (tmp_path / "small/dev.run").write_text("q1 Q0 1 1 0.5 mine\nq1 Q0 2 2 0.25 mine\n", encoding="utf-8")
    return Collection(tmp_path / "small")


def check(*paths):
    result = CliRunner().invoke(data, ["check", *map(str, paths)], catch_exceptions=False)
    return result.exit_code, result.stdout.splitlines()


def test_valid_files_are_described(collection):
    folder = collection.path
    shutil.copy(folder / "dev.run", folder / "without-suffix")
    shutil.copy(folder / "dev.qrels", folder / "judgements.txt")
    names = ["", "dev.pools.parquet", "answers.parquet", "dev.qrels", "dev.run"]
    code, lines = check(*(folder / name for name in [*names, "without-suffix", "judgements.txt"]))
    assert code == 0
    assert lines == [
        f"{folder}: collection small (dev), 2 questions, 3 candidates",
        f"{folder}/dev.pools.parquet: pools, 2 questions, 3 candidates in 1 row group",
        f"{folder}/answers.parquet: answers, 2",
        f"{folder}/dev.qrels: qrels, 2 questions, 3 judgements, 1 relevant",
        f"{folder}/dev.run: run 'mine', 1 question, 2 scored candidates",
        f"{folder}/without-suffix: run 'mine', 1 question, 2 scored candidates",
        f"{folder}/judgements.txt: qrels, 2 questions, 3 judgements, 1 relevant",
    ]


def test_every_path_is_reported(collection):
    path = collection.path
    (path / "bad.qrels").write_text("q1 0 1 yes\n", encoding="utf-8")
    only = "  dev is the only split: no leaks to look for"
    assert (check("--leaks", path)[0], check("--leaks", path)[1][-1]) == (0, only)
    code, lines = check(path / "bad.qrels", path / "none.run", path / "dev.qrels")
    assert code == 1
    assert lines[0].startswith(f"{path}/bad.qrels: line 1: column 'relevance': 'yes'")
    assert lines[1].startswith(f"{path}/none.run: file not found")
    assert lines[2].startswith(f"{path}/dev.qrels: qrels")


def change_manifest(collection, change):
    manifest = json.loads((collection.path / "collection.json").read_text(encoding="utf-8"))
    change(manifest)
    (collection.path / "collection.json").write_text(json.dumps(manifest), encoding="utf-8")


def damage_qrels(collection):
    with collection.qrels_file("dev").open("a", encoding="utf-8") as file:
        file.write("q9 0 1 1\n")


def judge_unknown_question(collection):
    damage_qrels(collection)
    digest = hashlib.sha256((collection.path / "dev.qrels").read_bytes()).hexdigest()
    change_manifest(collection, lambda m: m["files"].update({"dev.qrels": digest}))
    change_manifest(collection, lambda m: m["splits"]["dev"].update(positives=2))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c.pools_file("dev").unlink(), "dev.pools.parquet: file not found"),
        (damage_qrels, "dev.qrels: column 'sha256'"),
        (
            judge_unknown_question,
            "dev.qrels: column 'question_id': 'q9': expected a question of dev.pools.parquet",
        ),
        (
            lambda c: change_manifest(c, lambda m: m.pop("files")),
            "collection.json: top level: expected the entry",
        ),
        (lambda c: change_manifest(c, lambda m: m.update(format=2)), "collection.json: format: 2"),
        (
            lambda c: change_manifest(c, lambda m: m["splits"]["dev"].update(candidates=4)),
            "collection.json: splits/dev/candidates: 4: expected 3, as the files have",
        ),
        (lambda c: (c.path / "collection.json").write_text("{", encoding="utf-8"), "expected JSON"),
        (lambda c: (c.path / "collection.json").unlink(), "expected the folder of a collection"),
    ],
)
def test_damaged_collections_are_refused(collection, damage, message):
    damage(collection)
    code, (line,) = check(collection.path)
    assert code == 1
    assert message in line


def test_files_of_no_known_format_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("these are words\n", encoding="utf-8")
    (tmp_path / "empty").write_text("", encoding="utf-8")
    (tmp_path / "table.parquet").write_bytes(b"not parquet")
    code, lines = check(tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "table.parquet")
    assert code == 1
    assert "expected a pools, answers, qrels or run file" in lines[0]
    assert ": no line; " in lines[1]
    assert "expected a readable Parquet file" in lines[2]
