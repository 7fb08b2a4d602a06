"""Every command with an output keeps a file or folder that aptool did not write, on disks and in buckets."""

import hashlib

import pytest
from networks import REASON, write_network
from s3 import put_bytes
from tiny import options

from aptool.files import sha256_of
from aptool.paths import location, names

TEXT = b"To the limit of infinity and beyond: my thesis\n"
RUN = b"Q0 Q0 Q0-0 1 0.5 other\n"  # it looks like an output of aptool

# Commands with an output file: the arguments, where {out} is the output, and the suffix of its name.
FILES = {
    "score": ("score {tiny}/test.pools.parquet --model bm25 --output {out}", ".run"),
    "fuse": ("fuse {a} {b} --output {out}", ".run"),
    "fuse, learned": ("fuse {a} {b} --train {tiny}/test.qrels --output {out}", ".run"),
    "vectors distill": (
        "vectors distill --model {network} --collection {tiny} --dim 4 --output {out}",
        ".bin",
    ),
    "eval": ("eval {a} --qrels {tiny}/test.qrels --per-question {out}", ".csv"),
    "eval, Parquet": ("eval {a} --qrels {tiny}/test.qrels --per-question {out}", ".parquet"),
    "explain": ("explain --model {model} --question w1 --answer w2 --html {out}", ".html"),
    "report": ("report {matrix} --output {out}", ".html"),
}
LOCAL_FILES = ("explain",)

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
    "matrix, result": ("matrix {table} --output {out}", "tiny/bm25/seed0/test.json"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, collection_folder, model_folder):
    """Inputs of all commands, by the names of their arguments."""
    import aptool as library
    from aptool.experiments.matrix import read_matrix
    from aptool.experiments.runner import run_matrix
    from aptool.experiments.table import summarize, write_table

    pytest.importorskip("sentence_transformers", reason=REASON)
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
    write_table(folder / "matrix", summarize(results), results, [], plan.measures, "command")
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "there"}\n{"_id": "d2", "text": "here"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "where"}\n')
    (folder / "first.run").write_text("q1 Q0 d1 1 2.0 t\nq1 Q0 d2 2 1.0 t\n")
    (folder / "first.qrels").write_text("q1 0 d1 1\n")
    network = write_network(folder / "bert")
    return {
        "network": network,
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


@pytest.mark.parametrize("content", [TEXT, RUN], ids=["text", "run"])
@pytest.mark.parametrize("command", FILES)
def test_file_of_another_program_is_kept_and_replaced_when_asked(aptool, inputs, tmp_path, command, content):
    arguments, suffix = FILES[command]
    (tmp_path / "target").mkdir()
    put_bytes(tmp_path / "target" / "thesis", content)
    out = tmp_path / f"mine{suffix}"
    out.symlink_to(tmp_path / "target" / "thesis") if content is TEXT else put_bytes(out, content)
    before = contents(tmp_path)

    assert_refused(run(aptool, arguments, inputs, out), out.name)
    assert contents(tmp_path) == before

    assert run(aptool, arguments, inputs, out, "--overwrite").code == 0
    after = contents(tmp_path)
    assert after[out.name] != before[out.name]
    assert (after["target/thesis"] == before["target/thesis"]) is not out.is_symlink()


@pytest.mark.parametrize("command", FILES)
def test_changed_output_is_kept(aptool, inputs, tmp_path, command):
    arguments, suffix = FILES[command]
    out = tmp_path / f"mine{suffix}"
    assert run(aptool, arguments, inputs, out).code == 0
    corrected = out.read_bytes() + b"# corrected by hand\n"
    out.write_bytes(corrected)

    finished = run(aptool, arguments, inputs, out)

    if command == "score":  # its sidecar says that the same command has written it
        assert finished.err == [f"{out}: complete, written by the same command before"]
    else:
        assert_refused(finished, out.name)
    assert out.read_bytes() == corrected


@pytest.mark.parametrize("command", [*FILES, *FOLDERS])
def test_folder_at_the_name_of_a_file_and_the_reverse_are_kept(aptool, inputs, tmp_path, command):
    arguments, suffix = FILES.get(command) or (FOLDERS[command][0], "")
    out = tmp_path / f"mine{suffix}"
    kept = out / "notes.txt" if command in FILES else out
    put_bytes(kept, b"mine")

    finished = run(aptool, arguments, inputs, out, "--overwrite")

    assert finished.code in (1, 2)
    assert len(finished.err) == 1, finished.err
    assert kept.read_bytes() == b"mine"


@pytest.mark.parametrize("command", [name for name in FILES if name not in LOCAL_FILES])
def test_object_of_another_program_is_kept(aptool, inputs, bucket, command):
    arguments, suffix = FILES[command]
    out = f"{bucket}/mine{suffix}"
    put_bytes(out, TEXT)

    assert_refused(run(aptool, arguments, inputs, out), f"mine{suffix}")
    assert contents(bucket) == {f"mine{suffix}": hashlib.sha256(TEXT).hexdigest()}

    assert run(aptool, arguments, inputs, out, "--overwrite").code == 0
    assert location(out).read_bytes() != TEXT


@pytest.mark.parametrize("is_link", [False, True], ids=["folder", "link"])
@pytest.mark.parametrize("command", FOLDERS)
def test_folder_of_another_program_is_kept(aptool, inputs, tmp_path, command, is_link):
    arguments, name = FOLDERS[command]
    out = tmp_path / "out"
    folder = tmp_path / "target" if is_link else out
    (folder / name).parent.mkdir(parents=True)
    if is_link:
        out.symlink_to(folder)
    put_bytes(folder / "notes.txt", b"mine")
    put_bytes(folder / name, TEXT)
    before = contents(out)

    assert_refused(run(aptool, arguments, inputs, out), "out")
    assert contents(out) == before

    assert run(aptool, arguments, inputs, out, "--overwrite").code == 0
    assert (out / name).read_bytes() != TEXT
    assert (out / "notes.txt").read_bytes() == b"mine"


@pytest.mark.parametrize("command", FOLDERS)
def test_changed_file_of_a_folder_is_kept(aptool, inputs, tmp_path, command):
    arguments, name = FOLDERS[command]
    out = tmp_path / "out"
    assert run(aptool, arguments, inputs, out).code == 0
    corrected = (out / name).read_bytes() + b" "
    (out / name).write_bytes(corrected)
    before = contents(out)

    finished = run(aptool, arguments, inputs, out)

    if finished.code:  # the same command has nothing to write
        assert_refused(finished, "out")
    assert contents(out) == before


@pytest.mark.parametrize("command", FOLDERS)
def test_prefix_of_another_program_is_kept(aptool, inputs, bucket, command):
    arguments, name = FOLDERS[command]
    out = f"{bucket}/out"
    put_bytes(f"{out}/{name}", TEXT)
    before = contents(out)

    assert_refused(run(aptool, arguments, inputs, out), "out")
    assert contents(out) == before

    assert run(aptool, arguments, inputs, out, "--overwrite").code == 0
    assert contents(out).get(name) != before[name]


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
