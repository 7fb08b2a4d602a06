"""Two processes with the same output: one writes it, the other fails with an error that names the first."""

import json
import os
import subprocess
import sys

import pytest
from tiny import options

# Runs commands; each stops at its first call of a function until it reads a line.
HOLDING = """
import contextlib, importlib, io, json, sys
from aptool.cli.main import main

said = sys.stdout

def tell(word):
    print(word, file=said, flush=True)

for line in sys.stdin:
    module, name, arguments = json.loads(line)
    module = importlib.import_module(module)
    function = getattr(module, name)

    def stopped(*args, **kwargs):
        setattr(module, name, function)
        tell("stopped")
        sys.stdin.readline()
        return function(*args, **kwargs)

    setattr(module, name, stopped)
    sys.argv = ["aptool", *arguments]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main()
        except SystemExit as end:
            code = end.code
    tell(json.dumps([code, printed.getvalue()]))
"""
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
    "score": ("x.run", "aptool.scoring.score", "merge", ["x.run"]),
    "train": ("m", "aptool.training.fit", "save_model", ["m/model.safetensors", "m/tokenizer.json"]),
    "matrix": ("o", "aptool.experiments.trial", "evaluate", ["o/c/r/seed1/test.run"]),
    "import": ("c", "aptool.formats.collection", "check_document", ["c/test.pools.parquet", "c/test.qrels"]),
    "vectors": ("v.bin", "aptool.text.vectors", "write_vectors", ["v.bin"]),
    "encode": ("s", "aptool.scoring.answer_store", "write_part", ["s/encoded.json"]),
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
        "import": ("data", "import", "tsv", f"test={tmp_path / 'x.tsv'}"),
        "vectors": ("vectors", "learn", collection_folder, "--dim", "4", "--epochs", "1"),
        "encode": ("encode", pools, "--model", model_folder),
    }
    return {name: [*map(str, words), "--output"] for name, words in arguments.items()}


@pytest.fixture(scope="module")
def other():
    """The process that owns an output."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        yield process
        process.stdin.close()


def send(process, line):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@pytest.mark.parametrize("name", OUTPUTS)
def test_one_process_writes_and_the_other_names_it(name, arguments, other, aptool, tmp_path):
    output, module, function, same = OUTPUTS[name]
    target = tmp_path / "both" / output
    target.parent.mkdir()
    send(other, json.dumps([module, function, [*arguments[name], str(target)]]))
    assert other.stdout.readline() == "stopped\n"
    try:
        refused = aptool(*arguments[name], target)
    finally:
        send(other, "go")
        code, printed = json.loads(other.stdout.readline())

    assert code == 0, printed
    assert refused.code == 1
    [line] = [line for line in refused.err if line.startswith("aptool: ")]
    assert line.startswith(f"aptool: {target}: being written by process {other.pid} on ")
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
