"""Time and memory to import a run with its corpus of TSV lines.

    python -m bench.importing [--passages 1000000] [--queries 1000] [--depth 100]

Passages have about 55 words, drawn from 200,000 by Zipf's law; a query has six words of one passage.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.common import benchmark_parser

_VOCABULARY = 200_000
_WORDS = 55
_CHUNK = 10_000

_PROGRAM = """
import resource, sys
from aptool.cli.main import cli
cli.main(sys.argv[1:], standalone_mode=False)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_maxrss * 1024, used.ru_utime + used.ru_stime)
"""


def write_files(folder: Path, passages: int, queries: int, depth: int) -> None:
    """Write collection.tsv, queries.tsv, qrels.tsv and a run of random passages with the relevant one."""
    draw = np.random.default_rng(0)
    share = 1 / np.arange(1, _VOCABULARY + 1)
    below = np.cumsum(share / share.sum())
    names = np.array([f"w{number}" for number in range(_VOCABULARY)], dtype=object)
    relevant = set(draw.choice(passages, queries, replace=False).tolist())
    with (
        (folder / "collection.tsv").open("w") as collection,
        (folder / "queries.tsv").open("w") as questions,
        (folder / "qrels.tsv").open("w") as qrels,
        (folder / "first.run").open("w") as run,
    ):
        for start in range(0, passages, _CHUNK):
            lengths = draw.poisson(_WORDS, min(_CHUNK, passages - start)) + 1
            words = names[np.searchsorted(below, draw.random(lengths.sum())).clip(max=_VOCABULARY - 1)]
            for number, text in enumerate(np.split(words, np.cumsum(lengths)[:-1]), start):
                collection.write(f"{number}\t{' '.join(text)}\n")
                if number in relevant:
                    questions.write(f"q{number}\t{' '.join(draw.choice(text, 6))}\n")
                    qrels.write(f"q{number}\t0\t{number}\t1\n")
                    ranked = draw.choice(passages, depth, replace=False)
                    ranked[0] = number if number not in ranked else ranked[0]
                    for rank, document in enumerate(ranked, 1):
                        run.write(f"q{number} Q0 {document} {rank} {depth - rank} random\n")


def main() -> None:
    """Print the results."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000, help="(default 1000000)")
    parser.add_argument("--queries", type=int, default=1000, help="(default 1000)")
    parser.add_argument("--depth", type=int, default=100, help="candidates per query (default 100)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, options.passages, options.queries, options.depth)
        command = ["data", "import", "retrieval", "--corpus", "collection.tsv", "--queries", "queries.tsv"]
        command += ["--qrels", "dev=qrels.tsv", "--run", "dev=first.run", "--depth", str(options.depth)]
        command += ["--output", "out"]
        begun = time.perf_counter()
        finished = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        seconds = time.perf_counter() - begun
        peak, core_seconds = map(float, finished.stdout.splitlines()[-1].split())
        counts = json.loads((folder / "out" / "collection.json").read_text())["splits"]["dev"]
    print(
        f"{options.passages:,} passages, {options.queries:,} queries, {counts['candidates']:,} candidates: "
        f"{seconds:.0f} s, {core_seconds:.0f} core seconds, {peak / 2**20:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
