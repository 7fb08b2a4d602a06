"""Runs an experiment matrix: train, score, write a run file, read it back, evaluate.

Every result is stored with a key, a hash of everything that decides it. Running a matrix again computes only
what is new or has changed.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from aptool.config import Recipe, load_recipe
from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, error_with
from aptool.evaluation.fusion import reciprocal_rank_fusion
from aptool.evaluation.learned_fusion import cross_fitted, learn_fusion
from aptool.evaluation.measures import evaluate
from aptool.experiments.matrix import EvaluatedSplit, Experiment, ExperimentMatrix, SystemSpec
from aptool.experiments.published_files import import_published
from aptool.formats.atomic import atomic_file
from aptool.formats.collection import MANIFEST, Collection
from aptool.formats.pools import list_units
from aptool.formats.trec import read_qrels, read_run, write_run
from aptool.models.ranker import check_recipe, encoder_type
from aptool.scoring.baselines import Bm25System, RandomSystem
from aptool.scoring.score import AnySystem, Executor, score
from aptool.scoring.systems import ModelLoader
from aptool.training.checkpoint import source_identity
from aptool.training.fit import Fit, fit
from aptool.version import __version__

logger = logging.getLogger(__name__)

Train = Callable[..., Fit]

# The split that systems are combined on: their training split would show them better than they are.
DEV = "dev"


class Result(NamedTuple):
    """One system with one seed on one split.

    Attributes:
        collection: the split's name in the matrix.
        system: the system's name in the matrix.
        run: the run file.
        measures: by trec_eval's names.
        questions: of the qrels; the measures are means over them.
        seconds: of ``train`` and ``score``.
        published: the collection's own name, by which published figures are known.
        preset: of a trained system.
    """

    collection: str
    system: str
    seed: int
    run: Path
    measures: dict[str, float]
    questions: int
    seconds: dict[str, float]
    published: str
    split: str
    preset: str | None


def by_system(results: Sequence[Result]) -> list[list[Result]]:
    """The seeds of each system on each collection, in the order in which they first come."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.collection, result.system), []).append(result)
    return list(groups.values())


