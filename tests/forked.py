"""Functions in processes of their own, forked from one that has imported the large libraries.

A new interpreter imports them for seconds; these processes start at once.
"""

import multiprocessing
import os
import sys
from pathlib import Path
from typing import NamedTuple

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["aptool.training.fit", "aptool.scoring.run", "aptool.cli.main", "warm"])
HERE = str(Path(__file__).parent)
SECONDS = 120


class Ended(NamedTuple):
    """Exit code (a negative signal) and output of a process."""

    code: int
    out: str
    err: str


def start(folder, function, *arguments):
    """Start a function of a module in a process of its own, with the environment of this one; return it.

    Its result is printed. The output is in the files ``out`` and ``err`` of a new ``folder``.
    """
    folder.mkdir()
    environment = dict(os.environ)
    process = SERVER.Process(target=_run, args=(str(folder), environment, function, arguments))
    # The server, which the first process starts, finds ``warm`` there.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (HERE, environment.get("PYTHONPATH"))))
    try:
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return process


def run(folder, function, *arguments):
    """Run a function like ``start``, and return how it ended."""
    process = start(folder, function, *arguments)
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{function.__name__}: no end after {SECONDS} s")
    return Ended(process.exitcode, (folder / "out").read_text(), (folder / "err").read_text())


def python(code):
    """Execute Python code in a process without modules of aptool, of which large libraries are imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "aptool"]:
        del sys.modules[name]
    exec(code, {"__name__": "__main__"})


def _run(folder, environment, function, arguments):
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY), descriptor)
    result = function(*arguments)
    sys.stdout.write("" if result is None else str(result))
