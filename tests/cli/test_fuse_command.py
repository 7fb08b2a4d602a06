"""`aptool fuse`: reciprocal rank fusion, learned weights, and one error line per mistake."""

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
    finished = aptool("fuse", "good.run", "bad.run", "--output", "fused.run", "--tag", "both")

    assert (finished.code, finished.out) == (0, ["fused.run"])
    expected = library.fuse(["good.run", "bad.run"], tag="both")
    expected.save("expected.run")
    assert (folder / "fused.run").read_bytes() == (folder / "expected.run").read_bytes()


def test_learned_weights_favour_the_better_run(aptool, folder):
    finished = aptool("fuse", "good.run", "bad.run", "--train", "dev.qrels", "--output", "fused.run")

    assert finished.code == 0
    assert finished.out[0].split() == ["run", "weight", "sd", "over", "folds"]
    good, bad = (float(line.split()[1]) for line in finished.out[1:3])
    assert good > 1 > bad
    by_rank = library.fuse(["good.run", "bad.run"])
    learned, even = (library.evaluate("dev.qrels", run, "RR").means["MRR"] for run in ("fused.run", by_rank))
    assert learned > even  # reciprocal rank fusion weights both runs equally


TWO = ["good.run", "bad.run"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["good.run"], 2, "runs: 1 given; expected at least two runs"),
        ([*TWO, "--train-run", "good.run"], 2, "--train-run given without --train QRELS; expected both"),
        ([*TWO, "--train", "dev.qrels", "--train-run", TWO[0]], 2, "train_runs: 1 given; expected one"),
        ([*TWO, "--tag", "my run"], 2, "--tag 'my run': expected one word"),
        ([*TWO, "--output", "bad.run"], 1, "bad.run: also an input of this command"),
        ([*TWO, "--output", "dev.qrels"], 1, "dev.qrels: it exists; expected another path, or --overwrite"),
        ([*TWO, "--output", "mine/"], 1, "mine/: a folder; expected a file, or a new path"),
    ],
)
def test_mistakes_are_one_line(aptool, folder, arguments, code, message):
    (folder / "mine").mkdir()
    (folder / "mine" / "notes").write_text("mine")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}

    finished = aptool("fuse", "--output", "fused.run", *arguments)

    assert (finished.code, finished.out, len(finished.err)) == (code, [], 1)
    assert finished.err[0].startswith(f"aptool: {message}")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
