"""Trials, and what they need of each other: runs to fuse, and the runs of teachers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aptool.experiments.matrix import EvaluatedSplit, Experiment, SystemSpec

# The split that systems are combined on: their training split would show them better than they are.
DEV = "dev"
# The split whose pools a teacher scores.
TRAIN = "train"

Systems = Mapping[str, SystemSpec]


class Trial(NamedTuple):
    """A system with a seed on a collection: one training, scored on every evaluated split.

    Attributes:
        row_seeds: all seeds of its row of the matrix.
    """

    system: SystemSpec
    seed: int
    splits: tuple[EvaluatedSplit, ...]
    row_seeds: tuple[int, ...]

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
    if trial.system.ensemble is not None:
        member = systems[trial.system.ensemble]
        return [trial._replace(system=member, seed=seed) for seed in member.run_seeds(trial.row_seeds)]
    return [_beside(trial, systems[name]) for name in trial.system.parts]


def teacher_of(trial: Trial, systems: Systems) -> Trial | None:
    """The trial whose scores of the training pools a trial learns; None without a teacher."""
    if trial.system.teacher is None:
        return None
    return _on_split(_beside(trial, systems[trial.system.teacher]), TRAIN)


def needs_of(trial: Trial, systems: Systems) -> list[Trial]:
    """The trials that are run before a trial."""
    taught_by = teacher_of(trial, systems)
    return parts_of(trial, systems) + ([taught_by] if taught_by is not None else [])


def list_trials(experiments: Sequence[Experiment], systems: Systems) -> list[Trial]:
    """The trials of experiments, each after those that it needs.

    Experiments that differ in the split alone are one trial. What a trained fusion combines is scored on the
    dev split as well, and a teacher on the training split.
    """
    trials: dict[tuple[str, str, int], Trial] = {}

    def add(trial: Trial) -> None:
        known = trials.setdefault(trial.key, trial)
        missing = [one for one in trial.splits if one.split not in {split.split for split in known.splits}]
        trials[trial.key] = known._replace(splits=(*known.splits, *missing))
        for part in parts_of(trial, systems):
            add(_on_split(part, DEV) if trial.system.combine else part)
        taught_by = teacher_of(trial, systems)
        if taught_by is not None:
            add(taught_by)

    for one in experiments:
        for seed in one.system.run_seeds(one.seeds):
            add(Trial(one.system, seed, (one.evaluated,), one.seeds))
    return list(trials.values())


def _beside(trial: Trial, system: SystemSpec) -> Trial:
    """The trial of another system that goes with a trial: of the same seed, if it has a run of each."""
    seeds = system.run_seeds(trial.row_seeds)
    return trial._replace(system=system, seed=trial.seed if trial.seed in seeds else seeds[0])


def _on_split(trial: Trial, split: str) -> Trial:
    """A trial with a split of its collection alone."""
    first = trial.splits[0]
    return trial._replace(splits=(first._replace(name=f"{first.collection}-{split}", split=split),))
