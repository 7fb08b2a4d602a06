"""An experiment matrix: a TOML file of collections, systems and seeds, and the trials that it describes."""

import fnmatch
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from string import Template
from types import MappingProxyType
from typing import Any, NamedTuple

from aptool.config import Recipe, load_recipe
from aptool.documents import check_document, read_toml
from aptool.errors import AptoolError, InputError, UsageError, first_few, located
from aptool.evaluation.names import DEFAULT_MEASURES, measure_names
from aptool.paths import Location, location

# The split that fusions are fitted on: systems overfit their training split.
DEV = "dev"


class Fold(NamedTuple):
    """A fold of a collection."""

    number: int  # from 1
    of: int
    source: str  # name of the collection in the matrix
    train_share: float = 1.0  # share of the training questions, for learning curves


class EvaluatedSplit(NamedTuple):
    """A split of a collection that systems are evaluated on."""

    name: str  # in the results: ``COLLECTION``, or ``COLLECTION-SPLIT`` of several splits
    collection: str  # name of the collection in the matrix; one training serves all of its splits
    path: Location  # folder of the collection
    build: str | None  # "functions" builds a missing collection
    limit: int | None  # number of functions in a collection that is built; None for all
    split: str
    optional: bool  # whether to skip a missing split or collection
    fold: Fold | None = None  # fold of the collection at ``path``; None for the whole collection

    @property
    def result(self) -> str:
        """The collection's name in the results, where folds are pooled."""
        return self.name if self.fold is None else f"{self.fold.source}-folds"


class SystemSpec(NamedTuple):
    """A system of the matrix: a baseline, a preset, a model, or a fusion.

    ``fuse`` fuses systems by reciprocal rank, ``combine`` by a model fitted on the dev split.
    """

    name: str
    baseline: str | None = None
    preset: str | None = None
    fuse: "tuple[SystemSpec, ...]" = ()
    combine: "tuple[SystemSpec, ...]" = ()
    recipe: Recipe | None = None  # of a preset
    model: str | None = None  # folder or name

    @property
    def parts(self) -> "tuple[SystemSpec, ...]":
        """The fused systems; they run before the fusion."""
        return self.fuse or self.combine


class Experiment(NamedTuple):
    """A system on a split, with one run per seed."""

    evaluated: EvaluatedSplit
    system: SystemSpec
    seeds: tuple[int, ...]


class ExperimentMatrix(NamedTuple):
    """The experiments, fused systems before their fusions."""

    measures: tuple[str, ...]
    experiments: list[Experiment]


def read_matrix(path: str | Location, values: Mapping[str, str] = MappingProxyType({})) -> ExperimentMatrix:
    """Read an experiment matrix, with ``values`` for each ``${name}`` in its strings."""
    document = _substituted(read_toml(path, "an experiment matrix"), values, path)
    check_document("matrix", document, path)
    measures = _measures(path, document)
    splits = {name: _evaluated_splits(name, entry) for name, entry in document["collections"].items()}
    systems = _systems(path, document["systems"])
    experiments = []
    for number, row in enumerate(document["rows"]):
        position = f"rows/{number}"
        _check_known(path, f"{position}/collection", row["collection"], splits)
        for name in row["systems"]:
            _check_known(path, f"{position}/systems", name, systems)
        for name in row["systems"]:
            entry = "fuse" if systems[name].fuse else "combine"
            for part in systems[name].parts:
                _check_known(path, f"{position}/systems: {entry} of {name}", part.name, row["systems"])
        seeds = tuple(row.get("seeds", (0,)))
        in_order = sorted((systems[name] for name in row["systems"]), key=lambda system: bool(system.parts))
        experiments += [
            Experiment(evaluated, system, seeds)
            for evaluated in splits[row["collection"]]
            for system in in_order
        ]
    _check_distinct(path, experiments)
    return ExperimentMatrix(measures, experiments)


def only(matrix: ExperimentMatrix, patterns: Sequence[str]) -> ExperimentMatrix:
    """The experiments whose ``COLLECTION/SYSTEM``, as in the results, matches a glob; all without globs."""
    named = [(f"{entry.evaluated.result}/{entry.system.name}", entry) for entry in matrix.experiments]
    names = list(dict.fromkeys(name for name, _ in named))
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise UsageError(f"--only {pattern}: matches nothing; expected one of {first_few(names)}")
    kept = {name for pattern in patterns or ["*"] for name in fnmatch.filter(names, pattern)}
    return matrix._replace(experiments=[entry for name, entry in named if name in kept])


def _measures(path: str | Location, document: dict[str, Any]) -> tuple[str, ...]:
    measures = document.get("measures", DEFAULT_MEASURES)
    try:
        return measure_names(measures)
    except UsageError as error:
        raise InputError(path, position="measures", value=measures, expected=f"measures: {error}") from error


