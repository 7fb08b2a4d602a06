"""``aptool score --cluster`` against ``aptool score`` at equal cores; costs per unit and per run.

    python -m bench.cluster [--pools 18864] [--repeats 3] [--output cluster.json]
    python -m bench.cluster --s3 [...]    the same from and to an S3 server on loopback
    python -m bench.cluster --large [--units 2000]    many units: see bench/large.py

The input has the shape of InsuranceQA's test1: pools of 500 of 24,981 shared answers. The two commands are
timed alternately, each from start to end, on a running cluster with a head node without cores and one-core
nodes. The costs of the stages of a unit are measured on a sixth of the pools, with all cores busy.
``python -m bench.simulation`` reads the results.

With ``--s3``, the input, the model and the run are objects of moto's server, which shares the cores. Its
share of the time of a command is an upper bound of the gain from a faster store. The fixed cost of a command
is measured with two pools.
"""

import hashlib
import logging
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aptool.outputs import upload as upload_file
from aptool.paths import Location, Url, location
from bench.common import benchmark_parser, write_results
from bench.end_to_end import measured, write_input
from bench.object_server import object_server

OBJECT_STORE = 100 << 20  # bytes per node


def main() -> None:
    """Print the results."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument(
        "--pools", type=int, default=18864, help="number of pools of 500 candidates (default 18864)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of 24,981 answers (default 1)")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="(default all)")
    parser.set_defaults(output=Path("cluster.json"))
    parser.add_argument("--s3", action="store_true", help="from and to an S3 server on loopback")
    parser.add_argument("--large", action="store_true", help="the costs of many units")
    parser.add_argument("--units", type=int, default=2000, help="of 5,000 pairs, for --large (default 2000)")
    options = parser.parse_args()
    results: Any
    with tempfile.TemporaryDirectory() as name:
        if options.large:
            from bench.large import measure_large

            results = measure_large(Path(name), options.scale, options.units, options.cores)
        elif options.s3:
            results = measure_on_store(
                Path(name), options.scale, options.pools, options.repeats, options.cores
            )
        else:
            results = measure(Path(name), options.scale, options.pools, options.repeats, options.cores)
    write_results(results, options)


def measure(folder: Path, scale: float, pools: int, repeats: int, cores: int) -> dict[str, Any]:
    """Measure a cluster and one process; print and return the results."""
    large, part, small, many = (folder / name for name in ("large", "part", "small", "many"))
    for subfolder, count in ((large, pools), (part, pools // 6), (small, 2)):
        subfolder.mkdir()
        write_input(subfolder, scale, count)
    many.mkdir()
    units = split(small / "test.pools.parquet", many / "test.pools.parquet", 400)
    with cluster(folder, cores) as address:
        on_cluster = ["--cluster", address, "--workers", str(cores)]
        command(small, cores, on_cluster)  # warm-up: the first command on a new cluster takes longer
        rows: dict[str, list[float]] = {key: [] for key in ("alone", "cluster", "alone0", "cluster0")}
        for _ in range(repeats):
            rows["alone0"].append(command(small, cores, []))
            rows["cluster0"].append(command(small, cores, on_cluster))
            rows["alone"].append(command(large, cores, []))
            expected = sha256(large / "out.run")
            rows["cluster"].append(command(large, cores, on_cluster))
            if sha256(large / "out.run") != expected:
                sys.exit("the run file of the cluster differs from that of one process")
        seconds = {key: statistics.median(values) for key, values in rows.items()}
        for name in ("answers.parquet", "model"):
            (many / name).symlink_to(small / name)
        overhead = unit_overhead(many, units, cores, on_cluster, small)
        unit = unit_overhead(many, units, cores, [], small)
    pairs = 500 * pools
    shape = pq.read_metadata(large / "test.pools.parquet")
    alone = pairs / (seconds["alone"] - seconds["alone0"])
    nodes = pairs / (seconds["cluster"] - seconds["cluster0"])
    fixed = seconds["cluster0"] - seconds["alone0"]
    print(f"{pairs:,} pairs in {shape.num_row_groups} row groups, {cores} cores, medians of {repeats}")
    print(f"    the run files of both: SHA-256 {expected}")
    print(f"    one process: {seconds['alone']:.1f} s, {alone:,.0f} pairs/s after its start")
    print(
        f"    cluster: {seconds['cluster']:.1f} s, {nodes:,.0f} pairs/s after its start: {nodes / alone:.3f}"
    )
    print(
        f"    two pools: {seconds['alone0']:.1f} s and {seconds['cluster0']:.1f} s: {fixed:.1f} s fixed cost"
    )
    print(f"    whole commands: {seconds['alone'] / seconds['cluster']:.3f} of the throughput")
    print(
        f"    each further unit: {1000 * unit:.1f} ms in one process, {1000 * overhead:.1f} ms on the cluster"
    )
    return {
        "pairs": pairs,
        "units": shape.num_row_groups,
        "pools": pools,
        "answers": round(24_981 * scale),
        "cores": cores,
        "seconds": rows,
        "throughput_ratio": nodes / alone,
        "fixed_seconds": fixed,
        "start_seconds": seconds["cluster0"],
        "unit_overhead_seconds": overhead,
        "unit_seconds": unit,
        "input_bytes": (large / "test.pools.parquet").stat().st_size,
        "run_bytes": (large / "out.run").stat().st_size,
        "stages": stages(part, cores),
    }


def measure_on_store(folder: Path, scale: float, pools: int, repeats: int, cores: int) -> dict[str, Any]:
    """Measure a disk and an S3 server with one process, and the server with a cluster."""
    large, small = folder / "large", folder / "small"
    for subfolder, count in ((large, pools), (small, 2)):
        subfolder.mkdir()
        write_input(subfolder, scale, count)
    with object_server(folder) as server, cluster(folder, cores) as address:
        for subfolder in (large, small):
            upload(subfolder, f"{server.bucket}/{subfolder.name}")
        on_cluster = ["--cluster", address, "--workers", str(cores)]
        ways: dict[str, tuple[list[str], str]] = {
            "one process, disk": ([], ""),
            "one process, S3": ([], server.bucket),
            "cluster, S3": (on_cluster, server.bucket),
        }
        rows: dict[str, list[float]] = {way: [] for way in ways}
        starts: dict[str, list[float]] = {way: [] for way in ways}
        shares: dict[str, list[float]] = {way: [] for way, (_, bucket) in ways.items() if bucket}
        hashes = set()
        command(small, cores, on_cluster, f"{server.bucket}/small")  # warm-up
        for _ in range(repeats):
            for way, (more, bucket) in ways.items():
                starts[way].append(command(small, cores, more, f"{bucket}/small" if bucket else "."))
                began = time.time()
                rows[way].append(command(large, cores, more, f"{bucket}/large" if bucket else "."))
                if bucket:
                    requests = server.requests(began, time.time())
                    shares[way].append(requests.seconds / rows[way][-1])
                hashes.add(sha256(location(f"{bucket}/large/out.run") if bucket else large / "out.run"))
            if len(hashes) > 1:
                sys.exit(f"the run files differ: {', '.join(sorted(hashes))}")
    seconds = {way: statistics.median(values) for way, values in rows.items()}
    start = {way: statistics.median(values) for way, values in starts.items()}
    share = {way: statistics.median(values) for way, values in shares.items()}
    first = next(iter(ways))
    print(f"{500 * pools:,} pairs, {cores} cores, medians of {repeats}")
    print(f"    the run files of all: SHA-256 {hashes.pop()}")
    for way in ways:
        ratio = seconds[first] / seconds[way]
        after = (seconds[first] - start[first]) / (seconds[way] - start[way])
        print(f"    {way}: {seconds[way]:.1f} s, of these {start[way]:.1f} s for two pools alone")
        print(f"        {ratio:.3f} of the throughput of {first}, {after:.3f} after the start")
        if way in share:
            print(f"        the store is at work in {share[way]:.0%} of that time")
    last = {"requests": requests.number, "bytes": requests.bytes}
    return {
        "pairs": 500 * pools,
        "cores": cores,
        "seconds": rows,
        "start_seconds": starts,
        "store_share": shares,
        "last_run": last,
    }


def upload(folder: Path, bucket: str) -> None:
    """Copy the input to an object store."""
    files = [folder / "answers.parquet", folder / "test.pools.parquet", *(folder / "model").rglob("*")]
    for file in files:
        if file.is_file():
            upload_file(file, Url(f"{bucket}/{file.relative_to(folder)}"))


def stages(folder: Path, cores: int) -> dict[str, Any]:
    """Core seconds per stage of a single-threaded process, while the other cores run the same process."""
    subfolders = [folder / str(number) for number in range(cores)]
    for subfolder in subfolders:
        subfolder.mkdir()
        for name in ("answers.parquet", "test.pools.parquet", "model"):
            (subfolder / name).symlink_to(folder / name)
    with ThreadPoolExecutor(cores) as pool:
        rows = list(pool.map(measured, subfolders, [1] * cores))
    spent = [row["core_seconds"] for row in rows]
    means = {stage: statistics.mean(stage_seconds[stage] for stage_seconds in spent) for stage in spent[0]}
    shape = pq.read_metadata(folder / "test.pools.parquet")
    return {"pairs": rows[0]["pairs"], "units": shape.num_row_groups, "core_seconds": means}


def command(folder: Path, cores: int, more: list[str], root: str = ".") -> float:
    """Seconds of an ``aptool score`` command on the input in a folder, or at the URL ``root``."""
    run = f"{root}/out.run"
    (folder / run if root == "." else location(run)).unlink(missing_ok=True)
    start = [
        sys.executable,
        "-m",
        "aptool",
        "score",
        f"{root}/test.pools.parquet",
        "--model",
        f"{root}/model",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": str(cores), "RAYON_NUM_THREADS": str(cores)}
    root = str(Path(__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    begun = time.perf_counter()
    ended = subprocess.run(
        [*start, "--output", run, *more], cwd=folder, env=environment, capture_output=True, text=True
    )
    if ended.returncode:
        sys.exit(ended.stderr)
    return time.perf_counter() - begun


def unit_overhead(many: Path, units: int, cores: int, on_cluster: list[str], small: Path) -> float:
    """Fixed seconds per unit, measured with units of one pair."""
    long, short = command(many, cores, on_cluster), command(small, cores, on_cluster)
    return (long - short) / units


def split(source: Path, target: Path, units: int) -> int:
    """Write copies of the first question of a file, each with one candidate in a separate row group."""
    row = pq.read_table(source).slice(0, 1)
    candidates = pa.array([row["candidates"][0].as_py()[:1]], row.schema.field("candidates").type)
    table = row.set_column(
        row.schema.get_field_index("candidates"), row.schema.field("candidates"), [candidates]
    )
    with pq.ParquetWriter(target, table.schema) as writer:
        for number in range(units):
            writer.write_table(table.set_column(0, table.schema.field(0), [[f"q{number}"]]))
    return units


@contextmanager
def cluster(folder: Path, cores: int) -> Iterator[str]:
    """The address of a cluster of one-core nodes (see `nodes`)."""
    with nodes(folder, cores) as started:
        yield str(started.address)


@contextmanager
def nodes(folder: Path, cores: int) -> Iterator[Any]:
    """A cluster of one-core nodes on this machine's loopback interface, with token authentication."""
    home = folder / "home"
    home.mkdir()
    root = str(Path(__file__).parent.parent)  # workers import bench
    os.environ.update(
        HOME=str(home),
        PYTHONPATH=os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(16),
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_USAGE_STATS_ENABLED="0",
    )
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    head = {"num_cpus": 0, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(cores):
            started.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
        yield started
    finally:
        started.shutdown()


def sha256(path: Location) -> str:
    """The SHA-256 hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
