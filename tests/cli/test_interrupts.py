"""Ctrl-C while a command imports its modules: one error line and exit code 130."""

import subprocess
import sys

import pytest

# Start a command and execute ACTION when it imports MODULE.
PROGRAM = """
import os, signal, sys
from aptool.__main__ import main

module, action, *arguments = sys.argv[1:]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            exec(action)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

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
except KeyboardInterrupt:
    raise ImportError("numpy._core.multiarray failed to import") from None
"""
PRINTED = """
try:
    interrupt()
except KeyboardInterrupt:
    sys.excepthook(*sys.exc_info())
    raise ImportError("numpy._core.multiarray failed to import") from None
"""
IGNORED = "held = InterruptedOnDelete(); del held"


@pytest.mark.parametrize(
    ("module", "action"),
    [
        ("aptool.cli.main", PLAIN),
        ("click", PLAIN),
        ("click", REPLACED),
        ("aptool.cli.data", PLAIN),
        ("pyarrow.parquet", PLAIN),
        ("pyarrow.parquet", REPLACED),
        ("pyarrow.parquet", PRINTED),
        ("pyarrow.parquet", IGNORED),
    ],
)
def test_failure_during_imports_is_one_line(module, action, tmp_path):
    (tmp_path / "x.tsv").write_text("question\tanswer\tlabel\nq\ta\t1\n")
    command = ("data", "import", "tsv", "test=x.tsv", "--output", "c")

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, action, *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )

    # Click ends the line on which the terminal shows ^C.
    assert (done.returncode, done.stderr.strip()) == (130, "aptool: interrupted")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]
