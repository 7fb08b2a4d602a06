"""A table of experiments as a TOML file: collections, systems, and rows that pair them with seeds."""

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any, NamedTuple

from aptool.errors import InputError, UsageError
from aptool.evaluation.measures import measure_names
from aptool.formats.schemas import check_document

MEASURES = ("map", "recip_rank", "P_1")
SHOWN = {"map": "MAP", "recip_rank": "MRR", "P_1": "P@1"}


class Source(NamedTuple):
    """A split of a collection of the table, as its results are called."""

    name: str  # that of the collection, and of the split where several are reported
    folder: str  # the collection's own name: what is trained on it is shared by its splits
    path: Path
    build: str | None
    limit: int | None
    split: str
    optional: bool  # left out where the collection does not have it


class SystemSpec(NamedTuple):
    """A system of the table; exactly one of ``baseline``, ``preset`` and ``fuse`` is set."""

    name: str
    baseline: str | None
    preset: str | None
    overrides: tuple[str, ...]
    fuse: tuple[str, ...]


class Row(NamedTuple):
    """One line of the result: a system on a collection, over seeds."""

    source: Source
    spec: SystemSpec
    seeds: tuple[int, ...]


class Matrix(NamedTuple):
    """The whole table, its rows in an order in which every fused system follows its parts."""

    measures: tuple[str, ...]
    specs: dict[str, SystemSpec]
    rows: list[Row]


def read_matrix(path: str | Path, values: Mapping[str, str] = MappingProxyType({})) -> Matrix:
    """Reads a table.

    Args:
        path: the TOML file.
        values: what ``${name}`` stands for in its texts.

    Raises:
        InputError: it is not TOML, not as its schema says, or names what it does not define.
    """
    if not Path(path).is_file():
        raise InputError(path, problem="file not found", expected="a table of experiments")
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(path, problem=str(error), expected="TOML") from error
    document = _filled(document, values, path)
    check_document("matrix", document, path)
    measures = document.get("measures", MEASURES)
    try:
        measures = measure_names(measures)
    except UsageError as error:
        raise InputError(path, place="measures", value=measures, expected=f"measures: {error}") from error
    sources = {name: _sources(name, entry) for name, entry in document["collections"].items()}
    specs = {name: _system_spec(name, entry) for name, entry in document["systems"].items()}
    for spec in specs.values():
        for part in spec.fuse:
            _known(path, f"systems/{spec.name}/fuse", part, specs)
            if specs[part].fuse:
                expected = "a system that is not itself fused"
                raise InputError(path, place=f"systems/{spec.name}/fuse", value=part, expected=expected)
    rows = []
    for number, entry in enumerate(document["rows"]):
        splits = sources[_known(path, f"rows/{number}/collection", entry["collection"], sources)]
        named = [specs[_known(path, f"rows/{number}/systems", name, specs)] for name in entry["systems"]]
        for spec in named:
            for part in spec.fuse:
                _known(
                    path,
                    f"rows/{number}/systems: {spec.name} fuses",
                    part,
                    dict.fromkeys(entry["systems"]),
                )
        seeds = tuple(entry.get("seeds", (0,)))
        named.sort(key=lambda one: bool(one.fuse))
        rows += [Row(source, spec, seeds) for source in splits for spec in named]
    times = Counter((row.source.name, row.spec.name) for row in rows)
    named_twice = [pair for pair, number in times.items() if number > 1]
    if named_twice:
        value = " on ".join(reversed(named_twice[0]))
        raise InputError(path, place="rows", value=value, expected="each system once on a collection")
    return Matrix(measures, specs, rows)


def _filled(value: Any, values: Mapping[str, str], path: str | Path) -> Any:
    """A copy of what TOML holds with every ``${name}`` replaced in its texts."""
    if isinstance(value, dict):
        return {key: _filled(entry, values, path) for key, entry in value.items()}
    if isinstance(value, list):
        return [_filled(entry, values, path) for entry in value]
    if not isinstance(value, str):
        return value
    try:
        return Template(value).substitute(values)
    except KeyError as error:
        raise InputError(path, value=value, expected=f"--let {error.args[0]}=...") from error
    except ValueError as error:
        raise InputError(path, value=value, expected="${name}, or $$ for a dollar sign") from error


def _sources(name: str, entry: dict[str, Any]) -> list[Source]:
    """One for each split that is reported; all but the first may be absent."""
    splits = entry.get("splits", [entry.get("split", "test")])
    return [
        Source(
            name=f"{name}-{split}" if "splits" in entry else name,
            folder=name,
            path=Path(entry["path"]),
            build=entry.get("build"),
            limit=entry.get("limit"),
            split=split,
            optional=place > 0,
        )
        for place, split in enumerate(splits)
    ]


def _system_spec(name: str, entry: dict[str, Any]) -> SystemSpec:
    overrides, fuse = tuple(entry.get("set", ())), tuple(entry.get("fuse", ()))
    return SystemSpec(name, entry.get("baseline"), entry.get("preset"), overrides, fuse)


def _known(path: str | Path, place: str, name: str, defined: dict[str, Any]) -> str:
    if name not in defined:
        raise InputError(path, place=place, value=name, expected=f"one of {', '.join(defined)}")
    return name
