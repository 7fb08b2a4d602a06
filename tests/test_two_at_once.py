"""Two processes with the same output: one writes it, the other fails with an error that names the first."""

import importlib
import sys

import forked
import pytest
from tiny import options

from aptool.cli.main import main
from aptool.data.runs import sidecar_path
from aptool.errors import InputError
from aptool.outputs import lock, output_file, output_folder
from aptool.scoring.run import parts_folder
from aptool.training.checkpoint import training_folder

TABLE = """
measures = ["map"]
[collections.c]
path = "{collection}"
split = "test"
[systems.r]
baseline = "random"
[[rows]]
collection = "c"
systems = ["r"]
seeds = [1]
"""
# Name, function at which a command is stopped, and the files that do not vary between runs.
OUTPUTS = {
    "score": ("x.run", "aptool.scoring.run", "join_parts", ["x.run"]),
    "train": ("m", "aptool.training.fit", "save_model", ["m/model.safetensors", "m/tokenizer.json"]),
    "matrix": ("o", "aptool.experiments.trial", "evaluate_frames", ["o/c/r/seed1/test.run"]),
    "import": ("c", "aptool.data.writing", "check_document", ["c/test.pools.parquet", "c/test.qrels"]),
}


@pytest.fixture
def arguments(collection_folder, model_folder, tmp_path):
    """The arguments of each command."""
    (tmp_path / "x.tsv").write_text("question\tanswer\tlabel\nq\ta\t1\nq\tb\t0\n")
    (tmp_path / "t.toml").write_text(TABLE.format(collection=collection_folder))
    pools = collection_folder / "test.pools.parquet"
    settings = [word for option in options("qa-cnn", "training.epochs=1") for word in ("--set", option)]
    arguments = {
        "score": ("score", pools, "--model", model_folder),
        "train": ("train", collection_folder, "--preset", "qa-cnn", *settings),
        "matrix": ("matrix", tmp_path / "t.toml"),
        "import": ("data", "import", "table", f"test={tmp_path / 'x.tsv'}"),
    }
    return {name: [*map(str, words), "--output"] for name, words in arguments.items()}


def run_held(pipe):
    """Run commands; each stops at its first call of a function until it gets a message."""
    while command := pipe.recv():
        name, function_name, arguments = command
        module = importlib.import_module(name)
        function = getattr(module, function_name)

        def stopped(*args, **kwargs):
            setattr(module, function_name, function)  # noqa: B023
            pipe.send("stopped")
            pipe.recv()
            return function(*args, **kwargs)  # noqa: B023

        setattr(module, function_name, stopped)
        sys.argv = ["aptool", *arguments]
        try:
            main()
        except SystemExit as end:
            pipe.send(end.code or 0)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The process that owns an output, and a pipe to it."""
    here, there = forked.SERVER.Pipe()
    process = forked.start(tmp_path_factory.mktemp("other") / "process", run_held, there)
    yield process, here
    here.send(None)
    process.join()


@pytest.mark.parametrize("name", OUTPUTS)
def test_one_process_writes_and_the_other_names_it(name, arguments, other, aptool, tmp_path):
    output, module, function, same = OUTPUTS[name]
    target = tmp_path / "both" / output
    target.parent.mkdir()
    process, pipe = other
    pipe.send((module, function, [*arguments[name], str(target)]))
    assert pipe.recv() == "stopped"
    try:
        refused = aptool(*arguments[name], target)
    finally:
        pipe.send("go")
        code = pipe.recv()

    assert code == 0
    assert refused.code == 1
    [line] = [line for line in refused.err if line.startswith("aptool: ")]
    folder = {"score": "x.run.parts", "train": "m.training"}.get(name, output)
    assert line.startswith(f"aptool: {target.parent / folder}: being written by process {process.pid} on ")
    assert line.endswith("; expected one command at a time")
    alone = aptool(*arguments[name], tmp_path / "alone" / output)
    assert alone.code == 0, alone.err
    result, expected = (
        {str(path.relative_to(folder)) for path in folder.rglob("*")}
        for folder in (target.parent, tmp_path / "alone")
    )
    assert result == expected  # no parts, no claims
    for file in same:
        assert (target.parent / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()


# The name of the second writer, relative to a folder with d/x, l -> d, x -> d/x, and w, its current folder.
NAMES = [
    "../x",
    "../l/x",
    "../d/x",
    "../d/../d/x",
    "../l/../l/x",
    "../chain",
    "{root}/d//x",
    "{root}/w/../l/x",
]


@pytest.mark.parametrize("name", NAMES)
def test_all_names_of_an_output_are_one_output(name, tmp_path, monkeypatch):
    root = tmp_path / "root"
    for folder in ("d", "w"):
        (root / folder).mkdir(parents=True)
    for link, target in (("l", "d"), ("x", "d/x"), ("chain", "x")):
        (root / link).symlink_to(target)
    monkeypatch.chdir(root / "w")
    first, second = root / "d" / "x", name.format(root=root)

    for folder_of in (parts_folder, training_folder):
        assert folder_of(second) == folder_of(first)
        refused = pytest.raises(InputError, match="being written by process")
        with lock(folder_of(first)), refused, lock(folder_of(second)):
            pytest.fail("two writers of one output")
    for write in (output_file, lambda path: output_folder(path, "mark")):
        refused = pytest.raises(InputError, match="being written by process")
        with write(first) as temporary:
            temporary.is_dir() or temporary.touch()
            with refused, write(second):
                pytest.fail("two writers of one output")
        assert temporary.parent == root / "d"
        first.unlink() if first.is_file() else first.rmdir()
    assert sidecar_path(second) == root / "d" / "x.json"


@pytest.mark.parametrize("url", ["s3://bucket/m/x", "s3://bucket/m/x/", "s3:/bucket/m/x"])
def test_a_url_is_one_output_with_and_without_a_trailing_slash(url):
    assert str(parts_folder(url)) == "s3://bucket/m/x.parts"
    assert str(training_folder(url)) == "s3://bucket/m/x.training"
    assert str(sidecar_path(url)) == "s3://bucket/m/x.json"
