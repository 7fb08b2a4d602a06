"""Results as data: figures with their command, version, date, machine, seeds and fingerprints.

A result is a JSON document of ``schemas/result.schema.json``.
"""

import datetime
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aptool import environment
from aptool.documents import read_json
from aptool.errors import InputError
from aptool.experiments.matrix import ExperimentMatrix
from aptool.experiments.table import Summary, SystemPair
from aptool.experiments.trial import Result
from aptool.formats.atomic import atomic_file
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.schemas import check_document
from aptool.version import __version__

FORMAT = 1
SCHEMA = "result"


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


def matrix_document(
    command: str,
    plan: ExperimentMatrix,
    results: Sequence[Result],
    summaries: Sequence[Summary],
    tests: Sequence[SystemPair],
) -> dict[str, Any]:
    """The document of a matrix: the values of every seed, and the paired tests over folds.

    Args:
        command: the command line.
        plan: the matrix.
        results: its results.
        summaries: summaries of the results.
        tests: the paired tests.
    """
    from aptool.config import preset_names
    from aptool.experiments.fingerprint import numeric_fingerprint

    presets = {result.preset for result in results} & set(preset_names())
    folders = {result.published: result.folder for result in results}
    return result_document(
        f"{len({result.system for result in results})} systems on {', '.join(folders)}",
        command,
        seeds=sorted({result.seed for result in results}),
        collections={name: CollectionFiles(path).fingerprint for name, path in folders.items()},
        fingerprint={preset: numeric_fingerprint(preset) for preset in sorted(map(str, presets))},
        systems=[_system(summary, plan, results) for summary in summaries],
        **({"pairs": [_pair(test) for test in tests]} if tests else {}),
    )


def check_result_output(path: PathOrUrl) -> None:
    """Raise if ``path`` is a file that is not a result; a result is replaced, whoever wrote it."""
    if location(path).exists():
        check_document(SCHEMA, read_json(path), path)


def write_result(path: PathOrUrl, document: Mapping[str, Any]) -> Location:
    """Check and write the document of a result; a file that is not a result is not replaced."""
    check_document(SCHEMA, document, path)
    check_result_output(path)
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return location(path)


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


def _system(summary: Summary, plan: ExperimentMatrix, results: Sequence[Result]) -> dict[str, Any]:
    of_seeds = [
        result.measures
        for result in results
        if (result.collection, result.system) == (summary.collection, summary.system)
    ]
    values = {measure: [seed[measure] for seed in of_seeds] for measure in summary.means}
    return {**summary._asdict(), "preset": plan.systems[summary.system].preset, "values": values}


def _pair(test: SystemPair) -> dict[str, Any]:
    paired = test.paired
    return {
        **{name: getattr(test, name) for name in ("collection", "system", "other", "measure", "holm")},
        "difference": paired.difference,
        "low": paired.interval.low,
        "high": paired.interval.high,
        "p": paired.permutation.p,
    }


def _commit() -> str | None:
    """The commit of the sources, marked ``-dirty`` if files have changed; None outside a git checkout."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
