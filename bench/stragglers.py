"""Time of a run on a cluster with one slow worker, with and without re-scoring of its units.

    python -m bench.stragglers [--units 40] [--workers 4] [--seconds 1] [--slowdown 10] [--repeats 3]

Workers sleep for ``--seconds`` per unit; the first worker sleeps ``--slowdown`` times as long. So the
result does not depend on the number of cores. Runs with and without re-scoring alternate.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from aptool.formats.pools import list_units
from aptool.scoring.score import score_files
from aptool.scoring.systems import RandomScorer, RandomScores
from bench.cluster import cluster, sha256
from bench.common import benchmark_parser, print_seconds, write_results


@dataclass(frozen=True)
class SleepingSystem(RandomScores):
    """Random scores after a sleep; the first process to score sleeps ``slowdown`` times as long."""

    folder: Path = Path()
    seconds: float = 0.0
    slowdown: float = 1.0

    @override
    def open(self, units: Any = (), answers: Any = None, device: str | None = None) -> "SleepingScorer":
        return SleepingScorer(self)


class SleepingScorer(RandomScorer):
    """The scorer of ``SleepingSystem``."""

    def __init__(self, system: SleepingSystem) -> None:
        super().__init__(system)
        self._folder, self._seconds, self._slowdown = system.folder, system.seconds, system.slowdown

    @override
    def score(self, inputs: Any, progress: Callable[[int], None] = lambda pairs: None) -> Any:
        time.sleep(self._seconds * (self._slowdown if self._is_slow() else 1))
        return super().score(inputs)

    def _is_slow(self) -> bool:
        try:
            with (self._folder / "slow").open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return (self._folder / "slow").read_text() == str(os.getpid())
        return True


def main() -> None:
    """Print the seconds of the runs."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--units", type=int, default=40, help="row groups (default 40)")
    parser.add_argument("--workers", type=int, default=4, help="worker processes (default 4)")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per unit (default 1)")
    parser.add_argument("--slowdown", type=float, default=10.0, help="factor of the slow worker (default 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_results(measure(Path(name), options), options)


def measure(folder: Path, options: Any) -> dict[str, Any]:
    """Measure runs with and without re-scoring; print and return their seconds."""
    pools = folder / "test.pools.parquet"
    write_pools(pools, options.units)
    seconds: dict[str, list[float]] = {"with re-scoring": [], "without re-scoring": []}
    hashes = set()
    with cluster(folder, options.workers) as address:
        run(folder, pools, address, options, 0)  # warm-up: the first run on a new cluster takes longer
        for _ in range(options.repeats):
            for name, spare in (("with re-scoring", 64), ("without re-scoring", 0)):
                seconds[name].append(run(folder, pools, address, options, spare))
                hashes.add(sha256(folder / "out.run"))
    if len(hashes) != 1:
        raise SystemExit("the run files differ")
    return print_seconds(seconds, options)


def run(folder: Path, pools: Path, address: str, options: Any, spare: int) -> float:
    """Score all units once; return the wall time."""
    from aptool.cluster import ray_data
    from aptool.cluster.connection import connect
    from aptool.cluster.score import ClusterExecutor

    (folder / "slow").unlink(missing_ok=True)
    (folder / "out.run").unlink(missing_ok=True)
    ray_data.MOST_SPARE = spare
    system = SleepingSystem(folder=folder, seconds=options.seconds, slowdown=options.slowdown)
    with connect(address) as connected:
        start = time.monotonic()
        score_files(
            list_units([pools]),
            system,
            folder / "out.run",
            ClusterExecutor(connected, workers=options.workers),
        )
        return time.monotonic() - start


def write_pools(path: Path, units: int) -> None:
    """Write one pool of ten candidates per row group."""
    candidate = pa.struct([("answer_id", pa.string()), ("text", pa.string())])
    schema = pa.schema(
        [("question_id", pa.string()), ("question", pa.string()), ("candidates", pa.list_(candidate))]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for unit in range(units):
            candidates = [
                {"answer_id": f"q{unit}-{number}", "text": f"answer {number}"} for number in range(10)
            ]
            rows = [{"question_id": f"q{unit}", "question": "which one", "candidates": candidates}]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


if __name__ == "__main__":
    main()
