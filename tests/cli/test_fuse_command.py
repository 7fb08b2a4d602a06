"""`aptool fuse`: reciprocal rank fusion, learned weights, and one error line per mistake."""

import json
from pathlib import Path

import pytest

import aptool as library

SCORES = {f"q{n}": {f"a{i}": float((i * 7 + n * 3) % 10) for i in range(6)} for n in range(12)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Runs good.run and bad.run of twelve questions; the relevant answer is the first of good.run."""
    monkeypatch.chdir(tmp_path)
    best = {q: max(scores, key=scores.get) for q, scores in SCORES.items()}
    library.Run(SCORES).save("good.run")
    by_id = {q: {a: -float(a[1:]) for a in scores} for q, scores in SCORES.items()}
    library.Run(by_id).save("bad.run")
    Path("dev.qrels").write_text("".join(f"{q} 0 {answer} 1\n" for q, answer in best.items()))
    return tmp_path


def test_reciprocal_rank_fusion_writes_the_run_of_the_library(aptool, folder):
    finished = aptool("fuse", "good.run", "bad.run", "--output", "fused.run", "--k", 5, "--tag", "both")

    assert (finished.code, finished.out) == (0, ["fused.run"])
    expected = library.fuse(["good.run", "bad.run"], k=5, tag="both")
    expected.save("expected.run")
    assert (folder / "fused.run").read_bytes() == (folder / "expected.run").read_bytes()


@pytest.mark.parametrize("normalization", ["min-max", "z-score"])
@pytest.mark.parametrize("method", ["combsum", "combmnz"])
def test_sums_of_scores_write_the_run_of_the_library(aptool, folder, method, normalization):
    options = ["--method", method, "--normalization", normalization]

    finished = aptool("fuse", "good.run", "bad.run", "--output", "fused.run", *options)

    assert (finished.code, finished.out) == (0, ["fused.run"])
    library.fuse(["good.run", "bad.run"], method=method, normalization=normalization).save("expected.run")
    assert (folder / "fused.run").read_bytes() == (folder / "expected.run").read_bytes()


def test_min_max_is_the_default(folder):
    default, named = (library.fuse(["good.run", "bad.run"], method="combsum", **more) for more in MIN_MAX)

    assert default.to_dict() == named.to_dict()


MIN_MAX = [{}, {"normalization": "min-max"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "combsum", "--k", 5], "--k: requires the method rrf"),
        (["--k", "nan"], "Invalid value for '--k': 'nan' is not a number."),
        (["--normalization", "z-score"], "--normalization: requires the method combsum or combmnz"),
        (
            ["--train", "dev.qrels", "--method", "rrf"],
            "--method given with --train; expected one or",
        ),
    ],
)
def test_options_of_another_method_are_refused(aptool, folder, options, message):
    finished = aptool("fuse", "good.run", "bad.run", "--output", "fused.run", *options)

    assert finished.code == 2
    assert finished.err[-1].startswith(f"aptool: {message}")
    assert not (folder / "fused.run").exists()


def test_learned_weights_favour_the_better_run(aptool, folder):
    finished = aptool(
        "fuse", "good.run", "bad.run", "--train", "dev.qrels", "--output", "fused.run", "--folds", 4
    )

    assert finished.code == 0
    assert finished.out[0].split() == ["run", "weight", "sd", "over", "folds"]
    good, bad = (float(line.split()[1]) for line in finished.out[1:3])
    assert good > 1 > bad
    by_rank = library.fuse(["good.run", "bad.run"])
    learned, even = (library.evaluate("dev.qrels", run, "RR").means["RR"] for run in ("fused.run", by_rank))
    assert learned > even  # reciprocal rank fusion weights both runs equally


def test_weights_are_learned_on_training_runs(aptool, folder):
    new = {f"new-{q}": scores for q, scores in SCORES.items()}
    library.Run(new).save("new.run")
    library.Run({q: dict.fromkeys(scores, 0.0) for q, scores in new.items()}).save("flat.run")

    finished = aptool(
        *("fuse", "new.run", "flat.run", "--output", "fused.run", "--train", "dev.qrels", "--json"),
        *("--train-run", "good.run", "--train-run", "bad.run"),
    )

    assert finished.code == 0
    printed = json.loads("\n".join(finished.out))
    assert [entry["run"] for entry in printed["weights"]] == ["new.run", "flat.run"]
    assert library.Run.load("fused.run").frame["question_id"].n_unique() == 12


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["good.run"], "runs: 1 given; expected at least two runs"),
        (["good.run", "bad.run", "--folds", "3"], "--folds given without --train QRELS"),
        (["good.run", "bad.run", "--train", "dev.qrels", "--k", "3"], "--k given with --train"),
        (
            ["good.run", "bad.run", "--train", "dev.qrels", "--train-run", "good.run"],
            "train_runs: 1 given; expected one for each of 2 runs",
        ),
    ],
)
def test_wrong_usage_is_one_line(aptool, folder, arguments, phrase):
    finished = aptool("fuse", *arguments, "--output", "fused.run")

    assert (finished.code, finished.out, len(finished.err)) == (2, [], 1)
    assert phrase in finished.err[0]
    assert not (folder / "fused.run").exists()


def test_an_input_is_not_replaced(aptool, folder):
    finished = aptool("fuse", "good.run", "bad.run", "--output", "bad.run")

    assert finished.code == 1
    assert "also an input of this command" in finished.err[0]


def test_output_replaces_only_a_run(aptool, folder):
    labels = (folder / "dev.qrels").read_bytes()
    (folder / "mine").mkdir()
    (folder / "mine" / "notes").write_text("mine")
    for output, problem in (
        ("dev.qrels", "it exists; expected another path, or --overwrite"),
        ("mine/", "it exists; expected another path, or --overwrite"),
    ):
        finished = aptool("fuse", "good.run", "bad.run", "--output", output)

        assert (finished.code, finished.out) == (1, [])
        assert len(finished.err) == 1
        assert f"{output}: {problem}" in finished.err[0]
    assert (folder / "dev.qrels").read_bytes() == labels
    assert not (folder / "fused").exists()
    with pytest.raises(library.AptoolError, match="it exists; expected another path, or --overwrite"):
        library.Run.load("good.run").save("dev.qrels")


def test_a_tag_of_two_words_is_refused_as_by_score(aptool, folder):
    finished = aptool("fuse", "good.run", "bad.run", "--output", "fused.run", "--tag", "my run")

    assert (finished.code, finished.err) == (2, ["aptool: --tag 'my run': expected one word"])
