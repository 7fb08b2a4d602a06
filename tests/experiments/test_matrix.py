"""`aptool matrix`: only new and changed trials are run."""

import hashlib
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from tiny import options

from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.errors import UsageError
from aptool.evaluation.fusion import learn_fusion, reciprocal_rank_fusion
from aptool.evaluation.measures import evaluate_frames
from aptool.experiments.matrix import only, read_matrix
from aptool.experiments.table import summarize, table_cells
from aptool.experiments.trial import Result
from aptool.models.build import check_recipe

NAMES = ["random", "bm25", "qa-cnn", "ap-cnn", "qa-cnn+bm25", "ap-cnn+bm25"]


JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.toml"))


def table(collection, *, qa_cnn=(), seeds="[1, 2]", systems=NAMES, more=""):
    return f"""
{more}
[collections.tiny]
path = "{collection}"

[systems.random]
baseline = "random"
[systems.bm25]
baseline = "bm25"
[systems.qa-cnn]
preset = "qa-cnn"
set = {json.dumps([*options("qa-cnn"), *qa_cnn])}
[systems.ap-cnn]
preset = "ap-cnn"
set = {json.dumps(options("ap-cnn"))}
[systems."qa-cnn+bm25"]
fuse = ["qa-cnn", "bm25"]
[systems."ap-cnn+bm25"]
fuse = ["bm25", "ap-cnn"]
[systems."random+bm25"]
fuse = ["random", "bm25"]
[systems.combined]
combine = ["bm25", "qa-cnn"]

[[rows]]
collection = "tiny"
systems = {json.dumps(systems)}
seeds = {seeds}
"""


def made(finished):
    """The systems that were run, from the messages on stderr."""
    return [line.split(": ")[1] for line in finished.err if line.startswith("tiny: ") and "MAP" not in line]


def states(folder, pattern):
    return {path: path.stat().st_mtime_ns for path in folder.rglob(pattern) if path.is_file()}


def test_only_new_and_changed_trials_are_run(run_matrix, tmp_path, collection_folder):
    first = run_matrix(table(collection_folder, seeds="[1]"))

    assert first.code == 0
    assert made(first) == [f"{name}, seed 1" for name in NAMES]
    rows = [line.split(": ") for line in first.err if line.startswith("tiny: ") and "MAP" in line]
    assert [system for _, system, _ in rows] == made(first)  # with its measures, as soon as it finishes
    lines = [line.split() for line in first.out]
    assert first.out[0].split()[:7] == ["collection", "system", "MAP", "MRR", "P@1", "questions", "seeds"]
    assert [line[1] for line in lines[1:7]] == NAMES
    assert first.out[-1] == "out/table.md, out/table.json; run files in the same folder"

    # A second run runs nothing, changes no file and prints the same table.
    before = states(tmp_path / "out", "*.run") | states(tmp_path / "out", "model/*")
    assert len(before) == 6 + 2 * 3
    again = run_matrix(table(collection_folder, seeds="[1]"))
    assert (again.code, made(again), again.out) == (0, [], first.out)
    assert states(tmp_path / "out", "*.run") | states(tmp_path / "out", "model/*") == before

    # After a change of a recipe, only the system and its fusions are run again.
    text = table(collection_folder, qa_cnn=["training.epochs=2"], seeds="[1]")
    assert run_matrix(text).code == 1
    changed = run_matrix(text, "--overwrite")
    assert made(changed) == [f"{name}, seed 1" for name in ("qa-cnn", "qa-cnn+bm25")]
    after = states(tmp_path / "out", "*.run") | states(tmp_path / "out", "model/*")
    touched = {path.relative_to(tmp_path / "out").parts[1] for path in before if after[path] != before[path]}
    assert {"qa-cnn"} <= touched <= {"qa-cnn", "qa-cnn+bm25"}  # a fusion may have the same lines

    # A new seed and a lost run file are run.
    (tmp_path / "out/tiny/bm25/seed1/test.run").unlink()
    more = run_matrix(table(collection_folder, qa_cnn=["training.epochs=2"], seeds="[1, 2]"))
    assert made(more) == ["random, seed 2", "bm25, seed 1"] + [f"{name}, seed 2" for name in NAMES[1:]]

    # After a change of the collection, everything is run again.
    shutil.copytree(collection_folder, "other")
    manifest = json.loads((tmp_path / "other/collection.json").read_text())
    with (tmp_path / "other/test.qrels").open("a") as qrels:
        qrels.write("# the same judgements\n")
    content = (tmp_path / "other/test.qrels").read_bytes()
    manifest["files"]["test.qrels"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "other/collection.json").write_text(json.dumps(manifest))
    text = table("other", systems=["random", "bm25"], seeds="[1]")
    assert made(run_matrix(text, "--overwrite")) == ["random, seed 1", "bm25, seed 1"]


