"""`aptool score`: runs in the order of trec_eval, and one error line per mistake."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import labelled_pools, row, write_pools

from aptool.data.writing import LabelledPool, write_collection
from aptool.models.model import load_model, save_model

POOLS = labelled_pools("test", 12)
ROWS = [
    row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts, strict=True)))
    for pool in POOLS
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with twelve pools in four row groups."""
    write_pools(tmp_path / "test.pools.parquet", *(ROWS[start : start + 3] for start in range(0, 12, 3)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def score(aptool, folder, model_folder):
    """Run `aptool score test.pools.parquet --model MODEL --output out.run` with additional arguments."""

    def run(*more, pools=("test.pools.parquet",), model=model_folder, output="out.run"):
        return aptool("score", *pools, "--model", model, "--output", output, *more)

    return run


def assert_one_line(finished, code, *phrases):
    assert (finished.code, finished.out) == (code, [])
    assert len(finished.err) == 1
    assert finished.err[0].startswith("aptool: ")
    for phrase in phrases:
        assert phrase in finished.err[0]


def test_run_holds_every_candidate_once_in_the_order_of_the_pools_and_of_trec_eval(score, folder):
    finished = score("--tag", "mine")

    assert (finished.code, finished.out, finished.err) == (0, ["out.run: 72 pairs"], [])
    lines = [line.split(" ") for line in (folder / "out.run").read_text().splitlines()]
    pairs = {(pool.question_id, answer_id) for pool in POOLS for answer_id in pool.answer_ids}
    assert len(lines) == len(pairs) == 72
    assert {(line[0], line[2]) for line in lines} == pairs
    assert {(line[1], line[5]) for line in lines} == {("Q0", "mine")}
    # Questions as in the pools, score descending, answer id descending, as bytes.
    ordered = sorted(lines, key=lambda line: line[2].encode(), reverse=True)
    ordered.sort(key=lambda line: -float(line[4]))
    ordered.sort(key=lambda line: [pool.question_id for pool in POOLS].index(line[0]))
    assert lines == ordered
    assert [line[3] for line in lines] == [str(rank) for _ in range(12) for rank in range(1, 7)]
    assert not Path("out.run.parts").exists()


def tags(run):
    return {line.split(" ")[5] for line in run.read_text().splitlines()}


def test_default_tag_is_the_name_of_the_model(score, folder, model_folder):
    model = load_model(model_folder)
    recipe = replace(model.recipe, preset="my own recipe")
    save_model("mine", model.ranker, model.tokenizer, recipe, model.config["training"], [])

    score()
    score(model="mine", output="mine.run")

    assert (tags(folder / "out.run"), tags(folder / "mine.run")) == ({"ap-cnn"}, {"my-own-recipe"})


def test_scoring_again_gives_the_same_bytes(score, folder):
    score()
    first = (folder / "out.run").read_bytes()
    (folder / "out.run").unlink()
    score()
    score(output="out.run.gz")
    score(output="again.run.gz")

    assert (folder / "out.run").read_bytes() == first
    assert gzip.decompress((folder / "out.run.gz").read_bytes()) == first
    assert (folder / "out.run.gz").read_bytes() == (folder / "again.run.gz").read_bytes()


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A collection whose pools share answers."""
    answers = {name: text for pool in POOLS for name, text in zip(pool.answer_ids, pool.texts, strict=True)}
    splits = {"test": [pool._replace(texts=None) for pool in POOLS]}
    write_collection(tmp_path / "shared", splits, name="shared", source="here", answers=answers.items())
    return tmp_path / "shared"


def test_shared_answers_next_to_the_pools_are_read(score, folder, shared):
    score(output="own.run")
    score(output="next.run", pools=[shared / "test.pools.parquet"])
    shutil.move(shared / "answers.parquet", folder / "moved.parquet")
    score("--answers", "moved.parquet", output="given.run", pools=[shared / "test.pools.parquet"])

    scores = [
        {
            tuple(line.split()[:3:2]): float(line.split()[4])
            for line in (folder / name).read_text().splitlines()
        }
        for name in ("own.run", "next.run", "given.run")
    ]
    assert scores[1] == scores[2] == pytest.approx(scores[0], abs=1e-5)


@pytest.mark.parametrize(
    "pools", [["many"], ["many/*.parquet"], ["many/a.pools.parquet", "many/b.pools.parquet"]]
)
def test_pools_may_be_folders_globs_and_several_files(score, folder, pools):
    (folder / "many").mkdir()
    write_pools("many/b.pools.parquet", ROWS[6:9], ROWS[9:])
    write_pools("many/a.pools.parquet", ROWS[:3], ROWS[3:6])
    score(output="whole.run")

    finished = score(pools=pools)

    assert finished.out == ["out.run: 72 pairs"]
    assert (folder / "out.run").read_bytes() == (folder / "whole.run").read_bytes()


def test_the_default_model_is_that_of_train(aptool, folder, model_folder):
    shutil.copytree(model_folder, "models/ap-cnn")

    finished = aptool("score", POOLS_FILE, "--output", "new.run")

    assert (finished.code, finished.err) == (0, ["--model models/ap-cnn (default)"])
    assert finished.out == ["new.run: 72 pairs"]


def test_long_answers_are_truncated_and_counted(score, folder, model_folder):
    rows = [row("q1", "where", [("a1", "here " * 500), ("a2", "there"), ("a3", "far " * 201)])]
    write_pools("test.pools.parquet", rows)

    assert score().err == ["2 answers were truncated to 200 tokens"]


def test_answers_of_two_collections_are_not_mixed(aptool, model_folder, tmp_path):
    """The second collection has different texts under the same ids."""
    for name, texts in (("first", ["by day", "by night"]), ("second", ["in winter", "in summer"])):
        splits = {"test": [LabelledPool(f"{name}-q", "when", ["d1", "d2"], None, {"d1": 1})]}
        answers = [("d1", texts[0]), ("d2", texts[1])]
        write_collection(tmp_path / name, splits, name=name, source="made for tests", answers=answers)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    (tmp_path / "copy" / "test.pools.parquet").unlink()
    write_pools(
        tmp_path / "copy" / "test.pools.parquet", [row("copy-q", "when", [("d1", None), ("d2", None)])]
    )

    def scored(*names):
        pools = [tmp_path / name / "test.pools.parquet" for name in names]
        run = tmp_path / f"{'-'.join(names)}.run"
        assert aptool("score", *pools, "--model", model_folder, "--output", run).code == 0
        return sorted(line.split()[0::4] for line in run.read_text().splitlines())

    assert scored("first", "second") == sorted(scored("first") + scored("second"))
    assert scored("first", "copy") == sorted(scored("first") + scored("copy"))


POOLS_FILE = "test.pools.parquet"
WRONG = {
    "device": ([POOLS_FILE, "--device", "cuda"], 2, "--device 'cuda': ", "expected auto, cpu or a GPU"),
    "two words": ([POOLS_FILE, "--tag", "my run"], 2, "--tag 'my run': expected one word"),
    "no UTF-8": ([POOLS_FILE, "--tag", "caf\udce9"], 1, "--tag: 'caf", "expected text that UTF-8 can encode"),
    "no model": ([POOLS_FILE, "--model", "none"], 1, "none: folder not found; expected a model (`aptool"),
    "no weights": ([POOLS_FILE, "--model", "half"], 1, "half/model.safetensors: file not found; expected"),
    "no pools": (["none.parquet"], 1, "none.parquet: file not found"),
    "output in a file": ([POOLS_FILE, "--output", "file/out.run"], 1, "expected a writable folder"),
    "a folder": ([POOLS_FILE, "--output", "empty"], 1, "empty: a folder; expected a file, or a new path"),
    "an input": ([POOLS_FILE, "--output", POOLS_FILE], 1, f"{POOLS_FILE}: it exists; expected another path"),
    "a link": ([POOLS_FILE, "--output", "link"], 1, "link: it exists; expected another path"),
    "a model": ([POOLS_FILE, "--output", "half/config.json"], 1, "config.json: it exists; expected"),
}


@pytest.mark.parametrize(
    ("arguments", "code", "phrases"), [(a, c, p) for a, c, *p in WRONG.values()], ids=WRONG
)
def test_mistakes_are_one_line_and_leave_no_run(aptool, folder, model_folder, arguments, code, phrases):
    shutil.copytree(model_folder, "half")
    (folder / "half" / "model.safetensors").unlink()
    (folder / "empty").mkdir()
    (folder / "file").write_text("x")
    (folder / "link").symlink_to(POOLS_FILE)
    before = sorted(path.name for path in folder.rglob("*"))

    finished = aptool("score", "--model", model_folder, "--output", "out.run", *arguments)

    assert_one_line(finished, code, *phrases)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_missing_pools_and_a_missing_output_are_one_line(aptool, folder):
    assert_one_line(aptool("score", POOLS_FILE, "--model", "m"), 2, "Missing option '--output'")
    finished = aptool("score", "tset.pools.parquet", "--model", "m", "--output", "new.run")
    assert_one_line(finished, 1, "tset.pools.parquet: file not found")
