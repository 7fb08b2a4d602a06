"""Many units: the costs of ``python -m bench.cluster --large``.

Row groups of ten pools of 500 candidates, 5,000 pairs, are scored by one process and on a cluster of one-core
nodes. The constant cost per unit is measured with units of one pair in one file.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from aptool.documents import read_json
from bench import cluster
from bench.end_to_end import PEAK, measured, write_input

POOLS_PER_UNIT = 10
PAIRS_PER_POOL = 500

# Numbers of units of one pair in one file.
FEW, MANY = 100, 1600

POLL_SECONDS = 0.1


class Cost(NamedTuple):
    """The cost of a command on a cluster."""

    seconds: float  # wall time
    driver_seconds: float  # CPU time of the driver
    driver_bytes: int  # its peak memory
    worker_seconds: float  # CPU time that the workers spent on units


def measure_large(folder: Path, scale: float, units: int, cores: int) -> list[dict[str, str]]:
    """Measure runs with many units; print and return rows of a table."""
    large, small = folder / "large", folder / "small"
    for subfolder, pools in ((large, POOLS_PER_UNIT * units), (small, 2)):
        subfolder.mkdir()
        write_input(subfolder, scale, pools)
    _regroup(large / "test.pools.parquet")
    ones = {number: _units_of_one_pair(folder / f"units{number}", small, number) for number in (FEW, MANY)}
    alone = measured(large, cores)
    expected = cluster.sha256(large / "out.run")
    with cluster.cluster(folder, cores) as address:
        on_cluster = ["--cluster", address, "--workers", str(cores)]
        _cost(small, on_cluster)  # warm-up
        start, whole = _cost(small, on_cluster), _cost(large, on_cluster)
        if cluster.sha256(large / "out.run") != expected:
            sys.exit("the run file of the cluster differs from that of one process")
        per_unit = {number: _cost(subfolder, on_cluster) for number, subfolder in ones.items()}
    one_pair = {
        f"{name}, {number} units": value
        for number, cost in per_unit.items()
        for name, value in (
            ("worker, core ms per unit", 1000 * cost.worker_seconds / number),
            ("driver, core ms per unit", _driver_milliseconds(cost, start, number)),
        )
    }
    further = (per_unit[MANY].driver_seconds - per_unit[FEW].driver_seconds) / (MANY - FEW)
    one_pair["driver, core ms per further unit"] = 1000 * further
    results: dict[str, dict[str, float]] = {
        "input": {"pairs": PAIRS_PER_POOL * POOLS_PER_UNIT * units, "units": units, "workers": cores},
        "one process": {
            "wall, s": alone["seconds"],
            "peak memory, MB": alone[PEAK] / 1e6,
            **{f"{stage}, core s": seconds for stage, seconds in alone["core_seconds"].items()},
            "all, core s": alone["process_core_seconds"],
        },
        "cluster": {
            "wall, s": whole.seconds,
            "wall of two pools, s": start.seconds,
            "workers, core s": whole.worker_seconds,
            "driver, core s": whole.driver_seconds,
            "driver, peak memory, MB": whole.driver_bytes / 1e6,
            "driver, core ms per unit": _driver_milliseconds(whole, start, units),
        },
        "units of one pair": one_pair,
    }
    rows = [
        {"quantity": f"{name}: {key}", "value": f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"}
        for name, values in results.items()
        for key, value in values.items()
    ]
    for row in rows:
        print(f"{row['quantity']:60} {row['value']:>12}")
    return rows


def _driver_milliseconds(cost: Cost, start: Cost, units: int) -> float:
    """CPU milliseconds of the driver per unit, without those of a command with one unit."""
    return 1000 * (cost.driver_seconds - start.driver_seconds) / units


def _regroup(path: Path) -> None:
    """Write a pools file again with row groups of ten pools."""
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=POOLS_PER_UNIT, compression="zstd", write_page_checksum=True)


def _units_of_one_pair(folder: Path, small: Path, number: int) -> Path:
    """Write a folder with a number of units of one pair."""
    folder.mkdir()
    cluster.split(small / "test.pools.parquet", folder / "test.pools.parquet", number)
    for name in ("answers.parquet", "model"):
        (folder / name).symlink_to(small / name)
    return folder


def _cost(folder: Path, on_cluster: list[str]) -> Cost:
    """Run ``aptool score`` on the input of a folder."""
    (folder / "out.run").unlink(missing_ok=True)
    arguments = [
        "score",
        "test.pools.parquet",
        "--model",
        "model",
        "--output",
        "out.run",
        "--tag",
        "bench",
        *on_cluster,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun = os.times().elapsed
    process = subprocess.Popen(
        [sys.executable, "-m", "aptool", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak, ended = [0], threading.Event()

    def watch() -> None:
        # The kernel's maximum for a child process includes the memory of its parent.
        while not ended.wait(POLL_SECONDS):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak[0] = max([peak[0], *(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))])

    watching = threading.Thread(target=watch)
    watching.start()
    assert process.stderr is not None
    errors = process.stderr.read()  # until the command ends; it is waited for after the watch
    ended.set()
    watching.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(errors)
    workers: float = read_json(folder / "out.run.json")["work"]["core_seconds"]
    return Cost(os.times().elapsed - begun, usage.ru_utime + usage.ru_stime, peak[0] << 10, workers)
