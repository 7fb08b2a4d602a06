"""One trial of an experiment matrix: train, score, write run files, evaluate them.

Every result is stored with a key: a hash of all of its inputs. A second run computes only results whose key
has changed.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl

from aptool.data.collection import Collection
from aptool.data.pools import list_units
from aptool.data.runs import Run, read_run, write_run
from aptool.data.trec import read_qrels, run_lines
from aptool.documents import read_json
from aptool.errors import AptoolError, InputError
from aptool.evaluation.fusion import learn_fusion, reciprocal_rank_fusion
from aptool.evaluation.measures import evaluate_frames
from aptool.experiments.matrix import DEV, EvaluatedSplit, ExperimentMatrix, SystemSpec, Trial, parts_of
from aptool.files import sha256_of
from aptool.models.build import code_of
from aptool.models.model import load_model
from aptool.outputs import EXPECTED, check_output, output_file, remove_tree
from aptool.paths import Location
from aptool.progress import measures_line
from aptool.scoring.model_system import ModelSystem, PoolTokenizer, model_system
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.scoring.run import Executor, score_files
from aptool.scoring.sentence_transformers import checkpoint_fingerprint, local_folder
from aptool.scoring.systems import System, baseline
from aptool.training.checkpoint import inputs_of
from aptool.training.fit import Fit, fit
from aptool.version import __version__

logger = logging.getLogger(__name__)

_LARGEST = 1e15  # of a stored number of seconds, bytes or pairs, so that sums stay finite

Train = Callable[..., Fit]


class _Spent(NamedTuple):
    """Seconds and costs of a run, as in `Result`."""

    seconds: dict[str, float]
    costs: dict[str, float]

    @property
    def is_valid(self) -> bool:
        """Whether all names are known and present, and all values are numbers from 0 to 1e15."""
        if self.seconds.keys() != {"train", "score"}:
            return False
        if not self.costs.keys() <= {"bytes_per_answer", "pairs"}:
            return False
        values = [*self.seconds.values(), *self.costs.values()]
        return all(isinstance(value, int | float) and 0 <= value <= _LARGEST for value in values)


class Result(NamedTuple):
    """One system with one seed on one split."""

    collection: str  # name of the split in the matrix
    system: str
    seed: int
    run: Location
    measures: dict[str, float]  # means by measure
    questions: int
    seconds: dict[str, float]  # of ``train`` and ``score``
    published: str  # name of the collection itself
    folder: Location  # of the collection
    split: str
    preset: str | None  # of a trained system
    folds: tuple[dict[str, float], ...] = ()  # measures on each fold, if the result is over all folds
    # Of a trained system: ``bytes_per_answer`` stored, and ``pairs`` scored in ``seconds["score"]``.
    costs: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials of a matrix into a folder; picklable without ``train`` and ``executor``.

    ``collections`` are the folders by name in the matrix. See `runner.run_matrix` for the other attributes.
    """

    matrix: ExperimentMatrix
    output: Location
    collections: Mapping[str, Location]
    device: str = "auto"
    train: Train | None = None
    executor: Executor | None = None
    overwrite: bool = False

    def check_outputs(self, trial: Trial) -> None:
        """Raise if a stored result is of other inputs, or its run has changed; see `run_matrix`."""
        if self.overwrite:
            return
        collection = Collection(self.collections[trial.collection])
        for evaluated in trial.splits:
            run = self._run_file(trial, evaluated.split)
            is_lost = not (run.is_file() and _record(run).is_file())
            if not is_lost and self._stored(trial, evaluated, collection) is None:
                problem = "a result of another recipe, collection or version, or its run has changed"
                raise InputError(_record(run), problem=problem, expected=EXPECTED)

    def is_done(self, trial: Trial) -> bool:
        """Whether all results of a trial are stored and up to date."""
        collection = Collection(self.collections[trial.collection])
        return all(self._stored(trial, split, collection) is not None for split in trial.splits)

    def run(self, trial: Trial) -> list[Result]:
        """One result per split: the stored result if it is up to date, otherwise a new one."""
        collection = Collection(self.collections[trial.collection])
        results = [self._result(trial, split, collection) for split in trial.splits]
        if trial.splits[0].fold is not None:
            # The models of folds are not needed any more, and may be large.
            remove_tree(results[0].run.parent / "model")
        return results

    def _result(self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection) -> Result:
        run = self._run_file(trial, evaluated.split)
        qrels_path = collection.qrels_file(evaluated.split)
        spent = self._stored(trial, evaluated, collection)
        line = f"{evaluated.name}: {trial.system.name}, seed {trial.seed}"
        is_new = spent is None
        if spent is None:
            logger.info(line)
            _record(run).unlink(missing_ok=True)
            spent = self._write_run(trial, evaluated, collection, run)
        evaluation = evaluate_frames(
            read_qrels(qrels_path), read_run(run).frame, self.matrix.measures, run_name=str(run)
        )
        if evaluation.missing or evaluation.extra:
            raise AptoolError(
                f"{run}: {len(evaluation.missing)} questions missing and {len(evaluation.extra)} extra"
            )
        measures = dict(evaluation.means)
        key, sha256 = self._key(trial, collection, evaluated.split), sha256_of(run)
        saved = json.dumps({"key": key, "run": sha256, "measures": measures, **spent._asdict()}, indent=2)
        if is_new or read_json(_record(run)) != json.loads(saved):
            with output_file(_record(run)) as temporary:
                temporary.write_text(saved + "\n", encoding="utf-8")
        if is_new:
            logger.info(f"{line}: {measures_line(measures)}")
        return Result(
            collection=evaluated.name,
            system=trial.system.name,
            seed=trial.seed,
            run=run,
            measures=measures,
            questions=len(evaluation.per_question),
            seconds=spent.seconds,
            published=collection.name,
            folder=collection.path,
            split=evaluated.split,
            preset=trial.system.preset,
            costs=spent.costs,
        )

    def _run_file(self, trial: Trial, split: str) -> Location:
        return self.output / trial.collection / trial.system.name / f"seed{trial.seed}" / f"{split}.run"

    def _stored(self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection) -> _Spent | None:
        """Seconds and costs of the stored result; None if it is missing or out of date."""
        run = self._run_file(trial, evaluated.split)
        key = self._key(trial, collection, evaluated.split)
        try:
            saved = read_json(_record(run))
            spent = _Spent(dict(saved["seconds"]), dict(saved["costs"]))
            is_current = saved["key"] == key and saved["run"] == sha256_of(run)
            return spent if is_current and spent.is_valid else None
        except (FileNotFoundError, InputError, ValueError, KeyError, TypeError):
            return None

    def _write_run(
        self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection, run: Location
    ) -> _Spent:
        """Write a run file; return its seconds and costs."""
        system = trial.system
        started = time.perf_counter()
        if parts_of(trial, self.matrix.systems):
            frame = self._fused(trial, evaluated, collection)
            write_derived_run(run, frame, system.name, overwrite=self.overwrite)
            return _Spent({"train": 0.0, "score": time.perf_counter() - started}, {})
        model = run.parent / "model"
        train_seconds = self._fit(trial, collection, model) if system.recipe is not None else 0.0
        started = time.perf_counter()
        units = list_units([collection.pools_file(evaluated.split)])
        scoring_system: System
        if system.baseline is not None:
            scoring_system, executor = baseline(system.baseline, seed=trial.seed), None
        else:
            scoring_system, executor = self._model_system(system, model), self.executor
        answers = collection.answers
        scored = score_files(
            units, scoring_system, run, executor, tag=system.name, answers=answers, overwrite=self.overwrite
        )
        seconds = {"train": train_seconds, "score": time.perf_counter() - started}
        if system.preset is None:
            return _Spent(seconds, {})
        loaded = load_model(str(model))
        tokenizer = PoolTokenizer(loaded.tokenizer, loaded.recipe.text)
        first_row_group = next(collection.batches(evaluated.split))
        tokens = tokenizer.tokenize(first_row_group).answers
        bytes_per_answer = RankerScorer(loaded.ranker).bytes_per_answer(tokens)
        return _Spent(seconds, {"bytes_per_answer": bytes_per_answer, "pairs": scored.pairs})

    def _model_system(self, system: SystemSpec, trained: Location) -> System:
        """Return the model of an entry, or the trained one."""
        if system.model is None:
            return ModelSystem(str(trained), self.device)
        return model_system(
            system.model, device=self.device, precision=system.precision, backend=system.backend
        )

    def _fused(self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection) -> pl.DataFrame:
        """Fuse the runs of a system's parts.

        The model of ``combine`` is fitted on the dev split; dev itself is fused by cross-fitting.
        """
        system = trial.system

        def runs(split: str) -> list[Run]:
            parts = parts_of(trial, self.matrix.systems)
            return [read_run(self._run_file(part, split)) for part in parts]

        fused = runs(evaluated.split)
        if system.fuse:
            return reciprocal_rank_fusion([run.frame for run in fused])
        qrels = collection.qrels(DEV)
        try:
            train_runs = None if evaluated.split == DEV else runs(DEV)
            fusion = learn_fusion(fused, qrels, train_runs=train_runs)
        except AptoolError as error:
            raise AptoolError(f"{system.name} on {evaluated.name}: {error}") from error
        weights = zip(system.parts, fusion.weights, strict=True)
        logger.info(f"{system.name}: {', '.join(f'{part} {mean:.3f}' for part, (mean, _) in weights)}")
        return fusion.run.frame

    def _fit(self, trial: Trial, collection: Collection, model: Location) -> float:
        """Train a system, unless it was trained for another split; return the seconds of its epochs."""
        train = self.train
        if train is None:
            vectors = self.output / trial.collection / "vectors"
            # The run on dev has the measures of an untrained system.
            on_dev = any(evaluated.split == DEV for evaluated in trial.splits)
            train = partial(fit, vectors_cache=vectors, device=self.device, evaluate_untrained=not on_dev)
        return float(
            train(collection, trial.system.recipe, model, seed=trial.seed, overwrite=self.overwrite).seconds
        )

    def _key(self, trial: Trial, collection: Collection, split: str) -> str:
        """Hash all inputs of a result."""
        system, systems = trial.system, self.matrix.systems
        inputs: list[Any] = [__version__, collection.fingerprint, split, trial.seed, system.baseline]
        if system.recipe is not None:
            recipe = system.recipe
            inputs += [recipe.to_dict(), code_of(recipe), inputs_of(recipe)]
        inputs += [self._key(part, collection, split) for part in parts_of(trial, systems)]
        if system.model is not None:
            inputs += [system.backend, system.precision, checkpoint_fingerprint(local_folder(system.model))]
        if system.combine:
            inputs.append(["combine", "logistic"])
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def write_derived_run(run: Location, frame: pl.DataFrame, tag: str, *, overwrite: bool) -> None:
    """Write a run that follows from other runs, unless it exists with these lines."""
    lines = run_lines(frame, tag)
    if not (run.is_file() and run.read_bytes() == lines):
        check_output(run, overwrite=overwrite)
        write_run(run, frame, tag)


def _record(run: Location) -> Location:
    """The file with the key and the measures of a run."""
    return run.with_suffix(".json")
