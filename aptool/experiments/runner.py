"""Runs a table of experiments: train, score, write a run file, read it back, evaluate.

Every result is kept with a key of everything that made it. Running a table again computes only what is new
or has changed.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aptool import __version__
from aptool.config import Recipe, load_recipe
from aptool.errors import AptoolError, error_with
from aptool.evaluation.fusion import reciprocal_rank_fusion
from aptool.evaluation.measures import evaluate
from aptool.experiments.matrix import Matrix, Row, Source, SystemSpec
from aptool.experiments.published_files import import_published
from aptool.formats.atomic import atomic_file
from aptool.formats.collection import MANIFEST, Collection
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels, read_run, write_run
from aptool.models.device import pick_device
from aptool.models.ranker import check_recipe, encoder_type
from aptool.scoring.baselines import Bm25System, RandomSystem
from aptool.scoring.score import AnySystem, Executor, score
from aptool.scoring.systems import ModelLoader
from aptool.training.checkpoint import identity
from aptool.training.fit import Fit, fit

logger = logging.getLogger(__name__)

Train = Callable[..., Fit]


class Result(NamedTuple):
    """One system with one seed on one collection."""

    collection: str
    system: str
    seed: int
    run: Path
    measures: dict[str, float]
    questions: int  # in the qrels: what the means are over
    seconds: dict[str, float]  # train, score
    published: str  # the collection's own name, by which published figures are known
    split: str
    preset: str | None


class Runner:
    """Runs the rows of a table into a folder."""

    def __init__(
        self,
        matrix: Matrix,
        output: Path,
        *,
        train: Train | None = None,
        executor: Executor | None = None,
        device: str = "auto",
    ) -> None:
        """Prepares to run.

        Args:
            matrix: the table.
            output: where run files, models and results go.
            train: trains somewhere else than in this process: ``fit`` with the same arguments.
            executor: where trained models score; None is this process.
            device: what networks run on.

        Raises:
            AptoolError: a system's recipe is not one.
        """
        self._matrix = matrix
        self._output = output
        self._train = train
        self._executor = executor
        self._device = device
        self._recipes: dict[str, Recipe] = {}
        for row in matrix.rows:
            spec = row.spec
            if spec.preset is not None:
                try:
                    self._recipes[spec.name] = load_recipe(spec.preset, spec.overrides)
                    check_recipe(self._recipes[spec.name])
                except AptoolError as error:
                    raise error_with(error.exit_code, f"system {spec.name!r}: {error}") from error

    def run(self) -> list[Result]:
        """All results, in the order of the table.

        Raises:
            AptoolError: a collection cannot be read or built, or a row fails.
        """
        opened: dict[str, Collection] = {}
        collections: dict[Source, Collection] = {}
        for source in dict.fromkeys(row.source for row in self._matrix.rows):
            if source.folder not in opened:
                opened[source.folder] = self._collection(source)
            collection = opened[source.folder]
            if source.optional and source.split not in collection.splits:
                logger.info(f"{source.folder}: no split {source.split!r}, so {source.name} is left out")
                continue
            collection.qrels(source.split)  # there is such a split
            collections[source] = collection
        return [
            self._result(row, collections[row.source], seed)
            for row in self._matrix.rows
            if row.source in collections
            for seed in row.seeds
        ]

    def _collection(self, source: Source) -> Collection:
        if source.build == "functions" and not source.path.exists():
            from aptool.datasets.functions import build

            logger.info(f"building {source.path}")
            build(source.path, limit=source.limit)
        elif source.build in ("wikiqa", "trecqa") and not (source.path / MANIFEST).exists():
            # The same files give the same collection, so nothing is run again on its account.
            out = self._output / "collections" / source.folder
            logger.info(f"importing {source.path} to {out}")
            return import_published(source.build, source.path, out)
        return Collection(source.path)

    def _result(self, row: Row, collection: Collection, seed: int) -> Result:
        spec, source = row.spec, row.source
        folder = self._folder(source, spec.name, seed)
        run, record = folder / f"{source.split}.run", folder / f"{source.split}.json"
        key = self._key(spec, collection, source.split, seed)
        qrels_path = collection.qrels(source.split)
        seconds = _recorded(record, key)
        if seconds is None or not run.is_file():
            logger.info(f"{source.name}: {spec.name}, seed {seed}")
            record.unlink(missing_ok=True)
            seconds = self._make(row, collection, seed, folder, run)
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
        questions = len(evaluation.per_question)
        return Result(
            collection=source.name,
            system=spec.name,
            seed=seed,
            run=run,
            measures=measures,
            questions=questions,
            seconds=seconds,
            published=collection.name,
            split=source.split,
            preset=spec.preset,
        )

    def _folder(self, source: Source, system: str, seed: int) -> Path:
        return self._output / source.folder / system / f"seed{seed}"

    def _make(self, row: Row, collection: Collection, seed: int, folder: Path, run: Path) -> dict[str, float]:
        """Writes the run file of a row and seed; returns the seconds that training and scoring took."""
        spec = row.spec
        begun = time.perf_counter()
        if spec.fuse:
            parts = [self._folder(row.source, part, seed) / f"{row.source.split}.run" for part in spec.fuse]
            fused = reciprocal_rank_fusion([read_run(part).frame for part in parts])
            write_run(run, fused, spec.name)
            return {"train": 0.0, "score": time.perf_counter() - begun}
        train_seconds = 0.0
        if spec.preset is not None:
            train_seconds = self._trained(row, collection, seed, folder)
        trained = time.perf_counter()
        units = list_units([collection.pools(row.source.split)])
        system, executor = self._system(spec, collection, row.source.split, seed, folder)
        score(units, system, run, executor, tag=spec.name, answers=collection.answers)
        return {"train": train_seconds, "score": time.perf_counter() - trained}

    def _trained(self, row: Row, collection: Collection, seed: int, folder: Path) -> float:
        """Trains a system, unless that was done for another split; returns the seconds of its epochs."""
        spec = row.spec
        train = self._train
        if train is None:
            cache = self._output / row.source.folder / "vectors"
            train = partial(fit, vectors_cache=cache, device=pick_device(self._device))
        result = train(
            collection,
            self._recipes[spec.name],
            folder / "model",
            seed=seed,
        )
        return float(result.seconds)

    def _system(
        self, spec: SystemSpec, collection: Collection, split: str, seed: int, folder: Path
    ) -> tuple[AnySystem, Executor | None]:
        """What scores a row, and where: baselines score in this process."""
        if spec.preset is not None:
            return ModelLoader(str(folder / "model"), self._device), self._executor
        if spec.baseline == "random":
            return RandomSystem(seed), None
        answers = read_answers(collection.answers) if collection.answers else None
        units = list_units([collection.pools(split)])
        texts = [text for unit in units for text in read_pools(unit, answers).answers.to_pylist()]
        return Bm25System(texts), None

    def _key(self, spec: SystemSpec, collection: Collection, split: str, seed: int) -> str:
        """A hash of everything that decides a result."""
        made_of: list[Any] = [__version__, collection.fingerprint, split, seed, spec.baseline]
        if spec.preset is not None:
            recipe = self._recipes[spec.name]
            made_of += [recipe.to_dict(), identity(encoder_type(recipe).source(recipe))]
        made_of += [self._key(self._matrix.specs[part], collection, split, seed) for part in spec.fuse]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def _recorded(record: Path, key: str) -> dict[str, float] | None:
    """The seconds of an earlier result with this very key, if there is one."""
    try:
        saved = json.loads(record.read_text(encoding="utf-8"))
        return dict(saved["seconds"]) if saved["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