def test_a_model_is_scored_as_it_is_and_again_only_after_a_change(run_matrix, tmp_path, collection_folder):
    run_matrix(table(collection_folder, systems=["qa-cnn"], seeds="[1]"))
    shutil.copytree(tmp_path / "out/tiny/qa-cnn/seed1/model", tmp_path / "given")
    text = table(collection_folder, systems=["given"], seeds="[1]", more='systems.given.model = "given"')

    first, again = run_matrix(text), run_matrix(text)
    (tmp_path / "given/notes.txt").write_text("another file")
    changed = run_matrix(text, "--overwrite")

    assert [made(finished) for finished in (first, again, changed)] == [
        ["given, seed 1"],
        [],
        ["given, seed 1"],
    ]
    trained, given = (
        read_run(tmp_path / f"out/tiny/{name}/seed1/test.run").frame for name in ("qa-cnn", "given")
    )
    assert given.equals(trained)


def test_measures_are_those_of_the_run_files(run_matrix, tmp_path, collection_folder):
    systems = ["random", "bm25", "random+bm25"]
    finished = run_matrix(table(collection_folder, systems=systems, more='measures = ["MRR", "P@1"]'))

    assert finished.code == 0
    document = json.loads((tmp_path / "out/table.json").read_text())
    qrels = read_qrels(collection_folder / "test.qrels")
    runs = {
        (result["system"], result["seed"]): tmp_path / "out" / result["run"] for result in document["results"]
    }
    assert set(runs) == {(name, seed) for name in systems for seed in (1, 2)}
    for result in document["results"]:
        means = evaluate_frames(qrels, read_run(tmp_path / "out" / result["run"]).frame, ["MRR", "P@1"]).means
        assert result["measures"] == dict(means)
        assert result["questions"] == 20
    for line in document["lines"]:
        both = [r["measures"]["P@1"] for r in document["results"] if r["system"] == line["system"]]
        # Mean and deviation (of the sample) of two numbers.
        assert line["means"]["P@1"] == pytest.approx(sum(both) / 2)
        assert line["deviations"]["P@1"] == pytest.approx(abs(both[0] - both[1]) / 2**0.5)
    # Fusion goes by the ranks of the two runs with the same seed.
    frames = [read_run(runs[name, 2]).frame for name in ("random", "bm25")]
    fused = read_run(runs["random+bm25", 2])
    assert fused.frame.rows() == reciprocal_rank_fusion(frames).rows()
    assert fused.tag == "random+bm25"
    # The same table in Markdown as on the screen.
    markdown = (tmp_path / "out/table.md").read_text().splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")][1] for line in markdown[2:-2]] == systems
    assert markdown[-1] == "± is the standard deviation over seeds."


def result(system, seed, value, costs=None, train=3.0, score=2.0):
    seconds = {"train": train, "score": score}
    return Result(
        "c", system, seed, None, {"MAP": value}, 10, seconds, "c", None, "test", None, (), costs or {}
    )


