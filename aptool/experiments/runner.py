"""Runs a table of experiments: train, score, write a run file, read it back, evaluate.

Every result is kept with a key of everything that made it. Running a table again computes only what is new
or has changed.
"""

import hashlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aptool import __version__
from aptool.config import Recipe, load_recipe
from aptool.errors import AptoolError, error_with
from aptool.evaluation.fusion import reciprocal_rank_fusion
from aptool.evaluation.metrics import evaluate
from aptool.experiments.matrix import Contender, Matrix, Row, Source
from aptool.experiments.published_files import import_published
from aptool.formats.atomic import atomic_file
from aptool.formats.collection import MANIFEST, Collection
from aptool.formats.pools import Answers, Unit, list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels, read_run, write_run
from aptool.models.checkpoint import load_model
from aptool.models.ranker import check_recipe, encoder_type
from aptool.scoring.local import score_pools
from aptool.scoring.shards import System
from aptool.scoring.systems import Bm25System, ModelSystem, RandomSystem
from aptool.training.fit import Fit, fit
from aptool.training.loop import Progress
from aptool.training.state import identity

Watch = Callable[[str, dict[str, Any]], None]
Train = Callable[..., Fit]
Score = Callable[[list[Unit], Path, Path, str, Path | None], None]


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
        say: Callable[[str], None] = lambda line: None,
        progress: Callable[[str, Progress], None] = lambda system, progress: None,
        epoch_done: Watch = lambda system, entry: None,
        train: Train | None = None,
        score: Score | None = None,
    ) -> None:
        """Prepares to run.

        Args:
            matrix: the table.
            output: where run files, models and results go.
            say: told in a line what is being done.
            progress: told how far a system's training is.
            epoch_done: told each system's training history as it grows.
            train: trains somewhere else than in this process: ``fit`` with the same arguments.
            score: scores somewhere else: row groups, a model folder, the run file, its tag, the file of
                shared answers.

        Raises:
            AptoolError: a system's recipe is not one.
        """
        self._matrix = matrix
        self._output = output
        self._say = say
        self._progress = progress
        self._epoch_done = epoch_done
        self._train = train
        self._score = score
        self._recipes: dict[str, Recipe] = {}
        for row in matrix.rows:
            contender = row.contender
            if contender.preset is not None:
                try:
                    self._recipes[contender.name] = load_recipe(contender.preset, contender.overrides)
                    check_recipe(self._recipes[contender.name])
                except AptoolError as error:
                    raise error_with(error.exit_code, f"system {contender.name!r}: {error}") from error

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
                self._say(f"{source.folder}: no split {source.split!r}, so {source.name} is left out")
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

            self._say(f"building {source.path}")
            build(source.path, limit=source.limit, report=self._say)
        elif source.build in ("wikiqa", "trecqa") and not (source.path / MANIFEST).exists():
            # The same files give the same collection, so nothing is run again on its account.
            out = self._output / "collections" / source.folder
            self._say(f"importing {source.path} to {out}")
            return import_published(source.build, source.path, out)
        return Collection(source.path)

    def _result(self, row: Row, collection: Collection, seed: int) -> Result:
        contender, source = row.contender, row.source
        folder = self._folder(source, contender.name, seed)
        run, record = folder / f"{source.split}.run", folder / f"{source.split}.json"
        key = self._key(contender, collection, source.split, seed)
        qrels_path = collection.qrels(source.split)
        seconds = _recorded(record, key)
        if seconds is None or not run.is_file():
            self._say(f"{source.name}: {contender.name}, seed {seed}")
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
            system=contender.name,
            seed=seed,
            run=run,
            measures=measures,
            questions=questions,
            seconds=seconds,
            published=collection.name,
            split=source.split,
            preset=contender.preset,
        )

    def _folder(self, source: Source, system: str, seed: int) -> Path:
        return self._output / source.folder / system / f"seed{seed}"

    def _make(self, row: Row, collection: Collection, seed: int, folder: Path, run: Path) -> dict[str, float]:
        """Writes the run file of a row and seed; returns the seconds that training and scoring took."""
        contender = row.contender
        begun = time.perf_counter()
        if contender.fuse:
            parts = [
                self._folder(row.source, part, seed) / f"{row.source.split}.run" for part in contender.fuse
            ]
            fused = reciprocal_rank_fusion([read_run(part).frame for part in parts])
            write_run(run, fused, contender.name)
            return {"train": 0.0, "score": time.perf_counter() - begun}
        train_seconds = 0.0
        if contender.preset is not None:
            train_seconds = self._trained(row, collection, seed, folder)
        trained = time.perf_counter()
        units = list_units([collection.pools(row.source.split)])
        if self._score is not None and contender.preset is not None:
            self._score(units, folder / "model", run, contender.name, collection.answers)
            return {"train": train_seconds, "score": time.perf_counter() - trained}
        answers = read_answers(collection.answers) if collection.answers else None
        system = self._system(contender, collection, row.source.split, seed, folder, answers)
        score_pools(units, system, run, tag=contender.name, answers=answers)
        return {"train": train_seconds, "score": time.perf_counter() - trained}

    def _trained(self, row: Row, collection: Collection, seed: int, folder: Path) -> float:
        """Trains a system, unless that was done for another split; returns the seconds of its epochs."""
        contender = row.contender
        train = self._train
        if train is None:
            train = partial(fit, vectors_cache=self._output / row.source.folder / "vectors")
        result = train(
            collection,
            self._recipes[contender.name],
            folder / "model",
            seed=seed,
            say=self._say,
            progress=lambda state: self._progress(contender.name, state),
            epoch_done=lambda entry: self._epoch_done(contender.name, entry),
        )
        return float(result.seconds)

    def _system(
        self,
        contender: Contender,
        collection: Collection,
        split: str,
        seed: int,
        folder: Path,
        answers: Answers | None,
    ) -> System:
        if contender.preset is not None:
            return ModelSystem(load_model(folder / "model"))
        if contender.baseline == "random":
            return RandomSystem(seed)
        units = list_units([collection.pools(split)])
        texts = [text for unit in units for text in read_pools(unit, answers).answers.to_pylist()]
        return Bm25System(texts)

    def _key(self, contender: Contender, collection: Collection, split: str, seed: int) -> str:
        """A hash of everything that decides a result."""
        made_of: list[Any] = [__version__, collection.fingerprint, split, seed, contender.baseline]
        if contender.preset is not None:
            recipe = self._recipes[contender.name]
            made_of += [recipe.to_dict(), identity(encoder_type(recipe).source(recipe))]
        made_of += [
            self._key(self._matrix.contenders[part], collection, split, seed) for part in contender.fuse
        ]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def _recorded(record: Path, key: str) -> dict[str, float] | None:
    """The seconds of an earlier result with this very key, if there is one."""
    try:
        saved = json.loads(record.read_text(encoding="utf-8"))
        return dict(saved["seconds"]) if saved["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
