"""What runs are not mixed up with: another collection, another limit, a measure that is no mean."""

import json
import shutil

import pytest

from aptool.data.writing import LabelledPool, write_collection

TABLE = """
{more}
[collections.tiny]
path = "c"
folds = 2
splits = ["dev"]
[systems.random]
baseline = "random"
[systems.bm25]
baseline = "bm25"
[[rows]]
collection = "tiny"
systems = ["random", "bm25"]
"""


@pytest.fixture
def copied(run_matrix, collection_folder, tmp_path):
    """`c`, a copy of the collection, and the command `aptool matrix` on a table of it."""
    shutil.copytree(collection_folder, tmp_path / "c")
    return run_matrix


def test_paired_tests_use_the_first_mean_measure(copied, tmp_path):
    finished = copied(TABLE.format(more='measures = ["NumRel", "P@1"]'))

    assert finished.code == 0, finished.err
    (test,) = json.loads((tmp_path / "out/table.json").read_text())["paired"]
    lines = {
        line["system"]: line for line in json.loads((tmp_path / "out/table.json").read_text())["lines"][:2]
    }
    difference = lines[test["system"]]["means"]["P@1"] - lines[test["other"]]["means"]["P@1"]
    assert (test["measure"], test["paired"]["difference"]) == ("P@1", pytest.approx(difference))

    assert copied(TABLE.format(more='measures = ["NumRel"]')).code == 0
    assert json.loads((tmp_path / "out/table.json").read_text())["paired"] == []


def test_combination_that_cannot_be_fitted_is_named(copied, tmp_path):
    pools = [LabelledPool(f"q{n}", "who?", ["a", "b"], ["me", "you"], {"a": 1}) for n in range(4)]
    splits = dict.fromkeys(("train", "dev", "test"), pools)
    write_collection(tmp_path / "c", splits, name="tiny", source="too small", overwrite=True)
    text = TABLE.format(more="").replace("folds = 2\n", "").replace('"bm25"]', '"bm25", "both"]')

    refused = copied(text.replace("[[rows]]", '[systems.both]\ncombine = ["random", "bm25"]\n[[rows]]'))

    assert refused.code == 1
    assert refused.err[-1] == "aptool: both on tiny-dev: 4 judged questions are too few for 5 folds"


def test_changed_limit_of_a_built_collection_is_refused(aptool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = TABLE.replace("folds = 2\n", "").format(more="")
    for limit in (100, 200):
        (tmp_path / "eval.toml").write_text(
            text.replace('path = "c"', f'path = "c"\nbuild = "functions"\nlimit = {limit}')
        )
        finished = aptool("matrix", "eval.toml", "--output", "out")
        assert finished.code == (0 if limit == 100 else 1), finished.err
    assert finished.err == [
        "aptool: c: limit: 200: expected 100, by which it was built, or the path of another folder"
    ]
