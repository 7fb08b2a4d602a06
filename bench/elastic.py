"""Time of a training on a cluster whose second node comes late, with and without elastic workers.

    python -m bench.elastic [--delay 60] [--epochs 6] [--repeats 3]

The cluster has one node of one core; a second one is added after ``--delay`` seconds. ``--workers 2`` waits
for it, ``--workers 1:2`` starts with one worker and grows. Both train the same epochs of AP-CNN on a
collection of WikiQA's shape, and alternate.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.cluster import OBJECT_STORE, nodes
from bench.common import benchmark_parser, print_seconds, write_results
from bench.synthetic import build

WORKERS: dict[str, int | tuple[int, int]] = {"--workers 2": 2, "--workers 1:2": (1, 2)}


def main() -> None:
    """Print the seconds of the trainings."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--delay", type=float, default=60.0, help="seconds until the node (default 60)")
    parser.add_argument("--epochs", type=int, default=6, help="epochs (default 6)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_results(measure(Path(name), options), options)


def measure(folder: Path, options: Any) -> dict[str, Any]:
    """Measure trainings with fixed and with elastic workers; print and return their seconds."""
    build(folder / "collection", like="wikiqa")
    seconds: dict[str, list[float]] = {name: [] for name in WORKERS}
    with nodes(folder, 1) as cluster:
        for repeat in range(options.repeats):
            for number, (name, workers) in enumerate(WORKERS.items()):
                output = folder / f"model-{repeat}-{number}"
                seconds[name].append(train(cluster, folder / "collection", output, workers, options))
    return print_seconds(seconds, options)


def train(
    cluster: Any, collection: Path, output: Path, workers: int | tuple[int, int], options: Any
) -> float:
    """Train once; add the second node after the delay, and remove it at the end. Return the wall time."""
    import aptool

    start = time.monotonic()
    with ThreadPoolExecutor(1) as pool:  # Ray adds nodes in the main thread only
        training = pool.submit(
            aptool.train,
            collection,
            output=output,
            set={"training.epochs": options.epochs},
            cluster=str(cluster.address),
            workers=workers,
        )
        time.sleep(options.delay)
        node = cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
        training.result()
    seconds = time.monotonic() - start
    cluster.remove_node(node)
    return seconds


if __name__ == "__main__":
    main()
