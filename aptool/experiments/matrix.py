"""An experiment matrix as a TOML file: collections, systems, and rows that pair them with seeds."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from string import Template
from types import MappingProxyType
from typing import Any, NamedTuple

from aptool.documents import read_toml
from aptool.errors import InputError, UsageError
from aptool.evaluation.names import DEFAULT_MEASURES, measure_names
from aptool.formats.location import Location, location
from aptool.formats.schemas import check_document
from aptool.options import expected_without

# Removed entries of systems and their defaults.
REMOVED_ENTRIES = {"method": "logistic", "ensemble": None, "teacher": None}


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
    """A system of the matrix, of one of these kinds: baseline, preset, fuse, combine.

    Attributes:
        fuse: systems that are fused by reciprocal rank.
        combine: systems that are fused by a model fitted on the dev split.
    """

    name: str
    baseline: str | None
    preset: str | None
    overrides: tuple[str, ...]
    fuse: tuple[str, ...]
    combine: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The systems that it is made of, by either kind of fusion of systems."""
        return self.fuse or self.combine

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """The systems that are run before it, by the entry that names them."""
        named = {
            "fuse": self.fuse,
            "combine": self.combine,
        }
        return {entry: names for entry, names in named.items() if names}


class Experiment(NamedTuple):
    """A system on a split.

    Attributes:
        seeds: of its row; it has a run for each.
    """

    evaluated: EvaluatedSplit
    system: SystemSpec
    seeds: tuple[int, ...]


class ExperimentMatrix(NamedTuple):
    """All experiments, in an order in which every system follows those that it needs."""

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
    table = read_toml(path, "an experiment matrix")
    _check_used(path, table, values)
    document = _substituted(table, values, path)
    _drop_removed(path, document)
    check_document("matrix", document, path)
    measures = _measures(path, document)
    splits = {name: _evaluated_splits(name, entry) for name, entry in document["collections"].items()}
    systems = _systems(path, document["systems"])
    depths = {name: _depth(path, systems, name) for name in systems}
    experiments = []
    for number, row in enumerate(document["rows"]):
        place = f"rows/{number}"
        _check_known(path, f"{place}/collection", row["collection"], splits)
        for name in row["systems"]:
            _check_known(path, f"{place}/systems", name, systems)
        for name in row["systems"]:
            for entry, needed in systems[name].needs.items():
                for one in needed:
                    _check_known(path, f"{place}/systems: {entry} of {name}", one, row["systems"])
        seeds = tuple(row.get("seeds", (0,)))
        in_order = sorted((systems[name] for name in row["systems"]), key=lambda one: depths[one.name])
        experiments += [
            Experiment(evaluated, system, seeds)
            for evaluated in splits[row["collection"]]
            for system in in_order
        ]
    _check_names(path, splits)
    _check_distinct(path, experiments)
    return ExperimentMatrix(measures, systems, experiments)


def _drop_removed(path: str | Location, document: dict[str, Any]) -> None:
    """Remove entries that an earlier version had from systems, if they have their default.

    Raises:
        InputError: one has another value.
    """
    systems = document.get("systems")
    for system, entry in systems.items() if isinstance(systems, dict) else ():
        for name, default in REMOVED_ENTRIES.items():
            if isinstance(entry, dict) and entry.get(name, default) != default:
                expected = expected_without("no such entry")
                raise InputError(path, place=f"systems/{system}/{name}", value=entry[name], expected=expected)
            if isinstance(entry, dict):
                entry.pop(name, None)


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
        )
        for name, entry in entries.items()
    }
    for system in systems.values():
        for entry, needed in system.needs.items():
            place = f"systems/{system.name}/{entry}"
            for name in needed:
                _check_known(path, place, name, systems)
                if systems[name].parts:
                    raise InputError(
                        path, place=place, value=name, expected="a system that is not itself fused"
                    )
    return systems


def _depth(
    path: str | Location, systems: Mapping[str, SystemSpec], name: str, above: tuple[str, ...] = ()
) -> int:
    """How many systems are run before a system, one after the other.

    Raises:
        InputError: it needs itself.
    """
    if name in above:
        chain = " needs ".join((*above[above.index(name) :], name))
        raise InputError(path, place=f"systems/{name}", problem=chain, expected="no system that needs itself")
    below = [one for needed in systems[name].needs.values() for one in needed]
    return max((1 + _depth(path, systems, one, (*above, name)) for one in below), default=0)


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


def _check_names(path: str | Location, collections: Mapping[str, list[EvaluatedSplit]]) -> None:
    """Refuses a collection that is called as the folds or splits of another one are."""
    owner: dict[str, str] = {}
    for name, splits in collections.items():
        folds = {f"{name}-folds" for one in splits if one.fold is not None}
        for made in folds | {given for one in splits for given in (one.name, one.collection)}:
            if owner.setdefault(made, name) != name:
                expected = f"another name, as {made!r} would be both that of {owner[made]!r} and of {name!r}"
                raise InputError(path, place=f"collections/{name}", value=name, expected=expected)


def _check_used(path: str | Location, table: Mapping[str, Any], values: Mapping[str, str]) -> None:
    """Checks that every value has a place to go to: a mistyped name would leave the table's own default."""
    named = set(Template(json.dumps(table, default=str)).get_identifiers())
    for name in values:
        if name not in named:
            expected = f"one of {', '.join(sorted(named))}" if named else "no --let: the table has no ${name}"
            raise InputError(path, place="--let", value=name, expected=expected)


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


# The split that systems are combined on: their training split would show them better than they are.
DEV = "dev"

Systems = Mapping[str, SystemSpec]


class Trial(NamedTuple):
    """A system with a seed on a collection: one training, scored on every evaluated split."""

    system: SystemSpec
    seed: int
    splits: tuple[EvaluatedSplit, ...]

    @property
    def collection(self) -> str:
        """The collection's name in the matrix."""
        return self.splits[0].collection

    @property
    def key(self) -> tuple[str, str, int]:
        """What distinguishes it from the other trials of a matrix."""
        return self.collection, self.system.name, self.seed

    def __str__(self) -> str:
        return f"{self.collection}: {self.system.name}, seed {self.seed}"


def parts_of(trial: Trial, systems: Systems) -> list[Trial]:
    """The trials whose runs a trial fuses, on its own splits."""
    return [trial._replace(system=systems[name]) for name in trial.system.parts]


def list_trials(experiments: Sequence[Experiment], systems: Systems) -> list[Trial]:
    """The trials of experiments, each after those that it needs.

    Experiments that differ in the split alone are one trial. What a trained fusion combines is scored on the
    dev split as well.
    """
    trials: dict[tuple[str, str, int], Trial] = {}

    def add(trial: Trial) -> None:
        known = trials.setdefault(trial.key, trial)
        missing = [one for one in trial.splits if one.split not in {split.split for split in known.splits}]
        trials[trial.key] = known._replace(splits=(*known.splits, *missing))
        for part in parts_of(trial, systems):
            add(_on_split(part, DEV) if trial.system.combine else part)

    for one in experiments:
        for seed in one.seeds:
            add(Trial(one.system, seed, (one.evaluated,)))
    return list(trials.values())


def _on_split(trial: Trial, split: str) -> Trial:
    """A trial with a split of its collection alone."""
    first = trial.splits[0]
    return trial._replace(splits=(first._replace(name=f"{first.collection}-{split}", split=split),))
