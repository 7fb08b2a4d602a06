"""``aptool data check bad good bad`` on a loaded machine: every run must end with exit code 1.

    python -m bench.check_under_load [--runs 200] [--busy 2]

The process is short, and so shows what a longer one hides: threads of a library that still hold a Python
object when the interpreter ends. Arrow's threads did while they read Python file objects, and 2 of 20 runs
aborted; since Arrow reads local files by itself, 200 of 200 end as they should.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from aptool.formats.collection import CollectionWriter, LabelledPool

QUESTIONS, CANDIDATES = 2_000, 50


def make_files(folder: Path) -> tuple[Path, Path]:
    """A pools file that is valid, and one that is cut in its second half."""
    texts = [f"answer {number} " * 20 for number in range(CANDIDATES)]
    with CollectionWriter(folder / "made", name="made", source="made up") as writer:
        names = [f"a{number}" for number in range(CANDIDATES)]
        writer.add_split(
            "test",
            (
                LabelledPool(f"q{number}", f"question {number}", names, texts, {"a0": 1})
                for number in range(QUESTIONS)
            ),
        )
    good, bad = folder / "made" / "test.pools.parquet", folder / "bad.pools.parquet"
    data = bytearray(good.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = bytes(min(4096, len(data) - middle))
    bad.write_bytes(data)
    return good, bad


def main() -> None:
    """Runs the check again and again and counts its exit codes."""
    parser = argparse.ArgumentParser(description="Exit codes of `aptool data check` on a loaded machine.")
    parser.add_argument("--runs", type=int, default=200, help="Number of runs.")
    parser.add_argument("--busy", type=int, default=2, help="Number of busy loops beside them.")
    options = parser.parse_args()
    codes: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        good, bad = make_files(Path(folder))
        for _ in range(options.busy):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        command = [sys.executable, "-m", "aptool", "data", "check", str(bad), str(good), str(bad)]
        for _ in range(options.runs):
            codes[subprocess.run(command, capture_output=True, check=False).returncode] += 1
    for code, runs in sorted(codes.items()):
        print(f"exit code {code}: {runs} of {options.runs} runs")
    sys.exit(set(codes) != {1})


if __name__ == "__main__":
    main()
