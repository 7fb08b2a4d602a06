"""Seconds and peak memory of the merge of a run's parts, against another checkout of aptool.

    python -m bench.merging [--parts 4000] [--questions 50] [--candidates 20] [--baseline FOLDER]

Each merge runs in a separate process, and the checkouts alternate. A checkout writes the parts in its
format. With ids in order, the questions of a part precede those of the next part; interleaved, each part has
questions of the whole run. If the run files of two merges differ, the benchmark fails.
"""

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.common import benchmark_parser, write_results

ORDERS = ("in order", "interleaved")


def parts_of(folder: Path, parts: int, pairs: int) -> list[Any]:
    """The parts of the run file ``out.run``, of the imported aptool."""
    from aptool.formats.pools import Unit
    from aptool.scoring.parts import Part

    paths = (folder / "out.run.parts" / f"{number:024x}.part" for number in range(parts))
    return [Part(Unit("pools.parquet", number), path, pairs, "bench") for number, path in enumerate(paths)]


def write_parts(folder: Path, parts: int, questions: int, candidates: int, order: str) -> None:
    """Write parts of random scores."""
    import numpy as np
    import polars as pl

    from aptool.scoring.parts import write_part

    generator = np.random.default_rng(0)
    (folder / "out.run.parts").mkdir()
    for number, part in enumerate(parts_of(folder, parts, questions * candidates)):
        rows = range(number * questions, (number + 1) * questions)
        if order == "interleaved":
            rows = range(number, parts * questions, parts)
        frame = pl.DataFrame(
            {
                "question_id": [f"question-{row:09}" for row in rows for _ in range(candidates)],
                "answer_id": [f"answer-{row:09}-{n}" for row in rows for n in range(candidates)],
                "score": generator.random(questions * candidates, dtype=np.float32),
            }
        )
        write_part(part, frame, 0)


def merge_parts(folder: Path, parts: int, questions: int, candidates: int, order: str) -> None:
    """Merge parts; print the cost and the hash of the run."""
    from aptool.scoring import parts as module

    written, output = parts_of(folder, parts, questions * candidates), folder / "out.run"
    begun, cpu = time.perf_counter(), time.process_time()
    if hasattr(module, "merge"):  # the checkout of an earlier version
        module.merge(written, output, lambda: None)
    else:
        from aptool.scoring.merge import merge

        merge(written, output, lambda: None, lambda tasks: [])
    cost = {"seconds": time.perf_counter() - begun, "processor_seconds": time.process_time() - cpu}
    cost["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    with output.open("rb") as file:
        print(json.dumps({**cost, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}))


STEPS = {"write": write_parts, "merge": merge_parts}


def measured(checkout: Path, options: Any, order: str) -> dict[str, Any]:
    """Run one merge with the aptool of a checkout."""
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        arguments = [name, str(options.parts), str(options.questions), str(options.candidates), order]
        for step in STEPS:
            done = subprocess.run(
                [sys.executable, __file__, "--child", step, *arguments],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(checkout)},
            )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run(options: Any) -> dict[str, Any]:
    """Print a line per order and checkout; return the medians."""
    checkouts = {"this": Path(__file__).parents[1]}
    if options.baseline is not None:
        checkouts["baseline"] = options.baseline.resolve()
    rows: dict[str, Any] = {}
    print(f"{options.parts:,} parts of {options.questions * options.candidates:,} pairs")
    for order in ORDERS:
        merges: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
        for _ in range(options.repeats):
            for name, checkout in checkouts.items():
                merges[name].append(measured(checkout, options, order))
        if len({merge["sha256"] for of in merges.values() for merge in of}) > 1:
            raise SystemExit(f"{order}: the run files differ")
        for name, of in merges.items():
            medians = {
                key: statistics.median(merge[key] for merge in of)
                for key in ("seconds", "processor_seconds", "peak_mb")
            }
            rows[f"{order}, {name}"] = medians
            print(
                f"{order:<12} {name:<9} {medians['seconds']:6.2f} s, {medians['processor_seconds']:6.2f} "
                f"processor s, peak {medians['peak_mb']:4.0f} MB"
            )
    return rows


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--child"]:
        step, folder, parts, questions, candidates, order = sys.argv[2:]
        STEPS[step](Path(folder), int(parts), int(questions), int(candidates), order)
        return
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--parts", type=int, default=4000, help="(default 4000)")
    parser.add_argument("--questions", type=int, default=50, help="questions per part (default 50)")
    parser.add_argument("--candidates", type=int, default=20, help="candidates per question (default 20)")
    parser.add_argument("--baseline", type=Path, help="another checkout of aptool")
    parser.add_argument("--folder", type=Path, help="folder of the parts (default: temporary files)")
    options = parser.parse_args()
    write_results(run(options), options)


if __name__ == "__main__":
    main()