class Runner:
    """Runs the experiments of a matrix into a folder."""

    def __init__(
        self,
        matrix: ExperimentMatrix,
        output: Path,
        *,
        train: Train | None = None,
        executor: Executor | None = None,
        device: str = "auto",
    ) -> None:
        """Loads and checks the systems' recipes.

        Args:
            matrix: the experiments.
            output: the folder for run files, models and results.
            train: trains elsewhere, with the arguments of ``fit``; None trains in this process.
            executor: where trained models score; None is this process.
            device: of training and scoring in this process; ``auto`` is a GPU where there is one.

        Raises:
            AptoolError: a recipe is invalid.
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
                    self._recipes[system.name] = load_recipe(system.preset, system.overrides)
                    check_recipe(self._recipes[system.name])
                except AptoolError as error:
                    raise error_with(error.exit_code, f"system {system.name!r}: {error}") from error

    def run(self) -> list[Result]:
        """All results, in the order of the matrix.

        Raises:
            AptoolError: a collection cannot be read or built, or an experiment fails.
        """
        collections = self._open_collections()
        return [
            self._result(experiment, collections[experiment.evaluated], seed)
            for experiment in self._matrix.experiments
            if experiment.evaluated in collections
            for seed in experiment.seeds
        ]

    def _open_collections(self) -> dict[EvaluatedSplit, Collection]:
        """The collection of each evaluated split; optional splits that it lacks are left out."""
        opened: dict[str, Collection] = {}
        collections: dict[EvaluatedSplit, Collection] = {}
        for evaluated in dict.fromkeys(experiment.evaluated for experiment in self._matrix.experiments):
            name, split = evaluated.collection, evaluated.split
            if name not in opened:
                opened[name] = self._open(evaluated)
            if evaluated.optional and split not in opened[name].splits:
                logger.info(f"{name}: no split {split!r}, so {evaluated.name} is left out")
                continue
            opened[name].qrels(split)  # raises if there is no such split
            collections[evaluated] = opened[name]
        return collections

    def _open(self, evaluated: EvaluatedSplit) -> Collection:
        """Opens a collection, which is built or imported first where the matrix says so."""
        build, path = evaluated.build, evaluated.path
        if build == "functions" and not path.exists():
            from aptool.datasets.functions import build as build_functions

            logger.info(f"building {path}")
            build_functions(path, limit=evaluated.limit)
        elif build in ("wikiqa", "trecqa") and not (path / MANIFEST).exists():
            # The same files give the same fingerprint, so importing them again makes no result outdated.
            imported = self._output / "collections" / evaluated.collection
            logger.info(f"importing {path} to {imported}")
            return import_published(build, path, imported)
        return Collection(path)

    def _result(self, experiment: Experiment, collection: Collection, seed: int) -> Result:
        """The stored result if it is up to date, else a new one; both evaluated from the run file."""
        system, evaluated = experiment.system, experiment.evaluated
        split = evaluated.split
        folder = self._folder(evaluated, system.name, seed)
        run, record = folder / f"{split}.run", folder / f"{split}.json"
        key = self._key(system, collection, split, seed)
        qrels_path = collection.qrels(split)
        seconds = _recorded_seconds(record, key)
        if seconds is None or not run.is_file():
            logger.info(f"{evaluated.name}: {system.name}, seed {seed}")
            record.unlink(missing_ok=True)
            seconds = self._write_run(experiment, collection, seed, run)
        evaluation = evaluate(
            read_qrels(qrels_path), read_run(run).frame, self._matrix.measures, run_name=str(run)
        )
        if evaluation.missing or evaluation.extra:
            raise AptoolError(
                f"{run}: {len(evaluation.missing)} questions missing and {len(evaluation.extra)} extra"
            )
        measures = dict(evaluation.means)
        with atomic_file(record) as temporary:
            saved = {"key": key, "measures": measures, "seconds": seconds}
            temporary.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
        return Result(
            collection=evaluated.name,
            system=system.name,
            seed=seed,
            run=run,
            measures=measures,
            questions=len(evaluation.per_question),
            seconds=seconds,
            published=collection.name,
            split=split,
            preset=system.preset,
        )

    def _folder(self, evaluated: EvaluatedSplit, system: str, seed: int) -> Path:
        return self._output / evaluated.collection / system / f"seed{seed}"

    def _write_run(
        self, experiment: Experiment, collection: Collection, seed: int, run: Path
    ) -> dict[str, float]:
        """Writes the run file of a system and seed; returns the seconds that training and scoring took."""
        system, evaluated = experiment.system, experiment.evaluated
        started = time.perf_counter()
        if system.parts:
            write_run(run, self._fused(experiment, collection, seed), system.name)
            return {"train": 0.0, "score": time.perf_counter() - started}
        model = run.parent / "model"
        train_seconds = self._fit(experiment, collection, seed, model) if system.preset is not None else 0.0
        started = time.perf_counter()
        units = list_units([collection.pools(evaluated.split)])
        scoring_system, executor = self._scoring_system(system, collection, evaluated.split, seed, model)
        score(units, scoring_system, run, executor, tag=system.name, answers=collection.answers)
        return {"train": train_seconds, "score": time.perf_counter() - started}

    def _fused(self, experiment: Experiment, collection: Collection, seed: int) -> pl.DataFrame:
        """The runs of a system's parts as one. A model that combines them is fitted on the dev split.

        On the dev split itself, each fold of its questions is fused by a model of the other folds.
        """
        system, evaluated = experiment.system, experiment.evaluated

        def runs(split: str) -> list[pl.DataFrame]:
            of_split = evaluated._replace(split=split)
            parts = [Experiment(of_split, self._matrix.systems[part], (seed,)) for part in system.parts]
            return [read_run(self._result(part, collection, seed).run).frame for part in parts]

        own = runs(evaluated.split)
        if system.fuse:
            return reciprocal_rank_fusion(own)
        qrels = read_qrels(collection.qrels(DEV))
        if evaluated.split == DEV:
            fusion = cross_fitted(own, qrels, system.method, seed=seed)
        else:
            fusion = learn_fusion(runs(DEV), qrels, own, system.method, seed)
        weights = zip(system.parts, fusion.weights.mean(0).tolist(), strict=True)
        logger.info(f"{system.name}: {', '.join(f'{part} {weight:.3f}' for part, weight in weights)}")
        return fusion.frame

    def _fit(self, experiment: Experiment, collection: Collection, seed: int, model: Path) -> float:
        """Trains a system, unless that was done for another split; returns the seconds of its epochs."""
        train = self._train
        if train is None:
            cache = self._output / experiment.evaluated.collection / "vectors"
            train = partial(fit, vectors_cache=cache, device=self._device)
        return float(train(collection, self._recipes[experiment.system.name], model, seed=seed).seconds)

    def _scoring_system(
        self, system: SystemSpec, collection: Collection, split: str, seed: int, model: Path
    ) -> tuple[AnySystem, Executor | None]:
        """The system that scores, and where: baselines score in this process."""
        if system.preset is not None:
            return ModelLoader(str(model), self._device), self._executor
        if system.baseline == "random":
            return RandomSystem(seed), None
        return Bm25System.of(list_units([collection.pools(split)]), collection.answers), None

    def _key(self, system: SystemSpec, collection: Collection, split: str, seed: int) -> str:
        """A hash of everything that decides a result."""
        parts: list[Any] = [__version__, collection.fingerprint, split, seed, system.baseline]
        if system.preset is not None:
            recipe = self._recipes[system.name]
            parts += [recipe.to_dict(), source_identity(encoder_type(recipe).source(recipe))]
        parts += [self._key(self._matrix.systems[part], collection, split, seed) for part in system.parts]
        if system.combine:
            parts.append(["combine", system.method])
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _recorded_seconds(record: Path, key: str) -> dict[str, float] | None:
    """The seconds of an earlier result with this key; None if there is none."""
    try:
        saved = read_json(record)
        return dict(saved["seconds"]) if saved["key"] == key else None
    except (InputError, ValueError, KeyError, TypeError):
        return None
