"""Run the trials of an experiment matrix, sequentially or in parallel."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from aptool.config import Recipe, load_recipe
from aptool.datasets.insuranceqa import import_insuranceqa
from aptool.datasets.trecqa import import_trecqa
from aptool.datasets.wikiqa import import_wikiqa
from aptool.errors import AptoolError, InputError, error_with
from aptool.experiments.folds import open_folds, pool_folds
from aptool.experiments.matrix import EvaluatedSplit, ExperimentMatrix, list_trials
from aptool.experiments.side_by_side import Processes, run_side_by_side
from aptool.experiments.trial import Result, Train, TrialRunner
from aptool.formats.claim import claimed
from aptool.formats.collection import MANIFEST, CollectionFiles
from aptool.formats.location import Location
from aptool.models.build import check_recipe
from aptool.scoring.score import Executor

logger = logging.getLogger(__name__)

CLAIM = ".claim"  # claim file of the output folder

# Published data sets that a matrix imports, and the file names of their splits.
PUBLISHED = {
    "wikiqa": {"train": "WikiQA-train.tsv", "dev": "WikiQA-dev.tsv", "test": "WikiQA-test.tsv"},
    "trecqa": {"train": "train-all", "dev": "clean-dev", "test": "clean-test"},
    "insuranceqa": {},
}


class Runner:
    """Runs the experiments of a matrix into a folder."""

    def __init__(
        self,
        matrix: ExperimentMatrix,
        output: Location,
        *,
        train: Train | None = None,
        executor: Executor | None = None,
        device: str = "auto",
    ) -> None:
        """Load and check the recipes of the systems.

        Args:
            matrix: the experiments.
            output: the folder for run files, models and results.
            train: replacement for ``fit`` that trains elsewhere; None to train in this process.
            executor: where trained models score; None for this process.
            device: device of this process; ``auto`` for a GPU if there is one.
        """
        self._matrix = matrix
        self._output = output
        self._train = train
        self._executor = executor
        self._device = device
        self._recipes: dict[str, Recipe] = {}
        for experiment in matrix.experiments:
            system = experiment.system
            if system.preset is not None:
                try:
                    recipe = self._recipes[system.name] = load_recipe(system.preset, system.overrides)
                    check_recipe(recipe)
                except AptoolError as error:
                    raise error_with(error.exit_code, f"system {system.name!r}: {error}") from error

    def run(self, processes: Callable[[], AbstractContextManager[Processes]] | None = None) -> list[Result]:
        """All results, in the order of the matrix.

        Args:
            processes: opens the processes that run trials side by side; None runs one trial after the other
                in this process.

        Raises:
            AptoolError: a collection cannot be read or built, an experiment fails, or another process is
                running a matrix into this folder.
        """
        self._output.mkdir(parents=True, exist_ok=True)
        with claimed(self._output / CLAIM, self._output):
            return self._run(processes)

    def _run(self, processes: Callable[[], AbstractContextManager[Processes]] | None) -> list[Result]:
        collections = self._open_collections()
        experiments = [
            experiment for experiment in self._matrix.experiments if experiment.evaluated in collections
        ]
        runner = TrialRunner(
            self._matrix,
            self._output,
            self._recipes,
            {evaluated.collection: collection.path for evaluated, collection in collections.items()},
            self._device,
            self._train,
            self._executor,
        )
        trials = list_trials(experiments, self._matrix.systems)
        if processes is None:
            by_trial = [runner.run(trial) for trial in trials]
        else:
            with processes() as opened:
                by_trial = run_side_by_side(trials, runner, opened)
        results = {
            (result.collection, result.system, result.seed): result
            for trial_results in by_trial
            for result in trial_results
        }
        ordered = [
            (experiment.evaluated, results[experiment.evaluated.name, experiment.system.name, seed])
            for experiment in experiments
            for seed in experiment.seeds
        ]
        return pool_folds(ordered, collections, self._output)

    def _open_collections(self) -> dict[EvaluatedSplit, CollectionFiles]:
        """The collection of each evaluated split, without missing optional splits."""
        opened: dict[str, CollectionFiles] = {}
        folds: dict[str, list[CollectionFiles]] = {}
        collections: dict[EvaluatedSplit, CollectionFiles] = {}
        for evaluated in dict.fromkeys(experiment.evaluated for experiment in self._matrix.experiments):
            fold, split = evaluated.fold, evaluated.split
            name = evaluated.collection if fold is None else fold.source
            if evaluated.optional and not evaluated.path.exists():
                logger.info(f"{evaluated.path}: not found, so {evaluated.name} is left out")
                continue
            if name not in opened:
                opened[name] = self._open(evaluated, name)
            if fold is not None:
                if name not in folds:
                    folder = self._output / "collections" / f"{name}-folds"
                    folds[name] = open_folds(opened[name], folder, fold.of)
                collections[evaluated] = folds[name][fold.number - 1]
                continue
            if evaluated.optional and split not in opened[name].splits:
                logger.info(f"{name}: no split {split!r}, so {evaluated.name} is left out")
                continue
            opened[name].qrels(split)  # raises if there is no such split
            collections[evaluated] = opened[name]
        return collections

    def _open(self, evaluated: EvaluatedSplit, name: str) -> CollectionFiles:
        """Open a collection; build or import it first if the matrix says so."""
        build, path = evaluated.build, evaluated.path
        if build == "functions" and not path.exists():
            from aptool.datasets.functions import import_functions

            logger.info(f"building {path}")
            import_functions(path, limit=evaluated.limit)
        elif build in PUBLISHED and not (path / MANIFEST).exists():
            # The same files have the same fingerprint: importing them again keeps results up to date.
            imported = self._output / "collections" / name
            logger.info(f"importing {path} to {imported}")
            return import_published(build, path, imported)
        opened = CollectionFiles(path)
        if build == "functions":
            built = opened.manifest["details"].get("limit", evaluated.limit)
            if built != evaluated.limit:
                expected = f"{built}, by which it was built, or the path of another folder"
                raise InputError(path, place="limit", value=evaluated.limit, expected=expected)
        return opened


def import_published(name: str, folder: Location, out: Location) -> CollectionFiles:
    """Import the questions of a published data set that the paper keeps; the test split may be missing."""
    if name == "insuranceqa":
        return import_insuranceqa(out, str(folder / "V1" if (folder / "V1").is_dir() else folder))
    files = {split: folder / file for split, file in PUBLISHED[name].items()}
    splits = {split: str(file) for split, file in files.items() if file.exists()}
    for split in ("train", "dev"):
        if split not in splits:
            expected = f"{files[split].name}, or a collection built by `aptool data import {name}`"
            raise InputError(folder, problem=f"no split {split!r}", expected=expected)
    if name == "wikiqa":
        return import_wikiqa(out, splits, questions="answerable")
    return import_trecqa(out, splits, questions="both-labels")
