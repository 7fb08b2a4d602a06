"""Cross-validation in a matrix, over the questions of train and dev.

Each fold is a collection. The runs of all folds are pooled into one run over all questions; every question is
scored by a system that was not trained on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from aptool.datasets.folds import write_folds
from aptool.datasets.leaks import labelled_pools
from aptool.evaluation.measures import evaluate
from aptool.evaluation.power import mean_and_sd
from aptool.experiments.matrix import EvaluatedSplit
from aptool.experiments.trial import Result
from aptool.formats.collection import MANIFEST, CollectionFiles, CollectionWriter
from aptool.formats.location import Location
from aptool.formats.trec import read_qrels, read_run, run_lines, write_run

# The split of the collection of all questions, on which the pooled runs are evaluated.
POOLED = "folds"


def open_folds(collection: CollectionFiles, folder: Location, number: int) -> list[CollectionFiles]:
    """Open the folds of a collection; write them first if they are missing or of another collection."""
    details = {"of": collection.fingerprint, "folds": number}
    folds = [_open(folder / f"fold{fold}", details) for fold in range(1, number + 1)]
    complete = [fold for fold in folds if fold is not None]
    return complete if len(complete) == number else write_folds(collection, folder, number)


def open_pooled(folds: Sequence[CollectionFiles]) -> CollectionFiles:
    """Open the collection of all questions of the folds, in one split; write it first if it is missing."""
    path = folds[0].path.parent / "pooled"
    details = {"of": folds[0].manifest["details"]["of"], "folds": len(folds)}
    pooled = _open(path, details)
    if pooled is not None:
        return pooled
    source = f"the questions of the {len(folds)} folds of {folds[0].name}"
    with CollectionWriter(path, name=folds[0].name, source=source, details=details) as writer:
        writer.add_split(POOLED, (pool for fold in folds for pool in labelled_pools(fold, "dev")))
    return CollectionFiles(path)


def pool_folds(
    results: Iterable[tuple[EvaluatedSplit, Result]],
    collections: Mapping[EvaluatedSplit, CollectionFiles],
    output: Location,
) -> list[Result]:
    """Replace the results on the folds of a collection by one result over all of its questions.

    Args:
        results: the results, each with its split.
        collections: the collection of each split.
        output: the folder for the pooled run files.
    """
    groups: dict[Any, list[Result]] = {}
    folds: dict[str, list[CollectionFiles]] = {}
    for evaluated, collection in collections.items():
        if evaluated.fold is not None:
            folds.setdefault(evaluated.fold.source, []).append(collection)
    pooled = {name: open_pooled(parts) for name, parts in folds.items()}
    for evaluated, result in results:
        source = evaluated.fold.source if evaluated.fold is not None else evaluated
        groups.setdefault((source, result.system, result.seed), []).append(result)
    return [
        _pool(source, group, pooled[source], output) if isinstance(source, str) else group[0]
        for (source, _, _), group in groups.items()
    ]


def fold_deviations(results: Sequence[Result]) -> dict[str, float]:
    """Standard deviation over folds of each measure's mean over seeds; empty without folds.

    Args:
        results: the seeds of one system on one collection.
    """
    if not results[0].folds:
        return {}
    by_fold = list(zip(*(result.folds for result in results), strict=True))
    return {
        measure: mean_and_sd([mean_and_sd([seed[measure] for seed in fold]).mean for fold in by_fold]).sd
        for measure in results[0].measures
    }


def _pool(source: str, parts: list[Result], pooled: CollectionFiles, output: Location) -> Result:
    """Pool the results of all folds, of one system with one seed."""
    first = parts[0]
    name = f"{source}-{POOLED}"
    run = output / name / first.system / f"seed{first.seed}" / f"{POOLED}.run"
    frame = pl.concat([read_run(part.run).frame for part in parts])
    lines, _ = run_lines(run, frame, first.system)
    if not (run.is_file() and run.read_bytes() == lines):
        write_run(run, frame, first.system)
    evaluation = evaluate(
        read_qrels(pooled.qrels(POOLED)), read_run(run).frame, list(first.measures), run_name=str(run)
    )
    return first._replace(
        collection=name,
        run=run,
        measures=dict(evaluation.means),
        questions=len(evaluation.per_question),
        seconds={phase: sum(part.seconds[phase] for part in parts) for phase in first.seconds},
        folder=pooled.path,
        split=POOLED,
        folds=tuple(part.measures for part in parts),
        costs=_pooled_costs(parts),
    )


def _pooled_costs(parts: list[Result]) -> dict[str, float]:
    """The sum of pairs and the mean of bytes per answer, if every fold has them."""
    shared = set.intersection(*(set(part.costs) for part in parts))
    sums = {name: sum(part.costs[name] for part in parts) for name in sorted(shared)}
    if "bytes_per_answer" in sums:
        sums["bytes_per_answer"] /= len(parts)
    return sums


def _open(path: Location, details: dict[str, Any]) -> CollectionFiles | None:
    """Open a collection; None if it is missing or its manifest has other details."""
    if not (path / MANIFEST).is_file():
        return None
    collection = CollectionFiles(path)
    return collection if details.items() <= collection.manifest["details"].items() else None
