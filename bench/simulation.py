"""A simulation of scoring on clusters of 2 to 1,000 workers, unit by unit, with measured costs.

    python -m bench.simulation cluster.json [--pairs 1e9] [--record docs/results/scale.json]

``python -m bench.cluster`` writes ``cluster.json``. The driver hands out one unit after another; a worker
reads it from storage, scores it and writes its part to storage; the driver merges the parts at the end. The
bottleneck can be the workers, the driver or the bandwidth of the storage. Workers may fail.
"""

import heapq
import json
import math
import random
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from aptool.reporting.html import markdown_table
from bench.common import add_record, benchmark_parser, record

UNIT = 1 << 18  # maximum number of pairs per row group
WORKERS = (2, 8, 32, 128, 512, 1000)


@dataclass(frozen=True)
class Costs:
    """Costs in seconds and bytes. ``measured`` reads measured costs; bandwidth and spread are assumed.

    Attributes:
        pair: seconds per pair to read, tokenize, score and write.
        answer: seconds to encode an answer, once per worker if pools share it.
        unit: fixed seconds per unit on a worker.
        start: seconds from the start of the command to the first unit.
        driver: seconds per unit on the driver.
        merge: seconds per byte of the run file in the merge.
        pair_read: bytes of input per pair.
        pair_written: bytes of the run file per pair.
        storage: bandwidth of the storage in bytes per second, shared by the workers and the driver.
        spread: relative standard deviation of the time of a unit.
    """

    pair: float
    answer: float
    unit: float
    start: float
    driver: float
    merge: float
    pair_read: float
    pair_written: float
    storage: float = 1e9
    spread: float = 0.1


class Scenario(NamedTuple):
    """The size of a run and of its cluster."""

    pairs: float
    pairs_in_unit: int
    answers: float  # distinct answers, shared by the pools
    workers: int
    failures: float = 0.0  # per worker and hour
    merged_by_driver: bool = True


class Simulated(NamedTuple):
    """The result of a simulation."""

    seconds: float
    efficiency: float  # share of the workers' time spent on units that were completed
    driver: float  # share of the time that the driver was busy
    storage: float  # share of the time that the storage was busy
    merge: float  # share of the time that the merge took
    lost: int  # units that were lost with their worker


def measured(measurements: dict[str, Any]) -> Costs:
    """Read costs from the results of ``bench.cluster``."""
    stages, pairs = measurements["stages"], measurements["pairs"]
    spent = stages["core_seconds"]
    per_pair = sum(spent[stage] for stage in ("read", "tokenize", "score", "write")) / stages["pairs"]
    return Costs(
        pair=per_pair,
        answer=spent["encode"] / measurements["answers"],
        unit=max(measurements["unit_seconds"], 0.0),
        start=measurements["start_seconds"],
        driver=max(measurements["unit_overhead_seconds"], 1e-4),
        merge=spent["merge"] / stages["pairs"] / measurements["run_bytes"] * pairs,
        pair_read=measurements["input_bytes"] / pairs,
        pair_written=measurements["run_bytes"] / pairs,
    )


def simulate(costs: Costs, scenario: Scenario, seed: int = 0) -> Simulated:
    """Simulate a run, unit by unit."""
    generator = random.Random(seed)
    units = max(1, round(scenario.pairs / scenario.pairs_in_unit))
    pairs = scenario.pairs / units
    reading, writing = (size * pairs / costs.storage for size in (costs.pair_read, costs.pair_written))
    driver = storage = costs.start  # when each is free next
    storage_busy = 0.0
    done = lost = started_units = 0
    useful = 0.0
    # When each worker is free next, and the pairs it has scored, which decide how many answers are new to it.
    free = [(costs.start, number, 0.0) for number in range(scenario.workers)]
    last = costs.start
    while done < units:
        now, number, seen = heapq.heappop(free)
        started_units += 1
        driver = started = max(driver, now) + costs.driver
        storage = max(storage, started) + reading
        storage_busy += reading
        computing = (
            costs.unit + costs.pair * pairs + costs.answer * new_answers(scenario.answers, seen, pairs)
        )
        ready = storage + computing * max(0.1, generator.gauss(1.0, costs.spread))
        if generator.random() < 1 - math.exp(-scenario.failures * (ready - started) / 3600):
            lost += 1
            heapq.heappush(free, (generator.uniform(started, ready) + costs.start, number, 0.0))
            continue
        done += 1
        useful += computing
        storage_busy += writing
        last = max(last, ready + writing)
        heapq.heappush(free, (ready + writing, number, seen + pairs))
    # A lower bound: the storage transfers all bytes.
    last = max(last, costs.start + storage_busy)
    merging = 0.0
    if scenario.merged_by_driver:
        size = costs.pair_written * scenario.pairs
        merging = max(costs.merge * size, 2 * size / costs.storage)
    seconds = last + merging
    return Simulated(
        seconds,
        useful / scenario.workers / seconds,
        (started_units * costs.driver + merging) / seconds,
        storage_busy / seconds,
        merging / seconds,
        lost,
    )