def _systems(path: str | Location, entries: dict[str, dict[str, Any]]) -> dict[str, SystemSpec]:
    fused = {name: entry for name, entry in entries.items() if entry.keys() & {"fuse", "combine"}}
    systems = {}
    for name, entry in entries.items():
        if name not in fused:
            fields = {key: value for key, value in entry.items() if key != "set"}
            systems[name] = SystemSpec(name, recipe=_recipe(name, entry), **fields)
    for name, entry in fused.items():
        kind = "fuse" if "fuse" in entry else "combine"
        position = f"systems/{name}/{kind}"
        for part in entry[kind]:
            _check_known(path, position, part, entries)
            if part in fused:
                expected = "a system that is not itself fused"
                raise InputError(path, position=position, value=part, expected=expected)
        parts: dict[str, Any] = {kind: tuple(systems[part] for part in entry[kind])}
        systems[name] = SystemSpec(name, **parts)
    return systems


def _recipe(name: str, entry: Mapping[str, Any]) -> Recipe | None:
    if "preset" not in entry:
        return None
    try:
        return load_recipe(entry["preset"], entry.get("set", ()))
    except AptoolError as error:
        raise located(error, f"system {name!r}") from error


def _evaluated_splits(name: str, entry: dict[str, Any]) -> list[EvaluatedSplit]:
    """The evaluated folds and splits of a collection; only the first split is required."""
    folds, optional = entry.get("folds", 0), entry.get("optional", False)
    splits = entry.get("splits", [entry["split"]] if "split" in entry else [] if folds else ["test"])
    several = "splits" in entry or folds > 0
    first = EvaluatedSplit(
        name=name,
        collection=name,
        path=location(entry["path"]),
        build=entry.get("build"),
        limit=entry.get("limit"),
        split="dev",
        optional=optional,
    )
    parts = [
        first._replace(
            name=f"{name}-fold{number}",
            collection=f"{name}-fold{number}",
            fold=Fold(number, folds, name, entry.get("train_share", 1.0)),
        )
        for number in range(1, folds + 1)
    ]
    whole = [
        first._replace(
            name=f"{name}-{split}" if several else name, split=split, optional=number > 0 or optional
        )
        for number, split in enumerate(splits)
    ]
    return parts + whole


def _substituted(table: dict[str, Any], values: Mapping[str, str], path: str | Location) -> dict[str, Any]:
    """Copy a table with every ``${name}`` in its strings replaced; raise for a value without a use."""
    template = Template(json.dumps(table, default=str))
    names = template.get_identifiers()
    for name in values:
        if name not in names:  # it may be mistyped
            expected = f"one of {', '.join(sorted(names))}" if names else "no --let: the table has no ${name}"
            raise InputError(path, position="--let", value=name, expected=expected)
    for name in names:
        if name not in values:
            raise InputError(path, value=f"${{{name}}}", expected=f"--let {name}=...")
    if not template.is_valid():
        raise InputError(path, problem="a $ without a name", expected="${name}, or $$ for a dollar sign")
    document: dict[str, Any] = json.loads(
        template.substitute({name: json.dumps(value)[1:-1] for name, value in values.items()})
    )
    return document


def _check_known(path: str | Location, position: str, name: str, defined: Collection[str]) -> None:
    if name not in defined:
        raise InputError(path, position=position, value=name, expected=f"one of {', '.join(defined)}")


def _check_distinct(path: str | Location, experiments: list[Experiment]) -> None:
    counts = Counter((experiment.evaluated.name, experiment.system.name) for experiment in experiments)
    for (collection, system), count in counts.items():
        if count > 1:
            value = f"{system} on {collection}"
            raise InputError(path, position="rows", value=value, expected="each system once on a collection")


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
        """Identifies the trial in its matrix."""
        return self.collection, self.system.name, self.seed

    @property
    def parts(self) -> "list[Trial]":
        """The trials whose runs the trial fuses, on the same splits."""
        return [self._replace(system=part) for part in self.system.parts]

    def __str__(self) -> str:
        return f"{self.collection}: {self.system.name}, seed {self.seed}"


def list_trials(experiments: Sequence[Experiment]) -> list[Trial]:
    """The trials of experiments, fused systems before their fusions.

    Experiments that differ only in the split are one trial. Systems fused by ``combine`` are also scored on
    the dev split.
    """
    trials: dict[tuple[str, str, int], Trial] = {}

    def add(trial: Trial) -> None:
        earlier = trials.setdefault(trial.key, trial)
        names = {evaluated.split for evaluated in earlier.splits}
        missing = [evaluated for evaluated in trial.splits if evaluated.split not in names]
        trials[trial.key] = earlier._replace(splits=(*earlier.splits, *missing))
        on_dev = trial.splits[0]._replace(name=f"{trial.collection}-{DEV}", split=DEV)
        for part in trial.parts:
            add(part._replace(splits=(on_dev,)) if trial.system.combine else part)

    for experiment in experiments:
        for seed in experiment.seeds:
            add(Trial(experiment.system, seed, (experiment.evaluated,)))
    return list(trials.values())
