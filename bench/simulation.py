"""What clusters of 2 to 1,000 workers would do: a cost model with measured times, played unit by unit.

    python -m bench.simulation cluster.json [--pairs 1e9] [--page docs/scale.md]

``cluster.json`` comes from ``python -m bench.cluster``. The driver hands out one unit after another; a worker
reads it from the store, scores it, writes its part to the store; the driver merges in the end. Three things
can be in short supply: workers, the driver's time, and the store's bandwidth. Workers may die.
"""

import argparse
import heapq
import json
import math
import random
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

UNIT = 1 << 18  # pairs: the most that a pools file's writer puts into a row group
WORKERS = (2, 8, 32, 128, 512, 1000)
BEGIN, END = "<!-- figures: python -m bench.simulation -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes; what is measured and what is assumed is said in ``measured``.

    Attributes:
        pair: of reading, tokenising, joining and writing, for each pair.
        answer: of encoding an answer, which a worker does once if pools share it.
        unit: of a worker, for each unit, whatever is in it.
        start: from the command to the first unit.
        driver: of the driver, for each unit it hands out and hears of.
        merge: of the driver, for each byte of the run file.
        pair_read: bytes of input for each pair.
        pair_written: bytes of the run file for each pair.
        store: bytes a second that the store moves for all together.
        spread: standard deviation of a unit's time, as a share of it.
    """

    pair: float
    answer: float
    unit: float
    start: float
    driver: float
    merge: float
    pair_read: float
    pair_written: float
    store: float = 1e9
    spread: float = 0.1


class Work(NamedTuple):
    """What is to be scored, on what."""

    pairs: float
    pairs_in_unit: int
    answers: float  # distinct ones, shared by the pools
    workers: int
    deaths: float = 0.0  # of each worker, an hour
    merged_by_driver: bool = True


class Played(NamedTuple):
    """How it went."""

    seconds: float
    efficiency: float  # of the workers: what their work alone would take, over what it took
    driver: float  # share of the time that the driver was busy
    store: float  # share of the time that the store was busy
    merge: float  # share of the time that the merge took
    lost: int  # units begun in vain


def measured(figures: dict[str, Any]) -> Costs:
    """Costs from what ``bench.cluster`` has measured; the store's bandwidth alone is assumed."""
    stages, pairs = figures["stages"], figures["pairs"]
    spent = stages["core_seconds"]
    per_pair = sum(spent.get(stage, 0.0) for stage in ("read", "tokenise", "join", "write")) / stages["pairs"]
    return Costs(
        pair=per_pair,
        answer=spent.get("encode", 0.0) / figures["answers"],
        unit=max(figures["unit_seconds"], 0.0),
        start=figures["start_seconds"],
        driver=max(figures["unit_overhead_seconds"], 1e-4),
        merge=spent["merge"] / stages["pairs"] / figures["run_bytes"] * pairs,
        pair_read=figures["input_bytes"] / pairs,
        pair_written=figures["run_bytes"] / pairs,
    )


def play(costs: Costs, work: Work, seed: int = 0) -> Played:
    """Plays a run through, unit by unit."""
    generator = random.Random(seed)
    units = max(1, round(work.pairs / work.pairs_in_unit))
    pairs = work.pairs / units
    reading, writing = (size * pairs / costs.store for size in (costs.pair_read, costs.pair_written))
    driver = store = costs.start  # when they are free next
    store_busy = 0.0
    done = lost = begun_units = 0
    useful = 0.0
    # When each worker is free next, and the pairs it has scored: the more, the fewer answers are new to it.
    free = [(costs.start, number, 0.0) for number in range(work.workers)]
    last = costs.start
    while done < units:
        now, number, seen = heapq.heappop(free)
        begun_units += 1
        driver = begun = max(driver, now) + costs.driver
        store = max(store, begun) + reading
        store_busy += reading
        computing = costs.unit + costs.pair * pairs + costs.answer * new_answers(work.answers, seen, pairs)
        ready = store + computing * max(0.1, generator.gauss(1.0, costs.spread))
        if generator.random() < 1 - math.exp(-work.deaths * (ready - begun) / 3600):
            lost += 1
            heapq.heappush(free, (generator.uniform(begun, ready) + costs.start, number, 0.0))
            continue
        done += 1
        useful += computing
        store_busy += writing
        last = max(last, ready + writing)
        heapq.heappush(free, (ready + writing, number, seen + pairs))
    # What the store has to move takes it this long at least, in whatever order it is asked.
    last = max(last, costs.start + store_busy)
    merging = 0.0
    if work.merged_by_driver:
        size = costs.pair_written * work.pairs
        merging = max(costs.merge * size, 2 * size / costs.store)
    seconds = last + merging
    return Played(
        seconds,
        useful / work.workers / seconds,
        (begun_units * costs.driver + merging) / seconds,
        store_busy / seconds,
        merging / seconds,
        lost,
    )