def new_answers(answers: float, seen: float, pairs: float) -> float:
    """Expected number of answers that a worker has not encoded yet."""
    if math.isinf(answers):
        return pairs
    if not answers:
        return 0.0
    return answers * (math.exp(-seen / answers) - math.exp(-(seen + pairs) / answers))


def tables(measurements: dict[str, Any], pairs: float) -> dict[str, dict[str, Any]]:
    """Tables of the measured costs, of the number of workers, and of single changes with 1,000 workers."""
    costs = measured(measurements)
    stages, seconds = measurements["stages"], sorted(measurements["seconds"]["cluster"])
    units, cores = measurements["units"], measurements["cores"]
    same = Scenario(
        measurements["pairs"], round(measurements["pairs"] / units), measurements["answers"], cores
    )
    spent = {
        f"{name}, core s per unit": value / stages["units"] for name, value in stages["core_seconds"].items()
    }
    rows: list[list[Any]] = [
        ["pairs", f"{measurements['pairs']:,}"],
        ["answers", f"{measurements['answers']:,}"],
        ["row groups", f"{units}"],
        *([name, f"{value:.3f}"] for name, value in spent.items()),
        ["driver, s per unit", f"{costs.driver:.4f}"],
        ["start of a command, s", f"{costs.start:.1f}"],
        ["bytes read per pair", f"{costs.pair_read:.1f}"],
        ["bytes written per pair", f"{costs.pair_written:.1f}"],
        ["this run measured, s", f"{statistics.median(seconds):.1f}"],
        ["this run simulated, s", f"{simulate(costs, same).seconds:.1f}"],
    ]
    made = {"measured": {"columns": ["", "value"], "rows": rows}}
    rows = []
    for workers in WORKERS:
        result = simulate(costs, Scenario(pairs, UNIT, measurements["answers"], workers))
        rows.append(
            [
                *(f"{workers:,}", clock(result.seconds), f"{result.efficiency:.0%}"),
                *(f"{share:.0%}" for share in (result.driver, result.storage, result.merge)),
            ]
        )
    columns = ["workers", "time", "efficiency", "driver busy", "storage busy", "merge"]
    made["workers"] = {"columns": columns, "rows": rows}
    big = Scenario(pairs, UNIT, measurements["answers"], WORKERS[-1])
    changes = [
        ("none", costs, big),
        ("row groups of 1,024 pairs", costs, big._replace(pairs_in_unit=1 << 10)),
        ("row groups of 65,536 pairs", costs, big._replace(pairs_in_unit=1 << 16)),
        ("no merge: parts remain separate files", costs, big._replace(merged_by_driver=False)),
        ("scores are returned to the driver", returned(costs), big),
        ("storage of 100 MB/s", replace(costs, storage=1e8), big),
        ("no shared answers", costs, big._replace(answers=math.inf)),
        ("every worker fails once an hour", costs, big._replace(failures=1.0)),
    ]
    rows = []
    for name, changed, scenario in changes:
        result = simulate(changed, scenario)
        shares = (f"{share:.0%}" for share in (result.efficiency, result.driver, result.storage))
        rows.append([name, clock(result.seconds), *shares, f"{result.lost}"])
    columns = ["change", "time", "efficiency", "driver busy", "storage busy", "units lost"]
    made["changes"] = {"columns": columns, "rows": rows}
    return made


def returned(costs: Costs) -> Costs:
    """Costs if workers returned scores to the driver, and the driver wrote them."""
    return replace(costs, driver=costs.driver + costs.merge * costs.pair_written * UNIT)


def clock(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("figures", type=Path, help="output of `python -m bench.cluster`")
    parser.add_argument("--pairs", type=float, default=1e9, help="number of pairs (default 1e9)")
    add_record(parser)
    options = parser.parse_args()
    measurements = json.loads(options.figures.read_text(encoding="utf-8"))
    made = tables(measurements, options.pairs)
    for name, table in made.items():
        print(f"\n{name}\n\n{markdown_table([table['columns'], *table['rows']])}")
    if options.record is not None:
        record(measurements, made, options.record)


if __name__ == "__main__":
    main()
