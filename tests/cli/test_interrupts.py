"""Ctrl-C and SIGTERM end a command with one line, exit code 130 or 143, and nothing half-written."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest

# Start a command and execute ACTION when it imports MODULE.
PROGRAM = """
import os, signal, sys
from aptool.__main__ import main

module, number, action, *arguments = sys.argv[1:]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            exec(action)

def interrupt():
    os.kill(os.getpid(), int(number))

class InterruptedOnDelete:
    def __del__(self):
        interrupt()

sys.meta_path.insert(0, Interrupting())
sys.argv = ["aptool", *arguments]
main()
"""
PLAIN = "interrupt()"
# Compiled modules replace, print or ignore an exception of a module that they import.
REPLACED = """
try:
    interrupt()
except (KeyboardInterrupt, SystemExit):
    raise ImportError("numpy._core.multiarray failed to import") from None
"""
PRINTED = """
try:
    interrupt()
except (KeyboardInterrupt, SystemExit):
    sys.excepthook(*sys.exc_info())
    raise ImportError("numpy._core.multiarray failed to import") from None
"""
IGNORED = "held = InterruptedOnDelete(); del held"

ENDS = {
    "Ctrl-C": (signal.SIGINT, 130, "aptool: interrupted"),
    "SIGTERM": (signal.SIGTERM, 143, "aptool: terminated"),
}


def wait_after(target, folder, note, arguments):
    """Run a command in a folder; after its first call of MODULE:FUNCTION it waits until a note is removed."""
    from aptool.__main__ import main

    os.chdir(folder)
    name, _, function = target.partition(":")
    module = importlib.import_module(name)
    original = getattr(module, function)

    def waiting(*args, **kwargs):
        result = original(*args, **kwargs)
        Path(note).touch()
        while Path(note).exists():
            time.sleep(0.01)
        return result

    setattr(module, function, waiting)
    sys.argv = ["aptool", *arguments]
    main()


@pytest.mark.parametrize(
    ("end", "module", "action"),
    [
        ("Ctrl-C", "aptool.cli.main", PLAIN),
        ("Ctrl-C", "click", REPLACED),
        ("Ctrl-C", "pyarrow.parquet", PLAIN),
        ("SIGTERM", "pyarrow.parquet", REPLACED),
        ("Ctrl-C", "pyarrow.parquet", PRINTED),
        ("SIGTERM", "pyarrow.parquet", IGNORED),
    ],
)
def test_signal_during_imports_is_one_line(end, module, action, tmp_path):
    number, code, line = ENDS[end]
    (tmp_path / "x.tsv").write_text("question\tanswer\tlabel\nq\ta\t1\n")
    command = ("data", "import", "table", "test=x.tsv", "--output", "c")

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, str(int(number)), action, *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )

    # Click ends the line on which the terminal shows ^C.
    assert (done.returncode, done.stderr.strip()) == (code, line)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("function", "command"),
    [
        ("aptool.scoring.run:part_bytes", "score {tiny}/test.pools.parquet --model bm25 --output out"),
        ("aptool.data.folds:_share", "data folds {tiny} --output out"),
        ("aptool.data.runs:run_lines", "fuse {a} {b} --output out"),
    ],
    ids=["score", "folds", "fuse"],
)
def test_signal_in_a_command_leaves_nothing_half_written(
    end, function, command, collection_folder, tmp_path, aptool
):
    number, code, line = ENDS[end]
    runs = {}
    for name in ("a", "b"):
        runs[name] = tmp_path / f"{name}.run"
        options = ("--model", "random", "--tag", name, "--output", runs[name])
        assert aptool("score", collection_folder / "test.pools.parquet", *options).code == 0
    folder, note = tmp_path / "folder", tmp_path / "note"
    folder.mkdir()
    arguments = command.format(tiny=collection_folder, **runs).split()

    process = forked.start(tmp_path / "process", wait_after, function, str(folder), str(note), arguments)
    error = tmp_path / "process" / "err"
    try:
        while not note.exists():
            assert process.exitcode is None, error.read_text()
            time.sleep(0.01)
        os.kill(process.pid, number)
        time.sleep(0.5)
        note.unlink()  # a thread does not receive the signal
        process.join(60)
    finally:
        process.kill()
        process.join()
    err = error.read_text()

    assert process.exitcode == code
    resumes = command.startswith("score")
    assert [text for text in err.splitlines() if text][-1] == line + "; the same command resumes" * resumes
    assert "Traceback" not in err
    assert not (folder / "out").is_file()
    for complete in folder.rglob("collection.json"):  # one of several folds
        assert aptool("data", "check", complete).code == 0

    assert aptool(*arguments[:-1], folder / "out").code == 0
