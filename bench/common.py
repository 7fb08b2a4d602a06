"""The command line of a benchmark, and the JSON files of its results."""

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def benchmark_parser(document: str | None, repeats: int | None = None) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring.

    Args:
        document: the docstring.
        repeats: default of ``--repeats``; without it, the parser has neither ``--repeats`` nor ``--output``.
    """
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if repeats is not None:
        text = f"number of repeats (default {repeats})"
        parser.add_argument("--repeats", type=int, default=repeats, help=text)
        parser.add_argument("--output", type=Path, help="JSON file for the results")
        add_record(parser)
    return parser


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add ``--record`` to the parser of a benchmark that calls `write_results`."""
    text = "JSON file for the results with command, version, date and machine (docs/results/NAME.json)"
    parser.add_argument("--record", type=Path, help=text)


def write_results(results: Any, options: argparse.Namespace, output: Path | None = None) -> None:
    """Write results as JSON to ``output`` or ``--output``, and as a published result to ``--record``."""
    output = output or getattr(options, "output", None)
    if output is not None:
        output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if options.record is not None:
        record(results, tables(results), options.record)


def alternate(
    systems: Mapping[str, Callable[[], Any]],
    repeats: int,
    warm_up: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
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


def print_seconds(seconds: Mapping[str, list[float]], options: argparse.Namespace) -> dict[str, Any]:
    """Print median, minimum and maximum of the seconds of each system; return them with the options."""
    for name, values in seconds.items():
        print(f"{name:20} {statistics.median(values):6.1f} s ({min(values):.1f} to {max(values):.1f})")
    return {"options": {key: str(value) for key, value in vars(options).items()}, "seconds": seconds}


def speed_of(seconds: Mapping[str, list[float]], name: str, base: str) -> dict[str, float]:
    """Median, minimum and maximum of the speed of a system as a ratio to another one, over the repeats."""
    speeds = [slow / fast for slow, fast in zip(seconds[base], seconds[name], strict=True)]
    return {"speed": statistics.median(speeds), "speed_min": min(speeds), "speed_max": max(speeds)}


def record(results: Any, tables: dict[str, Any], path: Path, **content: Any) -> None:
    """Write a published result: the values of a benchmark and its tables."""
    import torch

    from bench.record import result_document, write_result

    line = command()
    measured = f"benchmark {line.split()[2]}"
    document = result_document(measured, line, values=results, tables=tables, **content)
    document["machine"]["threads"] = torch.get_num_threads()
    write_result(path, document)


def command() -> str:
    """The command line ``python -m bench.NAME ...`` of this process without ``--output`` and ``--record``."""
    words, skipped = [], False
    for word in sys.argv[1:]:
        if not skipped and word.partition("=")[0] not in ("--output", "--record"):
            words.append(word)
        skipped = not skipped and word in ("--output", "--record")
    module = Path(sys.argv[0]).stem
    return shlex.join(["python", "-m", "bench" if module == "__main__" else f"bench.{module}", *words])


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
