"""Trials, and the trials whose runs they fuse."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aptool.experiments.matrix import EvaluatedSplit, Experiment, SystemSpec

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
