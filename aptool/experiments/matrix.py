"""An experiment matrix as a TOML file: collections, systems, and rows that pair them with seeds."""

from collections import Counter
from collections.abc import Collection, Mapping
from string import Template
from types import MappingProxyType
from typing import Any, NamedTuple

from aptool.documents import read_toml
from aptool.errors import InputError, UsageError
from aptool.evaluation.learned_fusion import METHODS, Method
from aptool.evaluation.names import DEFAULT_MEASURES, measure_names
from aptool.formats.location import Location, location
from aptool.formats.schemas import check_document


class Fold(NamedTuple):
    """One of the folds of a collection, which is a collection of its own.

    Attributes:
        number: from 1.
        of: how many there are.
        source: the name in the matrix of the collection that it is a fold of.
    """

    number: int
    of: int
    source: str


class EvaluatedSplit(NamedTuple):
    """A split of a collection that systems are evaluated on.

    Attributes:
        name: in the results: the collection's, with the split's where several are evaluated.
        collection: the collection's name in the matrix; one training serves all of its splits.
        path: the collection's folder, or that of the files to import.
        build: how to make the collection where there is none.
        limit: functions to build it from; None is all.
        split: the split's own name.
        optional: whether the split is skipped where it or the collection is missing.
        fold: which fold of the collection at ``path`` is meant; None is that collection itself.
    """

    name: str
    collection: str
    path: Location
    build: str | None
    limit: int | None
    split: str
    optional: bool
    fold: Fold | None = None


class SystemSpec(NamedTuple):
    """A system of the matrix; exactly one of ``baseline``, ``preset``, ``fuse`` and ``combine`` is set.

    Attributes:
        fuse: systems that are fused by reciprocal rank.
        combine: systems that are fused by a model fitted on the dev split.
        method: of ``combine``.
    """

    name: str
    baseline: str | None
    preset: str | None
    overrides: tuple[str, ...]
    fuse: tuple[str, ...]
    combine: tuple[str, ...] = ()
    method: Method = METHODS[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """The systems that it is made of, by either kind of fusion."""
        return self.fuse or self.combine


class Experiment(NamedTuple):
    """A system on a split, with one run for each seed."""

    evaluated: EvaluatedSplit
    system: SystemSpec
    seeds: tuple[int, ...]


class ExperimentMatrix(NamedTuple):
    """All experiments, in an order in which every fused system follows its parts."""

    measures: tuple[str, ...]
    systems: dict[str, SystemSpec]
    experiments: list[Experiment]

    def with_one_seed(self) -> "ExperimentMatrix":
        """The same experiments, each with its first seed only."""
        return self._replace(experiments=[one._replace(seeds=one.seeds[:1]) for one in self.experiments])


def read_matrix(path: str | Location, values: Mapping[str, str] = MappingProxyType({})) -> ExperimentMatrix:
    """Reads an experiment matrix.

    Args:
        path: the TOML file.
        values: what replaces each ``${name}`` in its strings.

    Raises:
        InputError: the file is not TOML, violates its schema, or refers to a name that it does not define.
    """
    document = _substituted(read_toml(path, "an experiment matrix"), values, path)
    check_document("matrix", document, path)
    measures = _measures(path, document)
    splits = {name: _evaluated_splits(name, entry) for name, entry in document["collections"].items()}
    systems = _systems(path, document["systems"])
    experiments = []
    for number, row in enumerate(document["rows"]):
        place = f"rows/{number}"
        _check_known(path, f"{place}/collection", row["collection"], splits)
        for name in row["systems"]:
            _check_known(path, f"{place}/systems", name, systems)
        for name in row["systems"]:
            for part in systems[name].parts:
                _check_known(path, f"{place}/systems: {name} fuses", part, row["systems"])
        seeds = tuple(row.get("seeds", (0,)))
        in_order = sorted((systems[name] for name in row["systems"]), key=lambda system: bool(system.parts))
        experiments += [
            Experiment(evaluated, system, seeds)
            for evaluated in splits[row["collection"]]
            for system in in_order
        ]
    _check_distinct(path, experiments)
    return ExperimentMatrix(measures, systems, experiments)


def _measures(path: str | Location, document: dict[str, Any]) -> tuple[str, ...]:
    measures = document.get("measures", DEFAULT_MEASURES)
    try:
        return measure_names(measures)
    except UsageError as error:
        raise InputError(path, place="measures", value=measures, expected=f"measures: {error}") from error


def _systems(path: str | Location, entries: dict[str, dict[str, Any]]) -> dict[str, SystemSpec]:
    systems = {
        name: SystemSpec(
            name,
            entry.get("baseline"),
            entry.get("preset"),
            tuple(entry.get("set", ())),
            tuple(entry.get("fuse", ())),
            tuple(entry.get("combine", ())),
            entry.get("method", METHODS[0]),
        )
        for name, entry in entries.items()
    }
    for system in systems.values():
        place = f"systems/{system.name}/{'fuse' if system.fuse else 'combine'}"
        for part in system.parts:
            _check_known(path, place, part, systems)
            if systems[part].parts:
                raise InputError(path, place=place, value=part, expected="a system that is not itself fused")
    return systems


def _evaluated_splits(name: str, entry: dict[str, Any]) -> list[EvaluatedSplit]:
    """The folds and the splits of a collection that are evaluated; all splits but the first are optional."""
    folds, optional = entry.get("folds", 0), entry.get("optional", False)
    splits = entry.get("splits", [entry["split"]] if "split" in entry else [] if folds else ["test"])
    several = "splits" in entry or folds > 0
    whole = [
        EvaluatedSplit(
            name=f"{name}-{split}" if several else name,
            collection=name,
            path=location(entry["path"]),
            build=entry.get("build"),
            limit=entry.get("limit"),
            split=split,
            optional=place > 0 or optional,
        )
        for place, split in enumerate(splits)
    ]
    parts = [
        EvaluatedSplit(
            name=f"{name}-fold{number}",
            collection=f"{name}-fold{number}",
            path=location(entry["path"]),
            build=entry.get("build"),
            limit=entry.get("limit"),
            split="dev",
            optional=optional,
            fold=Fold(number, folds, name),
        )
        for number in range(1, folds + 1)
    ]
    return parts + whole


def _substituted(value: Any, values: Mapping[str, str], path: str | Location) -> Any:
    """A copy of a TOML value with every ``${name}`` in its strings replaced."""
    if isinstance(value, dict):
        return {key: _substituted(entry, values, path) for key, entry in value.items()}
    if isinstance(value, list):
        return [_substituted(entry, values, path) for entry in value]
    if not isinstance(value, str):
        return value
    try:
        return Template(value).substitute(values)
    except KeyError as error:
        raise InputError(path, value=value, expected=f"--let {error.args[0]}=...") from error
    except ValueError as error:
        raise InputError(path, value=value, expected="${name}, or $$ for a dollar sign") from error


def _check_known(path: str | Location, place: str, name: str, defined: Collection[str]) -> None:
    if name not in defined:
        raise InputError(path, place=place, value=name, expected=f"one of {', '.join(defined)}")


def _check_distinct(path: str | Location, experiments: list[Experiment]) -> None:
    counts = Counter((one.evaluated.name, one.system.name) for one in experiments)
    for (collection, system), number in counts.items():
        if number > 1:
            value = f"{system} on {collection}"
            raise InputError(path, place="rows", value=value, expected="each system once on a collection")