def test_summary_has_mean_and_sample_deviation_over_seeds():
    # .2, .4, .6: mean .4, deviation of the sample √((.04 + 0 + .04) / 2) = .2.
    seeds = [result("x", n, v, train=n) for n, v in ((1, 0.2), (2, 0.4), (3, 0.6))]

    assert table_cells(summarize([*seeds, result("y", 1, 0.5)]), ["MAP"]) == [
        ["collection", "system", "MAP", "questions", "seeds", "train s", "score s"],
        ["c", "x", "0.4000 ± 0.2000", "10", "3", "2.0", "2.0"],
        ["c", "y", "0.5000", "10", "1", "3.0", "2.0"],
    ]


def test_costs_are_means_over_seeds_if_every_seed_has_them():
    # 100 pairs in 2 s and in 4 s are 50 and 25 per second.
    summaries = summarize(
        [
            result("maxsim", 1, 0.5, {"bytes_per_answer": 100.0, "pairs": 100}),
            result("maxsim", 2, 0.7, {"bytes_per_answer": 300.0, "pairs": 100}, score=4.0),
            result("frozen", 1, 0.4, {"bytes_per_answer": 1234.4}),
            result("old", 1, 0.4, {"bytes_per_answer": 8.0, "pairs": 10}),
            result("old", 2, 0.4, {}),
            result("bm25", 1, 0.3, {}),
        ]
    )

    cells = table_cells(summaries, ["MAP"], costs=True)

    assert [row[-2:] for row in cells] == [
        ["pairs/s", "bytes/answer"],
        ["38", "200"],
        ["", "1,234"],
        ["", ""],
        ["", ""],
    ]
    assert [row[:-2] for row in cells] == table_cells(summaries, ["MAP"])


def test_a_combination_is_fitted_on_dev(run_matrix, tmp_path, collection_folder):
    finished = run_matrix(table(collection_folder, systems=["qa-cnn", "bm25", "combined"], seeds="[1]"))

    assert finished.code == 0
    folder = tmp_path / "out/tiny"
    test, dev = (
        [read_run(folder / name / "seed1" / f"{split}.run").frame for name in ("bm25", "qa-cnn")]
        for split in ("test", "dev")
    )
    expected = learn_fusion(test, collection_folder / "dev.qrels", train_runs=dev)
    fused = read_run(folder / "combined/seed1/test.run")
    assert (fused.frame.rows(), fused.tag) == (expected.run.frame.rows(), "combined")
    weights = dict(zip(("bm25", "qa-cnn"), (mean for mean, _ in expected.weights), strict=True))
    assert f"combined: bm25 {weights['bm25']:.3f}, qa-cnn {weights['qa-cnn']:.3f}" in finished.err


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_tables_of_jobs_name_valid_systems(path):
    if path.stem == "transformers":
        pytest.importorskip("transformers")
    values = dict.fromkeys(re.findall(r"\$\{(\w+)\}", path.read_text()), "given")
    if "precision" in values:
        values["precision"] = "bf16"

    matrix = read_matrix(path, values)

    systems = {experiment.system.name: experiment.system for experiment in matrix.experiments}
    assert systems.keys() == tomllib.loads(path.read_text(encoding="utf-8"))["systems"].keys()
    for system in systems.values():
        if system.recipe is not None:
            check_recipe(system.recipe)


def test_only_keeps_the_rows_that_match(tmp_path):
    text = table("c", systems=["random", "bm25", "qa-cnn"]).replace('path = "c"', 'path = "c"\nfolds = 2')
    (tmp_path / "m.toml").write_text(text)
    matrix = read_matrix(tmp_path / "m.toml")

    kept = only(matrix, ["tiny-folds/qa-*", "tiny-folds/bm25"]).experiments

    names = [(entry.evaluated.name, entry.system.name) for entry in kept]
    assert names == [(f"tiny-fold{n}", system) for n in (1, 2) for system in ("bm25", "qa-cnn")]
    assert only(matrix, []) == matrix
    with pytest.raises(
        UsageError, match="--only tiny/bm25: matches nothing; expected one of tiny-folds/random"
    ):
        only(matrix, ["tiny/bm25"])
