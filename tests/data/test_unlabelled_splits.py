"""A split without labels has pools and no qrels; commands that need qrels fail with a one-line error."""

import pytest

import aptool as library
from aptool.data.collection import Collection


@pytest.fixture
def folder(aptool, tmp_path):
    (tmp_path / "train.csv").write_text("question,answer,label\nwho are you?,me,1\nwho are you?,they,0\n")
    (tmp_path / "test.csv").write_text("question,answer\nwho is it?,you\nwho is it?,we\nwhy?,so\n")
    splits = [f"{split}={tmp_path / split}.csv" for split in ("train", "test")]
    finished = aptool(
        "data", "import", "table", *splits, "--output", tmp_path / "out", "--unlabelled", "test"
    )
    assert finished.code == 0, finished.err
    assert finished.out[2].split() == ["test", "2", "3", "no", "labels", "2", "3"]
    return tmp_path / "out"


def test_an_unlabelled_split_has_pools_and_no_qrels(folder):
    assert not (folder / "test.qrels").exists()
    collection = Collection(folder)
    assert not collection.is_labelled("test")
    assert collection.manifest["splits"]["test"] == {"questions": 2, "candidates": 3}
    assert library.Collection(folder).pools("test").to_dict()["test-Q1"] == ("why?", {"test-Q1-0": "so"})


def test_reading_its_qrels_is_an_error(folder):
    with pytest.raises(
        library.AptoolError, match=r"split 'test' has no labels; expected a split with labels"
    ):
        library.Collection(folder).qrels("test")


def test_check_and_statistics_accept_it(aptool, folder):
    checked = aptool("data", "check", folder, "--leaks")
    assert checked.code == 0
    assert "test: no labels: pools without qrels" in checked.err
    assert "2 questions of test" in "\n".join(checked.out)
    described = aptool("data", "stats", folder)
    relevant = next(line for line in described.out if line.startswith("relevant answers "))
    assert relevant.split()[-2:] == ["1", "-"]


@pytest.mark.parametrize("command", [("train",), ("data", "folds")])
def test_training_on_it_is_an_error(aptool, folder, tmp_path, command):
    # A dev split without labels.
    source = tmp_path / "test.csv"
    splits = (f"train={tmp_path / 'train.csv'}", f"dev={source}")
    aptool("data", "import", "table", *splits, "--output", folder, "--unlabelled", "dev", "--overwrite")
    finished = aptool(*command, folder, "--output", tmp_path / "new")
    assert finished.code == 1
    assert finished.err[-1].startswith(f"aptool: {folder}: split 'dev' has no labels")


def test_eval_names_the_split_without_labels(aptool, folder):
    run = folder / "test.run"
    run.write_text("test-Q0 Q0 test-Q0-0 1 1 x\n")
    finished = aptool("eval", run)
    assert finished.code == 2
    assert "the split 'test' has no labels; pass --qrels FILE" in finished.err[-1]


def test_check_finds_a_wrong_count_of_an_unlabelled_split(aptool, folder):
    manifest = folder / "collection.json"
    manifest.write_text(manifest.read_text().replace('"candidates": 3\n', '"candidates": 4\n', 1))
    checked = aptool("data", "check", folder)
    assert checked.code == 1
    assert "splits/test/candidates: 4: expected 3, as the files have" in checked.out[0]


def test_an_unknown_split_is_refused(aptool, folder, tmp_path):
    source = f"train={tmp_path / 'train.csv'}"
    finished = aptool("data", "import", "table", source, "--output", tmp_path / "x", "--unlabelled", "tset")
    assert finished.code == 2
    assert finished.err == ["aptool: --unlabelled 'tset': expected one of the imported splits: train"]
