"""`aptool matrix` as `make reproduce` runs it: published files in, the paper's tables out."""

import json
import os
from pathlib import Path

import pytest
from tiny import options

from aptool.data.collection import Collection
from aptool.experiments.matrix import read_matrix
from jobs.paper_tables import TABLES, main, paper_names

DATA = os.environ.get("APTOOL_DATA")


def tsv(pools):
    """Pools in the layout of WikiQA."""
    lines = ["QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"]
    for pool in pools:
        for answer, text in zip(pool.answer_ids, pool.texts, strict=True):
            label = pool.relevance.get(answer, 0)
            lines.append(f"{pool.question_id}\t{pool.question}\tD\tT\t{answer}\t{text}\t{label}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def table(aptool, tmp_path, monkeypatch):
    """Runs a table with two small systems on published files below `data`."""
    from tiny import labelled_pools

    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/wikiqa").mkdir(parents=True)
    for split, questions in (("train", 40), ("dev", 20)):
        text = tsv(labelled_pools(split, questions))
        (tmp_path / f"data/wikiqa/WikiQA-{split}.tsv").write_text(text)
    systems = "".join(
        f'[systems.{name}]\npreset = "{name}"\nset = {json.dumps(options(name, "vectors.source=${v}"))}\n'
        for name in ("qa-cnn", "ap-cnn")
    )
    (tmp_path / "table.toml").write_text(
        '[collections.w]\npath = "${d}/wikiqa"\nbuild = "wikiqa"\nsplits = ["dev", "test"]\n'
        + systems
        + '[[rows]]\ncollection = "w"\nsystems = ["qa-cnn", "ap-cnn"]\nseeds = [0, 1]\n'
    )
    return lambda *more: aptool(
        "matrix", "table.toml", "--output", "out", "--let", "d=data", "--let", "v=random", *more
    )


def trained(finished):
    return [line for line in finished.err if line.startswith("training ")]


def test_published_files_are_imported_and_one_training_serves_all_splits(table, tmp_path, capsys):
    from tiny import labelled_pools

    first = table()

    assert first.code == 0
    assert "w: no split 'test', so w-test is left out" in first.err
    assert len(trained(first)) == 4
    shown = [line.split() for line in first.out]
    assert [line[:2] for line in shown if line and line[0].startswith("w-")] == [
        ["w-dev", "qa-cnn"],
        ["w-dev", "ap-cnn"],
    ]
    # Again: nothing is run, and the same is shown.
    again = table()
    assert (trained(again), again.out) == ([], first.out)

    # With the test file, the fingerprint of the collection changes; one training serves both splits.
    (tmp_path / "data/wikiqa/WikiQA-test.tsv").write_text(tsv(labelled_pools("test", 20)))
    assert table().code == 1
    both = table("--overwrite")
    assert both.code == 0
    assert len(trained(both)) == 4
    document = json.loads((tmp_path / "out/table.json").read_text())
    assert [(line["collection"], line["system"]) for line in document["lines"]] == [
        (f"w-{split}", name) for split in ("dev", "test") for name in ("qa-cnn", "ap-cnn")
    ]
    main("out")
    page = (tmp_path / "out/paper.md").read_text()
    assert "| w-dev | ap-cnn | MAP | 0.6886 on test |" in page
    assert "| w-test | ap-cnn | MAP | 0.6886 |" in page
    assert "Table 5: WikiQA" in capsys.readouterr().out


def test_a_quick_run_has_the_first_seed_and_an_optional_collection_may_be_missing(table, tmp_path, aptool):
    text = (tmp_path / "table.toml").read_text()
    more = '[collections.x]\npath = "nowhere"\nbuild = "insuranceqa"\noptional = true\n'
    more += '[[rows]]\ncollection = "x"\nsystems = ["ap-cnn"]\n'
    (tmp_path / "table.toml").write_text(text.replace('["qa-cnn", "ap-cnn"]', '["ap-cnn"]') + more)

    quick = aptool(
        "matrix", "table.toml", "--output", "out", "--let", "d=data", "--let", "v=random", "--quick"
    )

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


@pytest.mark.skipif(not DATA, reason="APTOOL_DATA is not set")
def test_the_published_subsets_are_imported(tmp_path):
    from aptool.experiments.runner import PUBLISHED

    made = {kind: PUBLISHED[kind](tmp_path / kind, Path(DATA) / kind) for kind in ("wikiqa", "trecqa")}
    # The folder V1 lacks the file of answers; the folder beside it has a third of them.
    partial = PUBLISHED["insuranceqa"](tmp_path / "insuranceqa", Path(DATA) / "insuranceqa")
    assert partial.manifest["splits"]["train"]["questions"] == 3437

    # Questions that the paper's table 1 counts: 873 and 126; 1,162 and 65.
    counts = {
        kind: [Collection(imported.path).manifest["splits"][split]["questions"] for split in ("train", "dev")]
        for kind, imported in made.items()
    }
    assert counts == {"wikiqa": [873, 126], "trecqa": [1162, 65]}
    assert made["trecqa"].name == "trecqa-clean"
