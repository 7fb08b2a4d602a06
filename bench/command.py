"""Time of an ``aptool score`` process for 1,000 pairs, of refusals, and of the imports.

    python -m bench.command [--repeats 5] [--output command.json]

The command alternates with processes that only start Python, only import torch, only print a help text, or
refuse wrong pools, a folder without a model, or a table of experiments with a wrong preset.

Processor seconds include all threads and the kernel. Imports are measured in one more run. The time of a
package is the sum of its modules, without the other packages that they import.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.common import benchmark_parser, write_results
from bench.end_to_end import write_input

POOLS = 2  # of 500 pairs
TABLE = """
[collections.c]
path = "c"
[systems.s]
preset = "nowhere.toml"
[[rows]]
collection = "c"
systems = ["s"]
"""
PACKAGES = 8


def commands(folder: Path) -> dict[str, list[str]]:
    """Arguments of Python for each timed process."""
    score = ["score", str(folder / "test.pools.parquet"), "--answers", str(folder / "answers.parquet")]
    score += ["--model", str(folder / "model"), "--output", str(folder / "out.run")]
    output = ["--output", str(folder / "x")]
    table = folder / "table.toml"
    table.write_text(TABLE, encoding="utf-8")
    return {
        "python": ["-c", "pass"],
        "import torch": ["-c", "import torch"],
        "aptool --help": ["-m", "aptool", "--help"],
        "refusal: pools": ["-m", "aptool", "score", str(folder / "nowhere"), "--model", "bm25", *output],
        "refusal: model": ["-m", "aptool", *score[:2], "--model", str(folder), *output],
        "refusal: table": ["-m", "aptool", "matrix", str(table), *output],
        "aptool score": ["-m", "aptool", *score],
    }


def timed(arguments: list[str], code: int = 0) -> tuple[float, float]:
    """Seconds and processor seconds of a process with this exit code."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True)
    if done.returncode != code:
        raise RuntimeError(done.stderr.decode())
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imports(arguments: list[str]) -> dict[str, float]:
    """Import seconds per package, without the other packages that it imports, in descending order."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], check=True, capture_output=True, text=True
    )
    spent: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        if line.startswith("import time:"):  # self | cumulative | name
            alone, _, name = line.removeprefix("import time:").split("|")
            if alone.strip().isdigit():
                spent[name.strip().partition(".")[0]] += int(alone)
    return {name: microseconds / 1e6 for name, microseconds in spent.most_common(PACKAGES)}


def run(repeats: int) -> dict[str, Any]:
    """Print a line per process and the imports; return the results."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_input(folder, 0.02, POOLS)
        made = commands(folder)
        measured: dict[str, list[tuple[float, float]]] = {kind: [] for kind in made}
        for _ in range(repeats):
            for kind, arguments in made.items():
                measured[kind].append(timed(arguments, code=int(kind.startswith("refusal"))))
        packages = imports(made["aptool score"])
    print(f"{500 * POOLS:,} pairs, {os.cpu_count()} cores, medians of {repeats}")
    print("process          seconds   processor seconds")
    rows = {}
    for kind, both in measured.items():
        seconds, processor = (statistics.median(values) for values in zip(*both, strict=True))
        rows[kind] = {"seconds": seconds, "processor_seconds": processor}
        print(f"{kind:<14} {seconds:>9.2f} {processor:>19.2f}")
    print("imports: " + ", ".join(f"{package} {seconds:.2f} s" for package, seconds in packages.items()))
    return {"processes": rows, "imports": packages}


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 5)
    options = parser.parse_args()
    write_results(run(options.repeats), options)


if __name__ == "__main__":
    main()
