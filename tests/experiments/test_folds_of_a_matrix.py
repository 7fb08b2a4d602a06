"""`folds = N` in a matrix: each question is scored by a system that was not trained on it."""

import json
import shutil

import polars as pl
import pytest
from tiny import labelled_pools, options

from aptool.data.collection import Collection
from aptool.data.folds import write_folds
from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.data.writing import LabelledPool, write_collection
from aptool.evaluation.measures import evaluate_frames
from aptool.evaluation.significance import compare_paired

TABLE = f"""
measures = ["MAP", "MRR"]
[collections.tiny]
path = "c"
folds = 2
splits = ["dev", "test"]
[systems.random]
baseline = "random"
[systems.ap-cnn]
preset = "ap-cnn"
set = {json.dumps(options("ap-cnn", "training.epochs=2"))}
[systems.both]
fuse = ["random", "ap-cnn"]
[[rows]]
collection = "tiny"
systems = ["random", "ap-cnn", "both"]
seeds = [1, 2]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder in which the table was run, with its output in ``out``."""
    from aptool.experiments.matrix import read_matrix
    from aptool.experiments.runner import run_matrix
    from aptool.experiments.table import write_table

    folder = tmp_path_factory.mktemp("folds")
    splits = {"train": labelled_pools("train", 30), "dev": labelled_pools("dev", 15)}
    write_collection(folder / "c", splits, name="tiny", source="made for tests")
    (folder / "eval.toml").write_text(TABLE.replace('"c"', json.dumps(str(folder / "c"))))
    plan = read_matrix(folder / "eval.toml")
    results = run_matrix(plan, folder / "out")
    write_table(folder / "out", results, plan.measures, "aptool matrix eval.toml")
    return folder


def document(folder):
    return json.loads((folder / "out/table.json").read_text())


def test_every_question_of_train_and_dev_is_scored_once(finished):
    run = read_run(finished / "out/tiny-folds/ap-cnn/seed1/folds.run").frame
    questions = {f"train-q{n}" for n in range(30)} | {f"dev-q{n}" for n in range(15)}

    assert set(run["question_id"]) == questions
    assert run.height == 45 * 6
    # The run of each fold is part of the pooled run.
    for fold in write_folds(Collection(finished / "c"), finished / "again", 2):
        number = fold.manifest["details"]["fold"]
        part = read_run(finished / f"out/tiny-fold{number}/ap-cnn/seed1/dev.run").frame
        assert set(part["question_id"]) == set(read_qrels(fold.qrels_file("dev"))["question_id"])
        assert part.join(run, on=["question_id", "answer_id", "score"], how="anti").is_empty()


def test_lines_have_means_over_questions_and_deviations_over_seeds_and_folds(finished):
    lines = {(line["collection"], line["system"]): line for line in document(finished)["lines"]}
    line = lines["tiny-folds", "ap-cnn"]
    qrels = pl.concat([read_qrels(finished / f"c/{split}.qrels") for split in ("train", "dev")])
    per_question = [
        evaluate_frames(
            qrels, read_run(finished / f"out/tiny-folds/ap-cnn/seed{seed}/folds.run").frame, ["MAP"]
        )
        for seed in (1, 2)
    ]

    first, second = (evaluation.means["MAP"] for evaluation in per_question)
    assert (line["questions"], line["seeds"]) == (45, 2)
    assert line["means"]["MAP"] == pytest.approx((first + second) / 2)
    assert line["deviations"]["MAP"] == pytest.approx(abs(first - second) / 2**0.5)
    means = []
    for number in (1, 2):
        fold = Collection(finished / f"out/collections/tiny-folds/fold{number}")
        qrels = read_qrels(fold.qrels_file("dev"))
        runs = [finished / f"out/tiny-fold{number}/ap-cnn/seed{seed}/dev.run" for seed in (1, 2)]
        means.append(
            sum(evaluate_frames(qrels, read_run(run).frame, ["MAP"]).means["MAP"] for run in runs) / 2
        )
    assert line["fold_deviations"]["MAP"] == pytest.approx(pl.Series(means).std())
    # The dev split has no folds; the collection has no test split.
    assert lines["tiny-dev", "ap-cnn"]["fold_deviations"] == {}
    assert {collection for collection, _ in lines} == {"tiny-folds", "tiny-dev"}
    head, _, *rows = (finished / "out/table.md").read_text().splitlines()
    assert "MAP, sd over folds" in head
    assert len(rows) == 6 + 2  # with a caption


def test_paired_tests_use_means_over_seeds_of_all_questions(finished):
    tests = document(finished)["paired"]
    values = {}
    qrels = read_qrels(finished / "out/collections/tiny-folds/pooled/folds.qrels")
    for system in ("ap-cnn", "random", "both"):
        frames = [
            evaluate_frames(
                qrels, read_run(finished / f"out/tiny-folds/{system}/seed{seed}/folds.run").frame, ["MAP"]
            )
            for seed in (1, 2)
        ]
        values[system] = sum(frame.per_question["MAP"].to_numpy() for frame in frames) / 2

    assert [(test["system"], test["other"]) for test in tests] == [
        ("ap-cnn", "both"),
        ("ap-cnn", "random"),
        ("both", "random"),
    ]
    for test in tests:
        expected = compare_paired(values[test["other"]], values[test["system"]], permutations=10_000)
        assert test["paired"]["difference"] == pytest.approx(expected.difference)
        assert test["paired"]["questions"] == 45
        assert test["paired"]["permutation"]["p"] == expected.permutation.p
        assert test["holm"] >= test["paired"]["permutation"]["p"]
    assert len((finished / "out/paired.md").read_text().splitlines()) == 2 + 3