def new_answers(answers: float, seen: float, pairs: float) -> float:
    """How many answers a worker meets for the first time; of infinitely many none comes twice."""
    if math.isinf(answers):
        return pairs
    if not answers:
        return 0.0
    return answers * (math.exp(-seen / answers) - math.exp(-(seen + pairs) / answers))


def tables(figures: dict[str, Any], pairs: float) -> str:
    """All tables of the page, as Markdown."""
    costs = measured(figures)
    stages, there = figures["stages"], sorted(figures["seconds"]["cluster"])
    units, cores = figures["units"], figures["cores"]
    same = Work(figures["pairs"], round(figures["pairs"] / units), figures["answers"], cores)
    spent = {name: value / stages["units"] for name, value in stages["core_seconds"].items()}
    each = ", ".join(f"{name} {value:.3f}" for name, value in spent.items())
    lines = [
        f"Measured with {figures['pairs']:,} pairs over {figures['answers']:,} answers, in {units} row "
        f"groups on {cores} cores. Core seconds a unit, all cores at work: {each}. The driver's share of "
        f"a unit: {costs.driver:.4f} s. The start of a command: {costs.start:.1f} s. Read: "
        f"{costs.pair_read:.1f} bytes a pair; written: {costs.pair_written:.1f}.",
        "",
        f"The model gives {play(costs, same).seconds:.1f} s for that very run; measured were "
        f"{statistics.median(there):.1f} s.",
        "",
        f"{pairs:,.0f} pairs over these answers, in row groups of {UNIT:,} pairs:",
        "",
        "| workers | time | workers at work | driver busy | store busy | merge |",
        "|---|---|---|---|---|---|",
    ]
    for workers in WORKERS:
        played = play(costs, Work(pairs, UNIT, figures["answers"], workers))
        lines.append(
            f"| {workers:,} | {clock(played.seconds)} | {played.efficiency:.0%} | {played.driver:.0%} "
            f"| {played.store:.0%} | {played.merge:.0%} |"
        )
    big = Work(pairs, UNIT, figures["answers"], WORKERS[-1])
    rows = [
        ("as above", costs, big),
        ("row groups of 1,024 pairs", costs, big._replace(pairs_in_unit=1 << 10)),
        ("row groups of 65,536 pairs", costs, big._replace(pairs_in_unit=1 << 16)),
        ("parts stay files of their own: no merge", costs, big._replace(merged_by_driver=False)),
        ("scores go through the driver, not to files", returned(costs), big),
        ("a store of 100 MB/s", replace(costs, store=1e8), big),
        ("no answer stands in two pools", costs, big._replace(answers=math.inf)),
        ("each worker dies once an hour", costs, big._replace(deaths=1.0)),
    ]
    lines += ["", f"What moves the limit, with {WORKERS[-1]:,} workers:", ""]
    lines += ["| change | time | workers at work | driver busy | store busy | units lost |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, changed, work in rows:
        played = play(changed, work)
        lines.append(
            f"| {name} | {clock(played.seconds)} | {played.efficiency:.0%} | {played.driver:.0%} "
            f"| {played.store:.0%} | {played.lost} |"
        )
    return "\n".join(lines)


def returned(costs: Costs) -> Costs:
    """If scores went through the driver: it would write, unit by unit, what workers now write."""
    return replace(costs, driver=costs.driver + costs.merge * costs.pair_written * UNIT)


def clock(seconds: float) -> str:
    """A duration in the unit that fits."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def main() -> None:
    """Prints the tables, and puts them into a page if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=Path, help="what `python -m bench.cluster` has written")
    parser.add_argument("--pairs", type=float, default=1e9, help="(default a billion)")
    parser.add_argument("--page", type=Path, help="a page whose figures are replaced")
    options = parser.parse_args()
    text = tables(json.loads(options.figures.read_text(encoding="utf-8")), options.pairs)
    print(text)
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        before, found, rest = page.partition(BEGIN)
        if not found or END not in rest:
            sys.exit(f"{options.page}: expected a line {BEGIN} and a line {END}")
        options.page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
