"""Every command with an output keeps a file or folder that aptool did not write."""

import hashlib

import pytest
from s3 import put_bytes
from tiny import options

from aptool.files import sha256_of
from aptool.paths import location, names

TEXT = b"To the limit of infinity and beyond: my thesis\n"

# Commands with an output file: the arguments, where {out} is the output, and the suffix of its name.
FILES = {
    "score": ("score {tiny}/test.pools.parquet --model bm25 --output {out}", ".run"),
    "fuse": ("fuse {a} {b} --output {out}", ".run"),
    "eval": ("eval {a} --qrels {tiny}/test.qrels --per-question {out}", ".csv"),
    "explain": ("explain --model {model} --question w1 --answer w2 --html {out}", ".html"),
    "report": ("report {matrix} --output {out}", ".html"),
}

# Commands with an output folder, and a file that another program has there.
FOLDERS = {
    "train": ("train {tiny} --preset ap-cnn {settings} --output {out}", "model.safetensors"),
    "functions": ("data functions --limit 100 --output {out}", "test.qrels"),
    "pools": (
        "data import retrieval --corpus {corpus} --queries {queries} --qrels test={first_qrels} "
        "--run test={first} --output {out}",
        "answers.parquet",
    ),
    "folds": ("data folds {tiny} --folds 2 --output {out}", "fold1/collection.json"),
    "import": (
        "data import table test={tsv} --question-id qid --answer-id aid --output {out}",
        "collection.json",
    ),
    "matrix": ("matrix {table} --output {out}", "tiny/bm25/seed0/test.run"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, collection_folder, model_folder):
    """Inputs of all commands, by the names of their arguments."""
    import aptool as library
    from aptool.experiments.matrix import read_matrix
    from aptool.experiments.runner import run_matrix
    from aptool.experiments.table import write_table

    folder = tmp_path_factory.mktemp("inputs")
    for name in ("a", "b"):
        library.score(collection_folder / "test.pools.parquet", "random", folder / f"{name}.run", tag=name)
    rows = "qid\tquestion\taid\tanswer\tlabel\nq1\twhere\ta1\there\t1\nq1\twhere\ta2\tthere\t0\n"
    (folder / "rows.tsv").write_text(rows)
    (folder / "matrix.toml").write_text(
        f'[collections.tiny]\npath = "{collection_folder}"\nsplit = "test"\n'
        '[systems.bm25]\nbaseline = "bm25"\n'
        '[[rows]]\ncollection = "tiny"\nsystems = ["bm25"]\n'
    )
    plan = read_matrix(folder / "matrix.toml", {})
    results = run_matrix(plan, folder / "matrix")
    write_table(folder / "matrix", results, plan.measures, "command")
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "there"}\n{"_id": "d2", "text": "here"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "where"}\n')
    (folder / "first.run").write_text("q1 Q0 d1 1 2.0 t\nq1 Q0 d2 2 1.0 t\n")
    (folder / "first.qrels").write_text("q1 0 d1 1\n")
    return {
        "corpus": folder / "corpus.jsonl",
        "queries": folder / "queries.jsonl",
        "first": folder / "first.run",
        "first_qrels": folder / "first.qrels",
        "tiny": collection_folder,
        "model": model_folder,
        "a": folder / "a.run",
        "b": folder / "b.run",
        "tsv": folder / "rows.tsv",
        "table": folder / "matrix.toml",
        "matrix": folder / "matrix",
        "settings": " ".join(f"--set {option}" for option in options("ap-cnn", "training.epochs=1")),
    }


def contents(folder):
    """The hashes of the files of a folder or bucket, by name."""
    return {name: sha256_of(location(folder) / name) for name in names(folder)}


def run(aptool, command, inputs, out, *more):
    stem = str(out).rpartition(".")[0]
    return aptool(*command.format(**inputs, out=out, stem=stem).split(), *more)


def assert_refused(finished, name):
    assert finished.code == 1
    assert len(finished.err) == 1, finished.err
    assert name in finished.err[0]
    assert "expected another path, or --overwrite" in finished.err[0]


@pytest.mark.parametrize("command", FILES)
def test_file_of_another_program_is_kept_and_replaced_when_asked(aptool, inputs, tmp_path, command):
    arguments, suffix = FILES[command]
    put_bytes(tmp_path / "target" / "thesis", TEXT)
    out = tmp_path / f"mine{suffix}"
    out.symlink_to(tmp_path / "target" / "thesis")
    before = contents(tmp_path)

    assert_refused(run(aptool, arguments, inputs, out), out.name)
    assert contents(tmp_path) == before

    assert run(aptool, arguments, inputs, out, "--overwrite").code == 0
    assert out.read_bytes() != TEXT


@pytest.mark.parametrize("command", FOLDERS)
def test_folder_of_another_program_is_kept(aptool, inputs, tmp_path, command):
    arguments, name = FOLDERS[command]
    out = tmp_path / "out"
    out.symlink_to(tmp_path / "target")
    put_bytes(tmp_path / "target" / "notes.txt", b"mine")
    put_bytes(tmp_path / "target" / name, TEXT)
    before = contents(out)

    assert_refused(run(aptool, arguments, inputs, out), "out")
    assert contents(out) == before

    assert run(aptool, arguments, inputs, out, "--overwrite").code == 0
    assert (out / name).read_bytes() != TEXT
    assert (out / "notes.txt").read_bytes() == b"mine"


def test_changed_run_of_a_matrix_is_an_error(aptool, inputs, tmp_path):
    out = tmp_path / "out"
    assert run(aptool, FOLDERS["matrix"][0], inputs, out).code == 0
    changed = out / "tiny" / "bm25" / "seed0" / "test.run"
    lines = changed.read_text().splitlines(keepends=True)
    changed.write_text("".join(lines[: len(lines) // 2]))

    finished = run(aptool, FOLDERS["matrix"][0], inputs, out)

    assert finished.code == 1
    assert "or its run has changed; expected another path, or --overwrite" in finished.err[-1]
    assert run(aptool, FOLDERS["matrix"][0], inputs, out, "--overwrite").code == 0
    assert changed.read_text() == "".join(lines)


def test_a_failed_command_with_overwrite_leaves_the_file(aptool, inputs, tmp_path):
    out = tmp_path / "mine.run"
    put_bytes(out, TEXT)

    finished = aptool("fuse", inputs["a"], tmp_path / "none.run", "--output", out, "--overwrite")

    assert finished.code == 1
    assert contents(tmp_path) == {out.name: hashlib.sha256(TEXT).hexdigest()}
    assert_refused(run(aptool, FILES["fuse"][0], inputs, out), out.name)


def test_distilling_keeps_the_file_of_another_program(aptool, inputs, tmp_path):
    out = tmp_path / "mine.bin"
    put_bytes(out, TEXT)

    command = "vectors distill --model none --collection {tiny} --output {out}"
    assert_refused(run(aptool, command, inputs, out), out.name)
    assert out.read_bytes() == TEXT
