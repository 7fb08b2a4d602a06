"""Folds in a matrix: cross-validation over the questions of train and dev.

Each fold is a collection that systems are trained on and scored on like any other. Afterwards the runs of all
folds are pooled into one run over all questions, each scored by a system that did not train on it.
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

# The split of all questions in the collection of the pooled runs, which stands beside the folds.
POOLED = "folds"


def open_folds(collection: CollectionFiles, folder: Location, number: int) -> list[CollectionFiles]:
    """The folds of a collection in a folder; written first, unless they are there and of this collection.

    Raises:
        InputError: a file cannot be read or written.
        AptoolError: there are too few questions.
    """
    found = [_open(folder / f"fold{fold}") for fold in range(1, number + 1)]
    wanted = {"of": collection.fingerprint, "folds": number}
    if all(one is not None and wanted.items() <= one.manifest["details"].items() for one in found):
        return [one for one in found if one is not None]
    return write_folds(collection, folder, number)


def open_pooled(folds: Sequence[CollectionFiles]) -> CollectionFiles:
    """The collection of all questions of the folds, in one split; written first, unless it is there.

    Raises:
        InputError: a file cannot be read or written.
    """
    path = folds[0].path.parent / "pooled"
    details = {"of": folds[0].manifest["details"]["of"], "folds": len(folds)}
    found = _open(path)
    if found is not None and details.items() <= found.manifest["details"].items():
        return found
    source = f"the questions of the {len(folds)} folds of {folds[0].name}"
    with CollectionWriter(path, name=folds[0].name, source=source, details=details) as writer:
        writer.add_split(POOLED, (pool for fold in folds for pool in labelled_pools(fold, "dev")))
    return CollectionFiles(path)


def pool_folds(
    results: Iterable[tuple[EvaluatedSplit, Result]],
    collections: Mapping[EvaluatedSplit, CollectionFiles],
    output: Location,
) -> list[Result]:
    """The results, with those of the folds of a collection replaced by one over all of its questions.

    Args:
        results: each with the split that it is on.
        collections: the collection of each split.
        output: the folder for the pooled run files.

    Raises:
        InputError: a file cannot be read or written.
    """
    groups: dict[Any, list[Result]] = {}
    folds: dict[str, list[CollectionFiles]] = {}
    for evaluated, collection in collections.items():
        if evaluated.fold is not None:
            folds.setdefault(evaluated.fold.source, []).append(collection)
    pooled = {name: open_pooled(parts) for name, parts in folds.items()}
    for evaluated, result in results:
        place = evaluated.fold.source if evaluated.fold is not None else evaluated
        groups.setdefault((place, result.system, result.seed), []).append(result)
    return [
        _pool(place, group, pooled[place], output) if isinstance(place, str) else group[0]
        for (place, _, _), group in groups.items()
    ]


def fold_deviations(results: Sequence[Result]) -> dict[str, float]:
    """The standard deviation over the folds of each measure, of its means over seeds; empty without folds.

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
    """One result of those of all folds, for one system and seed."""
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
    """Of all folds: the pairs of all, and the mean of their bytes; as far as each fold has them."""
    known = set.intersection(*(set(part.costs) for part in parts))
    sums = {name: sum(part.costs[name] for part in parts) for name in sorted(known)}
    if "bytes_per_answer" in sums:
        sums["bytes_per_answer"] /= len(parts)
    return sums


def _open(path: Location) -> CollectionFiles | None:
    return CollectionFiles(path) if (path / MANIFEST).is_file() else None
