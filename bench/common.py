"""The common parts of the benchmarks: the command line, times of systems in turn, the recorded result."""

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

Times = tuple[dict[str, list[float]], dict[str, Any]]


def benchmark_parser(
    document: str | None, repeats: int | None = None, *, device: bool = False
) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring.

    Args:
        document: the docstring.
        repeats: default of ``--repeats``; without it, the parser has neither ``--repeats`` nor ``--record``.
        device: whether the parser has ``--device``.
    """
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if repeats is not None:
        text = f"number of repeats (default {repeats})"
        parser.add_argument("--repeats", type=int, default=repeats, help=text)
        text = "JSON file for the results with command, version, date and machine (docs/results/NAME.json)"
        parser.add_argument("--record", type=Path, help=text)
    if device:
        cpu = torch.device("cpu")
        parser.add_argument("--device", type=torch.device, default=cpu, help="cpu or cuda (default cpu)")
    return parser


def setting(options: argparse.Namespace) -> str:
    """What a table was measured with, for the line above it."""
    device = getattr(options, "device", "cpu")
    threads = torch.get_num_threads()
    return f"{device}, {threads} threads, torch {torch.__version__}, medians of {options.repeats}\n"


def record(results: Any, path: Path | None) -> None:
    """Write the values of a benchmark and their tables as a published result, if a file is given."""
    if path is None:
        return
    from bench.record import result_document, write_result  # it needs polars

    line = command()
    measured = f"benchmark {line.split()[2]}"
    document = result_document(measured, line, values=results, tables=tables(results))
    document["machine"]["threads"] = torch.get_num_threads()
    write_result(path, document)


def now(device: torch.device) -> float:
    """Seconds of a clock, when the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def alternate(
    systems: Mapping[str, Callable[[], Any]],
    repeats: int,
    warm_up: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Run systems in turns; return the seconds per repeat after the warm-up, and the last result of each."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    results = {}
    for repeat in range(warm_up + repeats):
        for name, run in systems.items():
            begun = clock()
            results[name] = run()
            if repeat >= warm_up:
                seconds[name].append(clock() - begun)
    return seconds, results


def speed_of(seconds: Mapping[str, list[float]], name: str, base: str) -> dict[str, float]:
    """Median, minimum and maximum of the speed of a system as a ratio to another one, over the repeats."""
    speeds = [slow / fast for slow, fast in zip(seconds[base], seconds[name], strict=True)]
    return {"speed": statistics.median(speeds), "speed_min": min(speeds), "speed_max": max(speeds)}


def command() -> str:
    """The command line ``python -m bench.NAME ...`` of this process without ``--record``."""
    words, skipped = [], False
    for word in sys.argv[1:]:
        if not skipped and word.partition("=")[0] != "--record":
            words.append(word)
        skipped = not skipped and word == "--record"
    return shlex.join(["python", "-m", f"bench.{Path(sys.argv[0]).stem}", *words])


def tables(results: Any, name: str = "results") -> dict[str, Any]:
    """Tables of nested results: one per list of rows, and one of all single values.

    >>> tables([{"system": "mean", "seconds": {"fp32": 1.5}}])["results"]
    {'columns': ['system', 'seconds fp32'], 'left': 1, 'rows': [['mean', 1.5]]}
    """
    if isinstance(results, list):
        rows = [flat(row) for row in results]
    elif results and all(isinstance(value, dict) for value in results.values()):
        rows = [{"": key, **flat(value)} for key, value in results.items()]
    elif any(isinstance(value, list) for value in results.values()):
        parts = {key: value for key, value in results.items() if isinstance(value, list | dict)}
        rest = {key: value for key, value in results.items() if key not in parts}
        within = "" if name == "results" else f"{name} "
        split = [tables(value, f"{within}{key}") for key, value in parts.items() if value]
        whole = [tables(rest, name)] if rest else []
        return {key: table for part in (*whole, *split) for key, table in part.items()}
    else:
        rows = [flat(results)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[row.get(column) for column in columns] for row in rows]
    left = next((i for i, column in enumerate(columns) if not isinstance(rows[0].get(column), str)), 1)
    return {name: {"columns": columns, "left": left, "rows": cells}}


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A row with the keys of nested dictionaries joined; lists become texts."""
    if not isinstance(value, dict):
        return {
            prefix or "value": value if isinstance(value, int | float | str | None) else json.dumps(value)
        }
    row: dict[str, Any] = {}
    for key, entry in value.items():
        row |= flat(entry, f"{prefix} {key}".strip())
    return row
