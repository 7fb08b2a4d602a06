"""Ctrl-C while a command loads its modules: one line, exit code 130, whatever a library makes of it."""

import subprocess
import sys

import pytest

# Runs a command, and interrupts it when it begins to load a module; then does what that module may do.
PROGRAM = """
import os, signal, sys
from aptool.__main__ import main

module, happens, *arguments = sys.argv[1:]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            exec(happens)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Holding:
    def __del__(self):
        interrupt()

sys.meta_path.insert(0, Interrupting())
sys.argv = ["aptool", *arguments]
main()
"""
PLAIN = "interrupt()"
# What compiled modules do with an exception of a module that they import.
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
IGNORED = "held = Holding(); del held"


@pytest.mark.parametrize(
    ("module", "happens"),
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
def test_one_line_from_the_first_import_on(module, happens, tmp_path):
    (tmp_path / "x.tsv").write_text("question\tanswer\tlabel\nq\ta\t1\n")
    asked = ("data", "import", "tsv", "test=x.tsv", "--output", "c")

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, happens, *asked],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )

    # Click ends the line on which the terminal shows ^C.
    assert (done.returncode, done.stderr.strip()) == (130, "aptool: interrupted")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]
