"""A corpus of a million passages is streamed: the memory of an import does not grow with it."""

import json
import subprocess
import sys

import pytest

QUESTIONS = 50

# The peak of getrusage would include the memory of the process that starts this one.
MEASURED = """
import sys
from aptool.cli.main import cli
cli.main(sys.argv[1:], standalone_mode=False)
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


@pytest.mark.parametrize("passages", [50_000, pytest.param(1_000_000, marks=pytest.mark.large)])
def test_passages_take_less_than_two_gigabytes(tmp_path, passages):
    text = "the answer to that question is a matter of some debate among those who know"
    with (tmp_path / "collection.tsv").open("w") as file:
        file.writelines(f"{number}\tpassage {number} {text}\n" for number in range(passages))
    step = passages // 1000
    ranked = [(q, step * rank + q) for q in range(QUESTIONS) for rank in range(1000)]
    (tmp_path / "queries.tsv").write_text("".join(f"q{q}\twhat is {q}\n" for q in range(QUESTIONS)))
    (tmp_path / "qrels.tsv").write_text("".join(f"q{q}\t0\t{q}\t1\n" for q in range(QUESTIONS)))
    with (tmp_path / "first.run").open("w") as file:
        file.writelines(f"q{q} Q0 {d} {row % 1000 + 1} {-row} x\n" for row, (q, d) in enumerate(ranked))
    command = ["data", "import", "retrieval", "--corpus", "collection.tsv", "--queries", "queries.tsv"]
    command += ["--qrels", "dev=qrels.tsv", "--run", "dev=first.run", "--depth", "1000", "--output", "out"]

    finished = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )

    assert finished.returncode == 0, finished.stderr
    manifest = json.loads((tmp_path / "out" / "collection.json").read_text())
    assert manifest["splits"]["dev"] == {"questions": QUESTIONS, "candidates": 50_000, "positives": QUESTIONS}
    assert int(finished.stdout.splitlines()[-1]) < 2 << 20  # KiB