def test_moved_folder_still_has_its_folds(finished, aptool, tmp_path, monkeypatch):
    shutil.copytree(finished / "out", tmp_path / "moved")
    (tmp_path / "moved" / "report.html").unlink(missing_ok=True)
    monkeypatch.chdir(tmp_path / "moved")

    assert document(finished)["collections"]["tiny-folds"]["path"] == "collections/tiny-folds/pooled"
    assert aptool("report", ".").code == 0


def test_folds_train_on_a_share_of_the_questions(aptool, tmp_path):
    pools = [
        LabelledPool(f"q{n}", f"question {n}", [f"a{n}"], [f"answer {n}"], {f"a{n}": 1}) for n in range(12)
    ]
    write_collection(tmp_path / "faq", {"train": pools}, name="faq", source="made for tests")
    for share, trained in (("0.5", 3), ("1.0", 6)):
        (tmp_path / "t.toml").write_text(
            f'[collections.faq]\npath = "{tmp_path}/faq"\nfolds = 2\ntrain_share = {share}\n'
            '[systems.random]\nbaseline = "random"\n[[rows]]\ncollection = "faq"\nsystems = ["random"]\n'
        )
        done = aptool("matrix", tmp_path / "t.toml", "--output", tmp_path / "out", "--overwrite")
        assert done.code == 0, done.err
        for number in (1, 2):
            fold = Collection(tmp_path / f"out/collections/faq-folds/fold{number}")
            counts = {split: fold.manifest["splits"][split]["questions"] for split in ("train", "dev")}
            assert counts == {"train": trained, "dev": 6}


@pytest.fixture
def results(finished, tmp_path, monkeypatch):
    """The document of the finished table, whose runs are recorded."""
    from bench import record

    monkeypatch.setattr(record, "RUNS", tmp_path)
    return {**record.matrix_document(finished / "out"), "runs": record.record_runs(finished / "out")}


def test_the_accuracy_by_length_ends_with_that_of_all_questions(finished):
    from bench.by_length import points

    rows = points(finished / "out", "tiny", ["both"])

    longest = max(rows, key=lambda row: row["words"])
    assert longest["questions"] == 30 + 15
    runs = sorted(finished.glob("out/tiny-folds/both/seed*/folds.run"))
    qrels = read_qrels(finished / "out/collections/tiny-folds/pooled/folds.qrels")
    means = [evaluate_frames(qrels, read_run(run).frame, ["P@1"]).means["P@1"] for run in runs]
    assert longest["accuracy"] == pytest.approx(sum(means) / len(means))
    assert [row["questions"] for row in rows] == sorted(row["questions"] for row in rows)


def test_recorded_runs_give_the_figures_of_the_matrix(finished, results):
    from bench.record import recomputed

    folds = [read_qrels(finished / f"out/collections/tiny-folds/fold{number}/dev.qrels") for number in (1, 2)]
    wrong = [
        system | {"seeds": 0, "means": dict.fromkeys(system["means"], 0.0), "values": {}}
        for system in results["systems"]
    ]

    computed = recomputed({**results, "systems": wrong}, "tiny-folds", folds)

    of_folds = [system for system in results["systems"] if system["collection"] == "tiny-folds"]
    assert [system for system in computed["systems"] if system["collection"] == "tiny-folds"] == of_folds
    assert computed["pairs"] == results["pairs"]


def test_the_qrels_of_a_run_of_the_matrix_are_found(aptool, finished):
    pooled, of_split = "out/tiny-folds/ap-cnn/seed1/folds.run", "out/tiny-folds/both/seed1/folds.run"
    qrels = finished / "out/collections/tiny-folds/pooled/folds.qrels"

    found = aptool("eval", finished / pooled, "--measures", "MAP")
    given = aptool("eval", finished / pooled, "--measures", "MAP", "--qrels", qrels)

    assert (found.code, found.out) == (0, given.out)
    assert found.err[0] == f"--qrels {qrels} (default)"
    assert aptool("compare", finished / pooled, finished / of_split, "--top", "0").code == 0


# It changes the collection and the output of the other tests, so it is the last one.
def test_second_run_changes_nothing_and_a_changed_collection_gets_new_folds(finished, aptool, monkeypatch):
    monkeypatch.chdir(finished)

    def state():
        return {path: path.stat().st_mtime_ns for path in (finished / "out").rglob("*.run")}

    before = state()
    again = aptool("matrix", "eval.toml", "--output", "out")
    assert (again.code, state()) == (0, before)
    assert not [line for line in again.err if "seed" in line]
    assert "Paired permutation tests over all questions of the folds" in "\n".join(again.out)
    # The models of folds are deleted; the model that scores the dev split is not.
    assert not list((finished / "out").glob("tiny-fold?/*/*/model"))
    assert (finished / "out/tiny/ap-cnn/seed1/model/model.safetensors").is_file()

    splits = {"train": labelled_pools("train", 24), "dev": labelled_pools("dev", 12)}
    write_collection(finished / "c", splits, name="tiny", source="made for tests", overwrite=True)
    assert aptool("matrix", "eval.toml", "--output", "out").code == 1
    changed = aptool("matrix", "eval.toml", "--output", "out", "--overwrite", "--only", "*/random")
    assert changed.code == 0
    assert all(after != before[path] for path, after in state().items() if "random" in path.parts)
    assert read_run(finished / "out/tiny-folds/random/seed2/folds.run").frame["question_id"].n_unique() == 36
