"""`aptool matrix` as `make reproduce` runs it: collections in, the paper's tables out."""

import json
from pathlib import Path

import pytest
from tiny import labelled_pools, options

from aptool.data import writing
from aptool.experiments.matrix import read_matrix
from jobs.paper_tables import TABLES, main, paper_names


def write_collection(folder, **questions):
    """Write a collection with this number of questions per split."""
    splits = {split: labelled_pools(split, number) for split, number in questions.items()}
    writing.write_collection(folder, splits, name="wikiqa", source="made for tests", overwrite=True)


@pytest.fixture
def table(aptool, tmp_path, monkeypatch):
    """Runs a table with two small systems on a collection below `data`."""
    monkeypatch.chdir(tmp_path)
    write_collection("data/w", train=40, dev=20)
    systems = "".join(
        f'[systems.{name}]\npreset = "{name}"\nset = {json.dumps(options(name, "vectors.source=${v}"))}\n'
        for name in ("qa-cnn", "ap-cnn")
    )
    (tmp_path / "table.toml").write_text(
        '[collections.w]\npath = "${d}/w"\nsplits = ["dev", "test"]\n'
        + systems
        + '[[rows]]\ncollection = "w"\nsystems = ["qa-cnn", "ap-cnn"]\nseeds = [0, 1]\n'
    )
    return lambda *more: aptool(
        "matrix", "table.toml", "--output", "out", "--let", "d=data", "--let", "v=random", *more
    )


def trained(finished):
    return [line for line in finished.err if line.startswith("training ")]


def test_one_training_serves_all_splits(table, tmp_path, capsys):
    first = table("--quick", "--only", "*/qa-cnn")

    assert first.code == 0
    assert "w: no split 'test', so w-test is left out" in first.err
    assert len(trained(first)) == 1
    shown = [line.split() for line in first.out]
    assert [line[:2] for line in shown if line and line[0].startswith("w-")] == [["w-dev", "qa-cnn"]]

    # With a test split, the fingerprint of the collection changes; one training serves both splits.
    write_collection("data/w", train=40, dev=20, test=20)
    assert table("--quick").code == 1
    both = table("--quick", "--overwrite")
    assert both.code == 0
    assert len(trained(both)) == 2
    document = json.loads((tmp_path / "out/table.json").read_text())
    assert [(line["collection"], line["system"]) for line in document["lines"]] == [
        (f"w-{split}", name) for split in ("dev", "test") for name in ("qa-cnn", "ap-cnn")
    ]
    main("out")
    page = (tmp_path / "out/paper.md").read_text()
    assert "| w-dev | ap-cnn | MAP | 0.6886 on test |" in page
    assert "| w-test | ap-cnn | MAP | 0.6886 |" in page
    assert "Table 5: WikiQA" in capsys.readouterr().out


def test_a_quick_run_has_the_first_seed_and_an_optional_collection_may_be_missing(table, tmp_path):
    text = (tmp_path / "table.toml").read_text()
    more = '[collections.x]\npath = "nowhere"\noptional = true\n'
    more += '[[rows]]\ncollection = "x"\nsystems = ["ap-cnn"]\n'
    (tmp_path / "table.toml").write_text(text.replace('["qa-cnn", "ap-cnn"]', '["ap-cnn"]') + more)

    quick = table("--quick")

    assert quick.code == 0, quick.err
    assert "nowhere: not found, so x is left out" in quick.err
    results = json.loads((tmp_path / "out/table.json").read_text())["results"]
    assert [(entry["collection"], entry["system"], entry["seed"]) for entry in results] == [
        ("w-dev", "ap-cnn", 0)
    ]


def test_reproduce_toml_has_every_system_of_the_papers_tables():
    job = Path(__file__).parents[2] / "jobs/reproduce.toml"

    matrix = read_matrix(job, {"data": "D", "vectors": "V.bin"})

    for table, collection in zip(TABLES, ("insuranceqa", "trecqa", "wikiqa"), strict=True):
        splits = ("dev", "test1", "test2") if collection == "insuranceqa" else ("dev", "test")
        folds = tuple(f"fold{number}" for number in range(1, 4 if collection == "insuranceqa" else 6))
        for split in (*folds, *splits):
            on_split = [
                entry for entry in matrix.experiments if entry.evaluated.name == f"{collection}-{split}"
            ]
            names = paper_names((entry.system.preset, entry.system.name) for entry in on_split)
            # The paper has Feng's and Tan's on InsuranceQA only.
            assert set(names.values()) == {*table.systems, "feng-2015", "tan-2015"}
            for entry in on_split:
                is_slow = collection == "insuranceqa"  # a seed takes half an hour, of the baselines longer
                is_baseline = entry.system.preset in ("feng-2015", "tan-2015")
                seeds = (1 if is_baseline else 3) if is_slow else 5
                assert entry.seeds == tuple(range(seeds))
    trained = [entry for entry in matrix.experiments if entry.system.recipe is not None]
    assert {entry.system.recipe.vectors.source for entry in trained} == {"V.bin"}
    # No epoch is chosen on the held-out fold.
    on_folds = [entry.system.recipe for entry in trained if entry.evaluated.fold is not None]
    assert {recipe.training.average_epochs for recipe in on_folds} == {1}
