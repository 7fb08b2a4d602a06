"""Run the trials of an experiment matrix, sequentially or in parallel, and pool the runs of folds.

Folds are over the questions of train and dev; each fold is a collection. The runs of all folds are pooled
into one run over all questions: a system that was not trained on a question scores it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from aptool.data.collection import Collection
from aptool.data.folds import labelled_pools, write_folds
from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.data.writing import MANIFEST, write_collection
from aptool.errors import AptoolError, InputError, located
from aptool.evaluation.measures import evaluate_frames
from aptool.experiments.matrix import EvaluatedSplit, ExperimentMatrix, Fold, list_trials
from aptool.experiments.side_by_side import Processes, run_side_by_side
from aptool.experiments.table import open_folder
from aptool.experiments.trial import Result, TrialRunner, write_derived_run
from aptool.models.build import check_recipe
from aptool.outputs import check_output_folder, lock
from aptool.paths import Location

logger = logging.getLogger(__name__)

# The split of the collection of all questions, on which the pooled runs are evaluated.
POOLED = "folds"


def run_matrix(
    matrix: ExperimentMatrix,
    output: Location,
    *,
    device: str = "auto",
    processes: Processes | None = None,
    overwrite: bool = False,
) -> list[Result]:
    """Run the experiments of a matrix into a folder; return all results, in the order of the matrix.

    ``processes`` run trials side by side; None runs one trial after the other in this process, on ``device``.
    Results of other inputs are an error, or replaced with ``overwrite``.
    """
    _check_recipes(matrix)
    check_output_folder(output, overwrite=True)
    open_folder(output, overwrite=overwrite)
    with lock(output):
        collections = _open_collections(matrix, output, overwrite)
        experiments = [experiment for experiment in matrix.experiments if experiment.evaluated in collections]
        by_collection = {evaluated.collection: collection for evaluated, collection in collections.items()}
        runner = TrialRunner(matrix.measures, output, by_collection, device, overwrite)
        trials = list_trials(experiments)
        for trial in trials:
            runner.check_outputs(trial)
        if processes is None:
            by_trial = [runner.run(trial) for trial in trials]
        else:
            with processes:
                by_trial = run_side_by_side(trials, runner, processes)
        results = {
            (result.collection, result.system, result.seed): result
            for trial_results in by_trial
            for result in trial_results
        }
        by_name: dict[tuple[str, str, int], list[Result]] = {}  # by the names of the results
        for experiment in experiments:
            evaluated, system = experiment.evaluated, experiment.system.name
            for seed in experiment.seeds:
                result = results[evaluated.name, system, seed]
                by_name.setdefault((evaluated.result, system, seed), []).append(result)
        return _pool_folds(by_name, output, overwrite)


def _check_recipes(matrix: ExperimentMatrix) -> None:
    """Raise if a trained system cannot be built."""
    for experiment in matrix.experiments:
        system = experiment.system
        if system.recipe is not None:
            try:
                check_recipe(system.recipe)
            except AptoolError as error:
                raise located(error, f"system {system.name!r}") from error


def _open_collections(
    matrix: ExperimentMatrix, output: Location, overwrite: bool
) -> dict[EvaluatedSplit, Collection]:
    """The collection of each evaluated split, without missing optional splits."""
    opened: dict[str, Collection] = {}
    folds: dict[str, list[Collection]] = {}
    collections: dict[EvaluatedSplit, Collection] = {}
    for evaluated in dict.fromkeys(experiment.evaluated for experiment in matrix.experiments):
        fold, split = evaluated.fold, evaluated.split
        name = evaluated.collection if fold is None else fold.source
        if evaluated.optional and not evaluated.path.exists():
            logger.info(f"{evaluated.path}: not found, so {evaluated.name} is left out")
            continue
        if name not in opened:
            opened[name] = _open(evaluated)
        if fold is not None:
            if name not in folds:
                folder = output / "collections" / f"{name}-folds"
                folds[name] = _open_folds(opened[name], folder, fold, overwrite)
            collections[evaluated] = folds[name][fold.number - 1]
            continue
        if evaluated.optional and split not in opened[name].splits:
            logger.info(f"{name}: no split {split!r}, so {evaluated.name} is left out")
            continue
        opened[name].qrels_file(split)  # raises if there is no such split
        collections[evaluated] = opened[name]
    return collections


def _open(evaluated: EvaluatedSplit) -> Collection:
    """Open a collection; build it first if the matrix says so."""
    path = evaluated.path
    if evaluated.build is None:
        return Collection(path)
    if not path.exists():
        from aptool.data.functions import import_functions

        logger.info(f"building {path}")
        import_functions(path, limit=evaluated.limit)
    opened = Collection(path)
    built = opened.manifest["details"].get("limit", evaluated.limit)
    if built != evaluated.limit:
        expected = f"{built}, by which it was built, or the path of another folder"
        raise InputError(path, position="limit", value=evaluated.limit, expected=expected)
    return opened


def _open_folds(collection: Collection, folder: Location, fold: Fold, overwrite: bool) -> list[Collection]:
    """Open all folds of a collection; write them first if they are missing or out of date."""
    details = {"of": collection.fingerprint, "folds": fold.of, "train_share": fold.train_share}
    folds = [_open_existing(folder / f"fold{number}", details) for number in range(1, fold.of + 1)]
    complete = [existing for existing in folds if existing is not None]
    if len(complete) == fold.of:
        return complete
    return write_folds(collection, folder, fold.of, train_share=fold.train_share, overwrite=overwrite)


def _open_pooled(folds: Sequence[Collection], overwrite: bool) -> Collection:
    """Open the collection of all questions of the folds, in one split; write it first if it is missing."""
    path = folds[0].path.parent / "pooled"
    details = {name: folds[0].manifest["details"][name] for name in ("of", "folds", "pool_size")}
    pooled = _open_existing(path, details)
    if pooled is not None:
        return pooled
    source = f"the questions of the {len(folds)} folds of {folds[0].name}"
    pools = (pool for fold in folds for pool in labelled_pools(fold, "dev"))
    write_collection(
        path, {POOLED: pools}, name=folds[0].name, source=source, details=details, overwrite=overwrite
    )
    return Collection(path)


def _pool_folds(
    results: Mapping[tuple[str, str, int], list[Result]], output: Location, overwrite: bool
) -> list[Result]:
    """Replace the results on the folds of a collection by one result over all of its questions."""
    pooled: dict[str, Collection] = {}
    joined = []
    for (name, _, _), parts in results.items():
        if name == parts[0].collection:
            joined += parts  # not of folds
            continue
        if name not in pooled:
            pooled[name] = _open_pooled([Collection(part.folder) for part in parts], overwrite)
        joined.append(_pool(name, parts, pooled[name], output, overwrite))
    return joined


def _pool(name: str, parts: list[Result], pooled: Collection, output: Location, overwrite: bool) -> Result:
    """Pool the results of all folds, of one system with one seed."""
    first = parts[0]
    run = output / name / first.system / f"seed{first.seed}" / f"{POOLED}.run"
    frame = pl.concat([read_run(part.run).frame for part in parts])
    write_derived_run(run, frame, first.system, overwrite=overwrite)
    evaluation = evaluate_frames(
        read_qrels(pooled.qrels_file(POOLED)), read_run(run).frame, list(first.measures), run_name=str(run)
    )
    shared = sorted(set.intersection(*(set(part.costs) for part in parts)))
    costs = {cost: sum(part.costs[cost] for part in parts) for cost in shared}
    if "bytes_per_answer" in costs:
        costs["bytes_per_answer"] /= len(parts)
    return first._replace(
        collection=name,
        run=run,
        measures=dict(evaluation.means),
        questions=len(evaluation.per_question),
        seconds={phase: sum(part.seconds[phase] for part in parts) for phase in first.seconds},
        folder=pooled.path,
        split=POOLED,
        folds=tuple(part.measures for part in parts),
        costs=costs,
    )


def _open_existing(path: Location, details: dict[str, Any]) -> Collection | None:
    """Open a collection; None if it is missing or its manifest has other details."""
    if not (path / MANIFEST).is_file():
        return None
    collection = Collection(path)
    return collection if details.items() <= collection.manifest["details"].items() else None
