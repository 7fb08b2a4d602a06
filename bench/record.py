"""Write the results of a matrix as data: ``python -m bench.record RUNS FILE``.

RUNS is the output folder of ``aptool matrix``. FILE is a JSON document of ``schemas/result.schema.json``: the
figures with their command, version, date, machine, seeds and fingerprints. It replaces a file only if that
file is such a document.

The version, the date and the machine are those of this process: run it where and when the matrix has run.
"""

import datetime
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aptool import environment
from aptool.documents import read_json
from aptool.errors import InputError
from aptool.formats.atomic import atomic_file
from aptool.formats.location import PathOrUrl, location
from aptool.formats.schemas import check_document
from aptool.version import __version__
from bench.common import benchmark_parser

FORMAT = 1
SCHEMA = "result"


def main() -> None:
    """Write the results of a matrix."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("runs", type=Path, help="output folder of `aptool matrix`")
    parser.add_argument("file", type=Path, help="JSON file for the results, such as docs/results/NAME.json")
    options = parser.parse_args()
    write_result(options.file, matrix_document(options.runs))


def result_document(measured: str, command: str, **content: Any) -> dict[str, Any]:
    """The document of a result that this process measured today.

    Args:
        measured: subject of the measurement.
        command: the command line.
        content: further entries of the schema.
    """
    machine = environment.hardware()
    gpus = {"gpu": machine["gpus"][0]["name"]} if machine["gpus"] else {}
    return {
        "format": FORMAT,
        "measured": measured,
        "command": command,
        "version": __version__,
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
        "machine": {
            "processor": machine["cpu"]["model"],
            "cores": environment.available_cores(),
            "torch": environment.version_of("torch"),
            **gpus,
        },
        "seeds": [],
        "collections": {},
        "fingerprint": None,
        **content,
    }


def matrix_document(runs: PathOrUrl) -> dict[str, Any]:
    """The document of a matrix: the values of every seed, and the paired tests over folds.

    Args:
        runs: the output folder of ``aptool matrix``.
    """
    from aptool.config import preset_names
    from bench.fingerprint import numeric_fingerprint

    table: dict[str, Any] = read_json(location(runs) / "table.json")
    results = table["results"]
    collections = {
        result["published"]: table["collections"][result["collection"]]["fingerprint"] for result in results
    }
    presets = {result["preset"] for result in results} & set(preset_names())
    return result_document(
        f"{len({result['system'] for result in results})} systems on {', '.join(collections)}",
        table["command"],
        seeds=sorted({result["seed"] for result in results}),
        collections=collections,
        fingerprint={preset: numeric_fingerprint(preset) for preset in sorted(presets)},
        systems=[_system(line, results) for line in table["lines"]],
        **({"pairs": [_pair(test) for test in table["paired"]]} if table["paired"] else {}),
    )


def write_result(path: PathOrUrl, document: Mapping[str, Any]) -> None:
    """Check and write the document of a result; a file that is not a result is not replaced."""
    check_document(SCHEMA, document, path)
    if location(path).exists():
        check_document(SCHEMA, read_json(path), path)
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_result(path: PathOrUrl) -> dict[str, Any]:
    """Read and check the document of a result."""
    document: dict[str, Any] = read_json(path)
    check_document(SCHEMA, document, path)
    for name, table in document.get("tables", {}).items():
        for number, row in enumerate(table["rows"]):
            if len(row) != len(table["columns"]):
                expected = f"{len(table['columns'])} cells"
                raise InputError(path, position=f"tables/{name}/rows/{number}", value=row, expected=expected)
    return document


def _system(line: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table with the preset and the value of each seed."""
    of_system = [
        result
        for result in results
        if (result["collection"], result["system"]) == (line["collection"], line["system"])
    ]
    values = {measure: [result["measures"][measure] for result in of_system] for measure in line["means"]}
    return {**line, "preset": of_system[0]["preset"], "values": values}


def _pair(test: dict[str, Any]) -> dict[str, Any]:
    paired = test["paired"]
    return {
        **{name: test[name] for name in ("collection", "system", "other", "measure", "holm")},
        "difference": paired["difference"],
        "low": paired["interval"]["low"],
        "high": paired["interval"]["high"],
        "p": paired["permutation"]["p"],
    }


def _commit() -> str | None:
    """The commit of the sources, marked ``-dirty`` if files have changed; None outside a git checkout."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    main()
