"""`aptool score --model bm25` and `--model random`: untrained systems by name."""

import gzip
import shutil

import pytest
from tiny import row, write_pools

import aptool as library

QUESTIONS = {
    "q1": ("Where is the river?", {"a1": "The river is north.", "a2": "A bridge.", "a3": "river river"}),
    "q2": ("the old bridge", {"a2": "A bridge.", "a4": "An old, old bridge over the river.", "a5": "?!"}),
    "q3": ("nothing is known", {"a1": "The river is north.", "a6": ""}),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three pools in two files of one and two row groups."""
    rows = [row(name, text, list(answers.items())) for name, (text, answers) in QUESTIONS.items()]
    write_pools(tmp_path / "one.pools.parquet", [rows[0]], [rows[1]])
    write_pools(tmp_path / "two.pools.parquet", [rows[2]])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bm25_bytes(folder, pools):
    library.bm25_run(pools).save(folder / "expected.run", overwrite=True)
    return (folder / "expected.run").read_bytes()


@pytest.mark.parametrize("output", ["out.run", "out.run.gz"])
def test_bm25_writes_the_run_of_the_library(aptool, folder, output):
    files = ["one.pools.parquet", "two.pools.parquet"]

    finished = aptool("score", *files, "--model", "bm25", "--output", output)

    assert (finished.code, finished.out, finished.err) == (0, [f"{output}: 8 pairs"], [])
    open_ = gzip.open if output.endswith(".gz") else open
    with open_(folder / output, "rb") as file:
        content = file.read()
    assert content == bm25_bytes(folder, library.Pools.load(files))
    assert content == bm25_bytes(folder, library.Pools(QUESTIONS))


def test_shared_answers_count_once(aptool, folder):
    """BM25 statistics count a text of ``answers.parquet`` once, even under two ids."""
    from aptool.data.pools import write_answers

    shared = {name: text for _, answers in QUESTIONS.values() for name, text in answers.items()}
    write_answers("answers.parquet", [*shared.items(), ("again", shared["a1"])])
    rows = [row(q, text, [(name, None) for name in answers]) for q, (text, answers) in QUESTIONS.items()]
    write_pools("shared.pools.parquet", rows)

    finished = aptool("score", "shared.pools.parquet", "--model", "bm25", "--output", "out.run")

    assert finished.code == 0
    assert (folder / "out.run").read_bytes() == bm25_bytes(folder, library.Pools(QUESTIONS))


def test_random_scores_use_seed_0(aptool, folder):
    from aptool.data.pools import list_units, read_pools
    from aptool.scoring.systems import RandomScores

    assert aptool("score", "two.pools.parquet", "--model", "random", "--output", "two.run").code == 0

    expected = RandomScores(0).open().score(read_pools(list_units(["two.pools.parquet"])[0]))
    lines = [line.split() for line in (folder / "two.run").read_text().splitlines()]
    assert sorted(float(line[4]) for line in lines) == pytest.approx(sorted(expected.tolist()), rel=1e-6)
    assert {line[5] for line in lines} == {"random"}


def test_path_with_a_slash_is_a_model_folder(aptool, folder, model_folder):
    shutil.copytree(model_folder, folder / "bm25")

    by_name = aptool("score", "two.pools.parquet", "--model", "bm25", "--output", "name.run")
    by_path = aptool("score", "two.pools.parquet", "--model", "./bm25", "--output", "path.run")

    assert (by_name.code, by_path.code) == (0, 0)
    assert by_name.err == ["bm25: the untrained system; for the model folder write ./bm25"]
    tags = {name: (folder / f"{name}.run").read_text().split()[5] for name in ("name", "path")}
    assert tags == {"name": "bm25", "path": "ap-cnn"}
